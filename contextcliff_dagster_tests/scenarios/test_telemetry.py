"""What Dagster is told while calls run, and how often."""

from __future__ import annotations

import itertools
from functools import partialmethod
from itertools import pairwise
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.defs.asset_specs import asset_key
from contextcliff_dagster.defs.ui.calls import StepProgress, bin_metadata, line
from contextcliff_dagster.inference.telemetry import Progress, RunSummary
from contextcliff_dagster.run.study import prepare_study, profile_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.defs.test_chain import stale
from contextcliff_dagster_tests.scenarios.test_truncation import SERVED, point_at
from contextcliff_dagster_tests.support.records.calls import faulty_server, unreliable_server
from contextcliff_dagster_tests.support.tiny_study import Run, bin_after_bin

pytestmark = pytest.mark.usefixtures("unrecorded")

ONE_BY_ONE = "    tokenizer: reference\n    concurrency: 1\n"


def progress(**changes: Any) -> Progress:
    values: dict[str, Any] = {
        "planned": 200, "done": 40, "cached": 0, "in_flight": 4, "waiting": 0, "retries": 2,
        "failed": 0, "concurrency": 8, "prompt_tokens": 48_000, "cached_tokens": 12_000,
        "completion_tokens": 100, "cost_usd": 0.12, "elapsed_s": 39.0, "seconds_left": 80.0,
    }  # fmt: skip
    return Progress(**{**values, **changes})


@given(st.lists(st.floats(0, 30), max_size=200), st.floats(0, 10_000))
def test_observations_come_at_most_once_a_second(waits: list[float], began: float) -> None:
    now, observed, heard = began, list[float](), 0

    def listen(model: str, progress: Progress) -> None:
        nonlocal heard
        heard += 1

    step = StepProgress(lambda *_: observed.append(now), listen, clock=lambda: now)
    for number, wait in enumerate(waits):
        now += wait
        step.of(f"m{number // 10}")(progress())  # ten each: the models share the pace
    assert all(later - earlier >= 0.999 for earlier, later in pairwise([began, *observed]))
    assert heard == len(waits)  # the progress bar gets everything


def test_of_a_long_step_the_event_log_keeps_few_observations() -> None:
    now, observed = 0.0, list[float]()
    step = StepProgress(lambda *_: observed.append(now), clock=lambda: now)
    take = step.of("m")
    for second in range(24 * 3600):
        now = float(second)
        take(progress())
    assert [sum(at <= until for at in observed) for until in (60, 3600)] == [17, 39]
    assert len(observed) <= 60
    assert all(later <= 1.2 * earlier + 2 for earlier, later in pairwise(observed))


def summary(**changes: Any) -> RunSummary:
    return RunSummary(planned=95, sent=95, answered=95, prompt_tokens=900, **changes)


def test_what_the_calls_of_all_models_came_to_is_one_observation() -> None:
    seen = list[tuple[str, dict[str, Any]]]()
    step = StepProgress(lambda text, shown: seen.append((text, shown)))
    for number in range(50):
        step.ended(f"m{number:02d}", summary())
    step.ended("finished", RunSummary(planned=95, cached=95))
    step.conclude()
    ((text, shown),) = seen
    assert text == "50 models: 4,750 calls sent, 45,000 tokens"
    rows = shown["by_model"].records
    assert [row.data["model"] for row in rows] == [f"m{number:02d}" for number in range(50)]
    assert (shown["calls_sent"], rows[0].data["calls_sent"]) == (4_750, 95)


def test_a_line_says_what_a_person_wants_to_know() -> None:
    assert line(progress()) == (
        "40 of 200 calls, 4 in flight, 48,100 tokens (1,233/s), $0.1200, 2 retries, 25% from "
        "cache, about 80 s left"
    )
    first = progress(done=0, prompt_tokens=0, completion_tokens=0, cached_tokens=0, retries=0,
                     cost_usd=0.0, seconds_left=None)  # fmt: skip
    assert line(first) == "0 of 200 calls, 4 in flight, 0 tokens, $0.0000"


def test_the_cache_share_is_shown_where_the_server_tells_it() -> None:
    row = {"no_answer": None, "length_tokens": 9, "attempts": 1, "prompt_tokens": 400}
    told = [{**row, "cached_tokens": 100}, {**row, "cached_tokens": 0}]
    assert bin_metadata("c", told, Path("f"), None)["cache_share"] == pytest.approx(0.125)
    silent = [{**row, "cached_tokens": None}] * 2
    assert "cache_share" not in bin_metadata("c", silent, Path("f"), None)


def observations(instance: dg.DagsterInstance, study: Study) -> list[tuple[float, dict[str, Any]]]:
    records = instance.fetch_observations(asset_key(study, "predictions"), limit=100).records
    found = [
        (record.timestamp, {k: v.value for k, v in record.asset_observation.metadata.items()})
        for record in records
        if record.asset_observation is not None
    ]
    return sorted(found, key=lambda pair: pair[0])


