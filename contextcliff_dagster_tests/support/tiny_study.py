"""A tiny study, really measured: three bins of short ledgers, the shipped reference models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from contextcliff_dagster.defs.asset_specs import (
    PREPARATION,
    asset_key,
    refusals_raised,
    run_config,
)
from contextcliff_dagster.defs.partitions import add_campaign
from contextcliff_dagster.defs.resources import ALERTS, Watch, run_resources
from contextcliff_dagster.defs.studies import study_assets
from contextcliff_dagster.experiments.alert_channels import Senders
from contextcliff_dagster.experiments.common.study_run import campaign_of, open_ledger
from contextcliff_dagster.experiments.lookup import judged_assets, partitioned
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.run.study import prepare_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study

TINY = """\
name: tiny
description: Three bins of short ledgers.
corpus: {kind: reference, task: lookup, documents: 60, max_tokens: 200}
tokenizer: reference
bins: {count: 3}
sampling: {samples_per_bin: 4, pilot_per_bin: 2}
prompt: {max_output_tokens: 12}
models: [reference-short, reference-long]
analysis: {resamples: 100}
"""

Run = Callable[..., "Ran"]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    path = tmp_path / "studies" / "tiny.yaml"
    path.parent.mkdir()
    path.write_text(TINY, encoding="utf-8")
    return load_study(path)


def bin_after_bin(study: Study) -> Study:
    """The study with each bin finished before the next is begun."""
    return study.model_copy(update={"calls": study.calls.model_copy(update={"order": "by_length"})})


@pytest.fixture
def store(contextcliff_home: Path) -> Store:
    return Store(contextcliff_home)


@pytest.fixture
def unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are not recorded: without DAGSTER_HOME the instance is ephemeral, and quick."""
    monkeypatch.delenv("DAGSTER_HOME")


@pytest.fixture
def instance() -> dg.DagsterInstance:
    return dg.DagsterInstance.ephemeral()


@dataclass(frozen=True)
class Ran:
    """What the runs of one request did, the measuring one before the judging one."""

    runs: Sequence[dg.ExecuteInProcessResult]

    @property
    def success(self) -> bool:
        return all(run.success for run in self.runs)

    @property
    def run_id(self) -> str:
        return self.runs[-1].run_id

    @property
    def all_events(self) -> list[dg.DagsterEvent]:
        return [event for run in self.runs for event in run.all_events]

    def get_asset_materialization_events(self) -> list[dg.DagsterEvent]:
        return [event for run in self.runs for event in run.get_asset_materialization_events()]

    def get_asset_check_evaluations(self) -> list[dg.AssetCheckEvaluation]:
        return [check for run in self.runs for check in run.get_asset_check_evaluations()]


@pytest.fixture
def run(study: Study, store: Store, instance: dg.DagsterInstance) -> Run:
    """Materialize assets of the study; ``first`` and ``last`` are cells, ``campaign`` the current
    one unless named; a run that is not ``ranged`` has its partitions from ``tags``, if any."""

    def materialize(
        *names: str,
        first: str = "reference-short.b00",
        last: str = "reference-long.b02",
        campaign: str | None = None,
        ranged: bool = True,
        config: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
        senders: Senders | None = None,
        of: Study = study,
        raise_on_error: bool = True,
        tags: Mapping[str, str] | None = None,
    ) -> Ran:
        with open_ledger(store) as ledger:
            campaign = campaign or campaign_of(ledger, of)
        assets = study_assets(of)
        wanted = names or [key.path[-1] for asset in assets for key in asset.keys]
        if {*wanted} - {*PREPARATION, "cost_estimate"}:
            add_campaign(instance, of, campaign)
        judged = {*(name for e in partitioned(of) for name in judged_assets(e)), "report"}
        measured = {
            "dagster/asset_partition_range_start": f"{campaign}|{first}",
            "dagster/asset_partition_range_end": f"{campaign}|{last}",
        }
        measured = measured if ranged else {}
        runs = []
        for chosen, partitions in (
            ([name for name in wanted if name not in judged], measured),
            ([name for name in wanted if name in judged], {"dagster/partition": campaign}),
        ):
            if not chosen:
                continue
            settings = run_config(of, {op: c for op, c in (config or {}).items() if op in chosen})
            settings["loggers"] = {"console": {"config": {"log_level": "CRITICAL"}}}
            with refusals_raised():
                done = dg.materialize(
                    assets,
                    selection=[asset_key(of, name) for name in chosen],
                    resources={**run_resources(store.root, watch), ALERTS: senders or {}},
                    instance=instance,
                    tags={**partitions, **(tags or {})},
                    run_config=settings,
                    raise_on_error=raise_on_error,
                )
            runs.append(done)
            if not done.success:
                break
        return Ran(runs)

    return materialize


def prompts_of(study: Study, bin: str) -> dict[str, Prompt]:
    """The prompts of a bin's examples by their hashes, of the frozen manifest."""
    manifest = prepare_study(study).manifest
    prompts = [
        study.recipe().render(
            manifest.document_text(planned.example.document_id), planned.example.question
        )
        for planned in manifest.planned(bin, study.sampling.samples_per_bin)
    ]
    return {prompt.hash: prompt for prompt in prompts}


@pytest.fixture
def prepared(run: Run) -> None:
    """The manifest is frozen."""
    run("raw_corpus", "length_map", "distribution_audit", "manifest")
