"""The engine of docs/inference.md, as printed there, registered by an entry point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.cli.commands.doctor import _engines_of_others
from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.inference.engines.base import open_engine
from contextcliff_dagster.inference.ledger.campaigns import recorded_identity
from contextcliff_dagster.inference.models.engine_table import engine_spec
from contextcliff_dagster.inference.models.models_file import get_model, load_models
from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import load_study
from contextcliff_dagster_tests.support.own_package import block, installed_package

ON_THE_PAGE = ("inference.md", "An engine of your own")
MODELS = "models:\n  finder: {engine: search, window_tokens: 80}\n"
STUDY = """\
name: found
corpus: {kind: reference, task: lookup, documents: 60, max_tokens: 200}
tokenizer: reference
bins: {count: 3}
sampling: {samples_per_bin: 4, pilot_per_bin: 2}
prompt: {max_output_tokens: 12}
models: [finder]
scoring: {primary: contained}
analysis: {resamples: 100}
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's engine and its entry point, two that are none, and a model that it runs."""
    path = tmp_path / "models.yaml"
    path.write_text(MODELS, encoding="utf-8")
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(path))
    others = ("broken = nowhere:X", "odd = my_package.search:SearchEngine", "openai = nowhere:Y")
    with installed_package(tmp_path, "search", *ON_THE_PAGE, *others):
        yield path


@pytest.mark.usefixtures("models")
def test_it_measures_a_study_from_corpus_to_report(
    tmp_path: Path, contextcliff_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    path = tmp_path / "found.yaml"
    path.write_text(STUDY, encoding="utf-8")
    study = load_study(path)
    first = profile_study(study)
    summary = first.calls["finder"]
    assert (summary.answered, summary.context_overflow) == (summary.sent, 12 - summary.sent)
    assert summary.answered > summary.context_overflow > 0, "longer than its window: not sent"
    assert first.cliffs[0].n == summary.answered
    assert first.cliffs[0].baseline.mean == 1.0
    assert "finder" in first.report.md.read_text(encoding="utf-8")
    assert profile_study(study).calls["finder"].sent == 0
    with open_ledger(Store(contextcliff_home)) as ledger:
        identity = recorded_identity(ledger, "found", first.campaign, "finder")
    assert identity is not None
    assert identity.fields == {"engine": "search", "version": 1, "window_tokens": 80}


def test_models_yaml_knows_what_it_takes(models: Path) -> None:
    assert get_model("finder").gpus_wanted == 0
    for line, says in (
        ("engine: search, weights: w", "engine 'search' takes no `weights`; leave it out"),
        ("engine: search, base_url: http://x/v1", "'search' runs in process and takes no `base_u"),
        ("engine: serach", r"'models.m.engine': should be 'reference', .* or 'search', not 'sera"),
        ("engine: broken", r"'models.m.engine': Engine 'broken' \(nowhere:X\) cannot be imported"),
        ("engine: odd", r"Engine 'odd' \(my_package.search:SearchEngine\) is not an EngineSpec"),
    ):
        models.write_text(f"models:\n  m: {{{line}}}\n")
        with pytest.raises(StudyError, match=says) as caught:
            load_models()
        assert f"{models}, line 2" in str(caught.value)


@pytest.mark.usefixtures("models")
def test_a_built_in_engine_cannot_be_replaced_and_doctor_names_the_faults() -> None:
    assert engine_spec("openai").remote
    told = {finding.what: (finding.state, finding.text) for finding in _engines_of_others()}
    assert told["engine search"] == ("ok", "my_package.search:SEARCH")
    assert told["engine broken"][0] == told["engine odd"][0] == "fault"
    assert "hidden by the built-in engine" in told["engine openai"][1]
    with pytest.raises(
        EngineError, match=r"Unknown engine 'steam'; choose one of reference, .*, search\."
    ):
        engine_spec("steam")


@pytest.mark.usefixtures("models")
def test_what_it_leaves_out_is_a_sentence() -> None:
    import asyncio

    with pytest.raises(EngineError, match="engine 'search' has no embeddings"):
        asyncio.run(open_engine(get_model("finder")).embed(["a"]))


def test_it_is_no_longer_than_promised() -> None:
    assert len(block(*ON_THE_PAGE, "python").splitlines()) <= 40
