"""Traces: what a file of a run holds, made from the ledger alone."""

from __future__ import annotations

import json
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, NoReturn

import pytest

from contextcliff_dagster.contracts import BudgetError
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.extensions.visibility.experiment import VISIBILITY
from contextcliff_dagster.extensions.visibility.runs.traces import Trace
from contextcliff_dagster.extensions.visibility.section import AXES
from contextcliff_dagster.inference.engines.base import Delta, TransportError
from contextcliff_dagster_tests.extensions.visibility.runs.small_study import (
    SMALL,
    ask,
    drawn_reply,
    opened,
    small_landscapes,
    small_study,
)
from contextcliff_dagster_tests.support.scripted_engine import ScriptedEngine

ONE_RUN = (
    SMALL.replace("[hidden, shown]", "[shown]").replace("[0, 2]", "[2]").replace("ds: 2", "ds: 1")
)
HOSTILE = (
    '{"C": NaN, "max_iter": 1e999}',
    '{"C": ' + "9" * 5_000 + "}",
    '{"C": "\\ud83d", "\\udfff": [1], "max_iter": -Infinity}',
    "a line\u2028separator and a NUL \x00",
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_landscapes(monkeypatch)


def traces(run: StudyRun) -> list[Trace]:
    return list(VISIBILITY.traces(run, "reference-short"))


def lines(file: Path) -> list[dict[str, Any]]:
    """The events, read as strict JSON."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is no JSON")

    text = file.read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text[:-1].split("\n")]


def test_events_are_in_order_with_prompt_and_reply(tmp_path: Path) -> None:
    engine = ScriptedEngine(drawn_reply)
    with opened(small_study(tmp_path)) as run:
        ask(run, engine)
        made = traces(run)
    assert [trace.run.key for trace in made] == list(VISIBILITY.cells(run.study))
    sent = {prompt.messages[-1].content for prompt in engine.asked}
    for trace in made:
        events = lines(trace.write(tmp_path / "traces"))
        kinds = [(event["step_idx"], event["event_type"]) for event in events]
        steps = [
            (number, kind)
            for number in (1, 2, 3, 4)
            for kind in ("op.config_proposal", "op.train", "step.summary")
        ]
        assert kinds == [(0, "run.start"), (0, "op.train"), *steps, (4, "run.end")]
        times = [event["timestamp"] for event in events]
        assert times == sorted(times)
        assert {event["run_id"] for event in events} == {trace.run.key}
        start, end = events[0]["details"], events[-1]["details"]
        assert start["axes"] == {name: getattr(trace.run.axes, name) for name in AXES}
        assert (end["status"], end["steps"], end["planned_steps"]) == ("success", 4, 4)
        proposals = [event["details"] for event in events[2:-1:3]]
        trained = [event["details"] for event in events[3:-1:3]]
        for proposal in proposals:
            assert proposal["prompt"][-1]["text"] in sent
            assert proposal["raw_reply"]
        for before, after in pairwise(range(4)):
            assert proposals[after]["base_config"] == trained[before]["config"]
        scores = [
            event["details"]["validation"] for event in events if event["event_type"] == "op.train"
        ]
        assert end["best_validation"] == max(score for score in scores if score is not None)


def test_a_trace_is_the_same_file_again_and_whatever_was_stopped_on_the_way(
    tmp_path: Path,
) -> None:
    study = small_study(tmp_path, ONE_RUN)
    engine = ScriptedEngine(drawn_reply)
    with opened(study) as run:
        with pytest.raises(BudgetError):
            ask(run, engine, calls=2)
        (part,) = traces(run)
        assert (part.summary["status"], part.summary["steps"]) == ("incomplete", 2)
        first = part.write(tmp_path / "traces")
        begun = lines(first)[:-1]
    with opened(study) as run:
        ask(run, engine)
        (whole,) = traces(run)
        file = whole.write(tmp_path / "traces")
        content = file.read_bytes()
        assert lines(file)[: len(begun)] == begun
    assert file == first, "the folder's time is that of the first reply"
    with opened(study) as run:
        assert traces(run)[0].write(tmp_path / "traces").read_bytes() == content
    assert len(engine.asked) == 4
    assert [path for path in (tmp_path / "traces").rglob("*") if path.is_file()] == [file]


def test_every_line_is_strict_json_whatever_a_model_writes(tmp_path: Path) -> None:
    replies = cycle(HOSTILE)
    with opened(small_study(tmp_path, ONE_RUN)) as run:
        ask(run, ScriptedEngine(lambda _: [Delta(text=next(replies))]))
        (trace,) = traces(run)
    events = lines(trace.write(tmp_path / "traces"))
    first, second, third, fourth = (event["details"] for event in events[2:-1:3])
    assert first["proposal"] == {"C": "nan", "max_iter": "inf"}
    assert [clamp["reason"] for clamp in first["clamps"]] == ["nan", "above"]
    assert second["raw_reply"] == HOSTILE[1]
    assert [clamp["reason"] for clamp in third["clamps"]] == [
        *["not_a_number", "unknown_parameter", "below"]
    ]
    assert (fourth["proposal"], fourth["unparsable"]) == (None, True)


def test_a_request_that_failed_is_no_step_of_the_trace(tmp_path: Path) -> None:
    class Broken(ScriptedEngine):
        async def stream(self, prompt, decoding):  # type: ignore[no-untyped-def]
            if self.asked:
                raise TransportError("drop", "the line is dead")
            async for piece in super().stream(prompt, decoding):
                yield piece

    with opened(small_study(tmp_path, ONE_RUN)) as run:
        ask(run, Broken(drawn_reply))
        (trace,) = traces(run)
        assert run.ledger.last_failure("small", run.campaign) == "the line is dead"
    assert (trace.summary["status"], trace.summary["steps"]) == ("incomplete", 1)
    assert len(trace.prompts) == len(trace.steps) == 1
    assert lines(trace.write(tmp_path / "traces"))[-1]["event_type"] == "run.end"


def test_a_campaign_without_a_reply_has_no_trace(tmp_path: Path) -> None:
    def silent(_: object) -> NoReturn:
        raise TransportError("drop", "the line is dead")

    with opened(small_study(tmp_path, ONE_RUN)) as run:
        assert traces(run) == []
        ask(run, ScriptedEngine(silent))
        assert traces(run) == []
