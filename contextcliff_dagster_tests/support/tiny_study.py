"""A tiny study, really measured: three bins of short ledgers, the shipped reference models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from contextcliff_dagster.defs.asset_specs import group, refusals_raised
from contextcliff_dagster.defs.resources import StoreResource, Watch
from contextcliff_dagster.defs.studies import study_assets
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

Run = Callable[..., dg.ExecuteInProcessResult]


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


@pytest.fixture
def run(study: Study, store: Store, instance: dg.DagsterInstance) -> Run:
    """Materialize assets of the study; ``first`` and ``last`` are partitions as ``model|bin``."""

    def materialize(
        *names: str,
        first: str = "reference-short|b00",
        last: str = "reference-long|b02",
        config: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
        of: Study = study,
        raise_on_error: bool = True,
        tags: Mapping[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        ops = {f"{group(of)}__{op}": {"config": dict(c)} for op, c in (config or {}).items()}
        with refusals_raised():
            return dg.materialize(
                study_assets(of),
                selection=[dg.AssetKey([of.name, name]) for name in names] if names else None,
                resources={"store": StoreResource(root=str(store.root)), "watch": watch or Watch()},
                instance=instance,
                tags={
                    "dagster/asset_partition_range_start": first,
                    "dagster/asset_partition_range_end": last,
                    **(tags or {}),
                },
                run_config={
                    "ops": ops,
                    "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                },
                raise_on_error=raise_on_error,
            )

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
