"""Documents that were read: kept for other policies, budgets, questions and workers."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import EngineSession
from contextcliff_dagster.inference.engines.kvpress.engine import (
    DISK_VARIABLE,
    KvpressEngine,
    disk_bytes,
)
from contextcliff_dagster_tests.support.kv_engine import (
    answers,
    entry,
    in_its_environment,
    pressed,
    prompts,
    run,
)

pytestmark = pytest.mark.timeout(900)


@pytest.mark.kv
def test_a_document_is_read_once_for_every_policy_budget_question_and_worker(
    contextcliff_home: Path,
) -> None:
    asked = prompts(n=4)
    documents = {prompt.messages[-1].content[:200] for prompt in asked}
    read: list[str] = []

    async def work(engine: KvpressEngine) -> None:
        for policy in ("snapkv", "expected_attention", "h2o", "random"):
            for budget in (0.2, 0.5, 0.9):
                for answer in await answers(pressed(engine, policy, budget), asked):
                    assert answer.usage
                    read.extend([] if answer.usage.cached_tokens else [policy])
                    assert answer.extra["kv_prefill_ms"]
            await engine.count_prompt_tokens(asked[0])  # what was read is written before that
            assert engine._worker.pid
            os.kill(engine._worker.pid, signal.SIGKILL)
            while engine._worker.alive:
                await asyncio.sleep(0.01)

    with EngineSession(entry()) as started:
        run(started, work)
    # Once more with the scores of h2o, which only it has made; what follows takes those.
    assert read == ["snapkv"] * len(documents) + ["h2o"] * len(documents)
    folder = contextcliff_home / "_kv_reads"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.iterdir()]]
    assert modes == [0o700, *[0o600] * len(documents)]


@pytest.mark.kv
def test_what_does_not_fit_on_the_disk_is_read_anew_and_noted(
    contextcliff_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DISK_VARIABLE, "0.000001")

    async def work(engine: KvpressEngine) -> list[str]:
        assert await answers(engine, prompts())
        return [*engine.notes(), *engine.notes()]

    with EngineSession(entry()) as started:
        (note,) = run(started, work)
    assert f"more than the 1e-06 GiB that {DISK_VARIABLE} allows" in note
    assert not list((contextcliff_home / "_kv_reads").iterdir())


@pytest.mark.kv
def test_files_of_what_was_read(tmp_path: Path) -> None:
    found = in_its_environment(Path(__file__).with_name("kept_files.py"), str(tmp_path / "reads"))
    assert found == {
        "same": True,
        "other model": False,
        "without scores": False,
        "cut": False,
        "one bit": False,
        "after damage": [],
        "least recently used goes": [1, 3, 4, 5],
        "never its own": [1, 4, 5, 6],
        "problem": "they take more than the 0.00026 GiB that CONTEXTCLIFF_KV_READS_GIB allows",
        "abandoned": 0,
    }


@pytest.mark.parametrize("given", ["-1", "much", "nan", "1e999"])
def test_no_room_on_the_disk_that_is_no_number(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DISK_VARIABLE, given)
    with pytest.raises(EngineError, match="unset it for 8"):
        disk_bytes()
