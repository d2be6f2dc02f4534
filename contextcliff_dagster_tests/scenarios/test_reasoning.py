"""A model that reasons, over HTTP and through the whole chain: what it thought is counted apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.scenarios.test_truncation import point_at
from contextcliff_dagster_tests.support.records.calls import faulty_server

pytestmark = pytest.mark.usefixtures("unrecorded")

CALLS = 12


def test_tokens_of_reasoning_are_summed_in_the_metrics(
    study: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty_server(["reasoning_told"] * CALLS) as url:
        point_at(tmp_path, url, monkeypatch, more="    concurrency: 1\n")
        done = profile_study(study, models=["served"], store=store)
    path = store.profile_dir(study.name, done.campaign, "served") / "metrics.json"
    metrics = json.loads(path.read_text(encoding="utf-8"))
    # The server tells 7 tokens of each answer, 5 of them spent on reasoning.
    assert metrics["totals"]["completion_tokens"] == 7 * CALLS
    assert metrics["totals"]["reasoning_tokens"] == 5 * CALLS
    assert sum(row["reasoning_tokens"] for row in metrics["bins"]) == 5 * CALLS
