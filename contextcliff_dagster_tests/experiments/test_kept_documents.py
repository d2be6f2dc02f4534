"""An experiment that makes documents and keeps them: assets, runs, staleness, an estimate before.

The experiment is `support.sizes_experiment` with its ledgers in files, and a source with a recipe
of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.defs.resources import run_resources
from contextcliff_dagster.defs.studies import study_assets, study_jobs
from contextcliff_dagster.experiments.common.documents import (
    GeneratedSamples,
    KeptDocuments,
    Made,
    MadeDocuments,
)
from contextcliff_dagster.experiments.common.experiment import Source
from contextcliff_dagster.experiments.common.measurement import spread_calls
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.reference.warehouse_documents import generate_ledger
from contextcliff_dagster.run.study import prepare_study, profile_study, rebuild_report
from contextcliff_dagster.store import Store, write_json
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster.studies.experiment_table import EXPERIMENTS
from contextcliff_dagster_tests.support.sizes_experiment import Sizes
from contextcliff_dagster_tests.support.staleness import stale

STUDY = """\
name: kept
prompt: {max_output_tokens: 12}
models: [reference-short]
kept: [6, 20]
"""
RECIPE = Recipe(template="{document}\n\n{question}", max_output_tokens=12)


class Files(KeptDocuments):
    def __init__(self) -> None:
        self.made: list[Path] = []

    def _file(self, study: Study, store: Store, size: int, seed: int) -> Path:
        return store.study_dir(study.name) / "kept_documents" / f"{size}-{seed}.json"

    def keys(self, study: Study) -> Mapping[str, Sequence[str]]:
        return {"document": [f"r{s:03d}" for s in study.sections["kept"]], "seed": ["s0", "s1"]}

    def make(self, study: Study, store: Store, partition: Mapping[str, str]) -> MadeDocuments:
        size, seed = int(partition["document"][1:]), int(partition["seed"][1:])
        path = self._file(study, store, size, seed)
        if not path.exists():
            made = generate_ledger(seed, size)
            question = made.questions[0]
            write_json(path, [made.text, question.question, list(question.answers)])
            self.made.append(path)
        return MadeDocuments(hashlib.sha256(path.read_bytes()).hexdigest(), {"records": size})

    def write(self, study: Study, store: Store) -> None:
        keys = self.keys(study)
        parts = [{"document": d, "seed": s} for d in keys["document"] for s in keys["seed"]]
        hashes = [self.make(study, store, part).sha256 for part in parts]
        write_json(store.study_dir(study.name) / "kept_documents" / "manifest.json", hashes)

    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        path = store.study_dir(study.name) / "kept_documents" / "manifest.json"
        if not path.exists():
            return None
        hashes = json.loads(path.read_bytes())
        if len(hashes) != 2 * len(study.sections["kept"]):
            return None
        return MadeDocuments(hashlib.sha256(path.read_bytes()).hexdigest(), {"documents": 4})

    def depends_on(self, study: Study) -> Mapping[str, Any]:
        return {"sizes": list(study.sections["kept"])}


class Kept(Sizes):
    name = "kept"
    documents = Files()

    def cells(self, study: Study) -> tuple[str, ...]:
        return tuple(f"r{size:03d}" for size in study.sections["kept"])

    def sources(self, run: StudyRun) -> Sequence[Source]:
        self.documents.freeze(run.study, run.store)

        def make(cell: str) -> Any:
            for seed in range(2):
                path = self.documents._file(run.study, run.store, int(cell[1:]), seed)
                text, question, answers = json.loads(path.read_bytes())
                yield Made(text, question, tuple(answers))

        return [Source(GeneratedSamples(make, len), recipe=RECIPE)]

    def expected_sources(self, run: StudyRun) -> Sequence[Source]:
        if self.documents.frozen(run.study, run.store):
            return super().expected_sources(run)

        def guess(cell: str) -> Any:
            for seed in range(2):
                yield Made(f"{seed}" * 50 * int(cell[1:]), "What?", ("1",))

        return [Source(GeneratedSamples(guess, len), recipe=RECIPE)]


KEPT = Kept()


@pytest.fixture(autouse=True)
def _the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.setitem(EXPERIMENTS, "kept", f"{__name__}:KEPT")
    monkeypatch.setattr(KEPT.documents, "made", [])


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "kept.yaml").write_text(STUDY, encoding="utf-8")
    return load_study(tmp_path / "kept.yaml")


def test_documents_and_their_list_are_assets_before_the_predictions(study: Study) -> None:
    by_name = {key.path[-1]: asset for asset in study_assets(study) for key in asset.keys}
    partitions = by_name["kept_documents"].partitions_def
    assert partitions is not None
    assert partitions.get_partition_keys() == ["r006|s0", "r006|s1", "r020|s0", "r020|s1"]
    graph = dg.Definitions(
        assets=study_assets(study), resources=run_resources()
    ).resolve_asset_graph()

    def parents(name: str) -> set[str]:
        return {key.path[-1] for key in graph.get(dg.AssetKey(["kept", name])).parent_keys}

    assert parents("kept_manifest") == {"kept_documents"}
    assert parents("kept_predictions") == {"kept_manifest"}
    assert parents("cost_estimate") == {"kept_manifest"}
    assert [job.name for job in study_jobs(study)] == ["kept_kept", "kept_documents_kept"]


def test_they_are_made_once_and_reused(study: Study, contextcliff_home: Path) -> None:
    assert prepare_study(study).estimate.calls == 4
    assert len(KEPT.documents.made) == 4
    done = profile_study(study)
    assert done.calls["reference-short"].sent == 4
    assert len(KEPT.documents.made) == 4
    KEPT.documents.made[0].unlink()
    (contextcliff_home / "kept" / "kept_documents" / "manifest.json").unlink()
    assert profile_study(study).calls["reference-short"].sent == 0
    assert len(KEPT.documents.made) == 5, "the missing one is made again, as it was"
    assert rebuild_report(study).report.md.read_text("utf-8") == done.report.md.read_text("utf-8")


def test_an_estimate_alone_makes_none(study: Study, contextcliff_home: Path) -> None:
    estimate = prepare_study(study, keep=False).estimate
    assert estimate.calls == 4
    assert [
        line.prompt_tokens > 50 * size * 2
        for line, size in zip(estimate.lines, (6, 20), strict=True)
    ]
    assert KEPT.documents.made == []
    assert not (contextcliff_home / "kept").exists()


def test_a_source_asks_by_its_own_recipe(study: Study) -> None:
    profile_study(study)
    with StudyRun.open(study, Store.default()) as run:
        (call, *_) = spread_calls(run, [KEPT], 1)
        assert call.recipe == RECIPE
        hashes = set(KEPT.read_record_table(run)["recipe_hash"].to_pylist())
    assert hashes == {RECIPE.hash} != {study.recipe().hash}


def test_what_is_made_is_fresh_until_what_decides_it_is_edited(
    study: Study, contextcliff_home: Path
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        profile_study(study, instance=instance)
        assert stale(study, instance) == set()
        prepare_study(study, instance=instance)
        assert stale(study, instance) == set()
        edited = stale(study.changed(kept=(6, 21)), instance)
    assert {"kept_manifest", "r006|s0", "reference-short.r006"} <= edited


def test_the_job_of_a_schedule_makes_missing_documents_itself(
    study: Study, contextcliff_home: Path
) -> None:
    study = study.changed(schedule={"cron": "0 3 * * 1"})
    definitions = dg.Definitions(
        assets=study_assets(study),
        jobs=study_jobs(study),
        resources=run_resources(contextcliff_home),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions.resolve_job_def("measure_kept_kept")
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        assert job.execute_in_process(instance=instance, run_config=quiet).success
    rebuild_report(study)
    assert len(KEPT.documents.made) == 4
    report = contextcliff_home / "kept" / "report" / "latest" / "report.md"
    assert "Right answers by size" in report.read_text("utf-8")


def test_a_fault_of_making_is_one_sentence(
    study: Study,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> MadeDocuments:
        raise StudyError("Scale 3 is out of reach; take 6.")

    monkeypatch.setattr(Files, "make", refuse)
    assert main(["profile", str(tmp_path / "kept.yaml")]) == 2
    assert "Scale 3 is out of reach" in capsys.readouterr().err