def bins_shown(instance: dg.DagsterInstance, study: Study) -> dict[str, dict[str, Any]]:
    """Metadata of the newest materialization of each partition of the predictions."""
    records = instance.fetch_materializations(asset_key(study, "predictions"), limit=100).records
    return {
        str(record.partition_key).partition("|")[2]: {
            k: v.value for k, v in record.asset_materialization.metadata.items()
        }
        for record in reversed(records)
        if record.asset_materialization is not None
    }


def test_while_calls_run_dagster_hears_every_second_how_far_they_are(
    study: Study,
    store: Store,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds, heard = itertools.count(), list[Progress]()
    # So long after the one before is each look at the clock that all that comes is due.
    growing = partialmethod(StepProgress.__init__, clock=lambda: 100 * 1.5 ** next(seconds))
    monkeypatch.setattr(StepProgress, "__init__", growing)
    with unreliable_server(delay_ms=30) as url:
        point_at(tmp_path, url, monkeypatch, more=ONE_BY_ONE)
        done = profile_study(
            study, models=SERVED, store=store, instance=instance,
            on_progress=lambda _, progress: heard.append(progress),
        )  # fmt: skip
    *along, (_, last) = observations(instance, study)
    assert [shown["calls"] for _, shown in along] == [progress.done for progress in heard]
    counts = [progress.done for progress in heard]
    assert counts == sorted(counts)
    assert counts[-1] == 12
    assert all(shown["tokens_per_s"] > 0 for _, shown in along if shown["calls"])
    assert (last["model"], last["calls_sent"], last["campaign"]) == ("served", 12, done.campaign)
    summary = done.calls["served"]
    assert last["tokens"] == summary.prompt_tokens + summary.completion_tokens
    assert last["tokens_per_s"] == pytest.approx(last["tokens"] / summary.seconds)
    shown = bins_shown(instance, study)
    assert set(shown) == {f"served.{bin}" for bin in study.bin_keys}
    for metadata in shown.values():
        assert metadata["tokens_per_s"] > 0
        assert metadata["concurrency"] == 1
        assert (metadata["retries"], metadata["requests_maybe_paid"]) == (0, 0)
    # An observation is no new version of anything.
    assert stale(study.with_models(SERVED), instance) <= {"cost_estimate"}


def test_retries_and_what_was_perhaps_paid_are_on_the_bin_where_they_happened(
    study: Study,
    store: Store,
    run: Run,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = bin_after_bin(study.with_models(SERVED))
    with faulty_server(["cut", "429", "ok"]) as url:
        priced = "    price: {input_usd_per_mtok: 1000, output_usd_per_mtok: 1000}\n"
        point_at(tmp_path, url, monkeypatch, more=ONE_BY_ONE + priced)
        prepare_study(served, store=store)
        run("predictions", of=served, first="served.b00", last="served.b02")
    shown = bins_shown(instance, served)
    assert shown["served.b00"]["retries"] == 2
    assert shown["served.b00"]["requests_maybe_paid"] == 1
    assert shown["served.b00"]["maybe_paid_usd"] > 0
    assert shown["served.b00"]["cost_usd"] > 0
    assert shown["served.b02"]["retries"] == 0
    assert shown["served.b02"]["requests_maybe_paid"] == 0
    (*_, (_, last)) = observations(instance, served)
    assert (last["retries"], last["requests_maybe_paid"]) == (2, 1)
    assert last["maybe_paid_usd"] == pytest.approx(shown["served.b00"]["maybe_paid_usd"])


def test_a_run_that_sends_nothing_observes_nothing(
    measured: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    profile_study(measured, store=store, instance=instance)
    assert observations(instance, measured) == []
    assert all("tokens_per_s" not in shown for shown in bins_shown(instance, measured).values())


def test_the_event_log_grows_with_partitions_alone(
    study: Study,
    store: Store,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = "  m{}: {{engine: reference, model_id: reference-short, revision: r{}}}\n"
    names = [f"m{number}" for number in range(6)]
    more = tmp_path / "more.yaml"
    more.write_text("models:\n" + "".join(entry.format(number, number) for number in range(6)))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(more))
    others = {}
    for models in (names[:1], names):
        of = study.with_models(models)
        profile_study(of, store=store, instance=instance, campaign=None)
        events = [
            entry.dagster_event
            for run in instance.get_runs(dg.RunsFilter(job_name="profile_tiny"), limit=1)
            for entry in instance.all_logs(run.run_id)
        ]
        of_partitions = [e for e in events if e is not None and e.partition is not None]
        assert len(of_partitions) <= 2 * len(models) * len(study.bin_keys)
        others[len(models)] = len(events) - len(of_partitions)
    assert others[6] <= others[1] + 2
    assert others[6] <= 100
