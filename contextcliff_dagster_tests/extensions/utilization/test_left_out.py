"""Without OR-tools the benchmark `constraints` is left out; installed, they bring it back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.contracts import StudyError, install_command
from contextcliff_dagster.experiments.common.code_version import documents_version
from contextcliff_dagster.experiments.common.documents import read_list
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.extensions.utilization.commands import made_study
from contextcliff_dagster.extensions.utilization.documents import DOCUMENTS, documents_dir
from contextcliff_dagster.extensions.utilization.experiment import UTILIZATION
from contextcliff_dagster.extensions.utilization.results import UtilizationResult
from contextcliff_dagster.run.study import prepare_study, profile_study, rebuild_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

SMALL = ("--scale", "1k", "--seeds", "1", "--model", "reader-perfect")
REASON = (
    "The benchmark constraints is left out: OR-tools, which proves its answers, is not installed; "
)
COMMAND = "-m pip install 'contextcliff-dagster[utilization]'` installs it."
Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def removed(
    monkeypatch: pytest.MonkeyPatch, contextcliff_home: Path
) -> Iterator[pytest.MonkeyPatch]:
    """OR-tools cannot be imported until this is undone."""
    monkeypatch.delenv("DAGSTER_HOME")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ortools", None)
        yield patch


def of_all() -> Study:
    return made_study({"scales": "1k", "seeds": 1}, ("reader-perfect",))


def result_of(study: Study) -> UtilizationResult:
    with StudyRun.open(study, Store.default()) as run:
        (result,) = UTILIZATION.read_results(run)
    assert isinstance(result, UtilizationResult)
    return result


def listed(study: Study) -> set[str]:
    kept = read_list(documents_dir(Store.default(), study.name))
    assert kept is not None
    return {row["document_id"] for row in kept.documents}


def test_the_same_study_measures_it_once_installed_and_buys_nothing_again(
    removed: pytest.MonkeyPatch,
) -> None:
    study, store = of_all(), Store.default()
    assert prepare_study(study, keep=False).estimate.calls == 2 * 2 * 4
    assert profile_study(study).calls["reader-perfect"].sent == 2 * 2 * 4
    first, version = result_of(study), documents_version(study, DOCUMENTS)
    assert list(first.benchmarks) == ["warehouse", "network"]
    (warning,) = [one for one in first.warnings if one.startswith(REASON)]
    assert warning == f"{REASON}{install_command('utilization')} installs it."
    before = listed(study)
    files = {path: path.stat().st_mtime_ns for path in store.root.rglob("s000.parquet")}
    assert len(files) == 2
    assert profile_study(study).calls["reader-perfect"].sent == 0

    removed.undo()
    assert of_all().model_dump() == study.model_dump()
    assert documents_version(study, DOCUMENTS) != version, "Dagster shows it stale"
    added = profile_study(study).calls["reader-perfect"]
    assert (added.sent, added.cached) == (2 * 4, 2 * 2 * 4)
    second = result_of(study)
    assert list(second.benchmarks) == ["warehouse", "constraints", "network"]
    assert warning not in second.warnings
    assert before < listed(study)
    assert {path: path.stat().st_mtime_ns for path in files} == files

    removed.setitem(sys.modules, "ortools", None)
    rebuild_report(study)
    assert result_of(study) == second, "what is in the store was proved"


def test_the_command_says_so_once_and_goes_on(capsys: Capsys, tmp_path: Path) -> None:
    assert main(["utilization", *SMALL, "--yes"]) == 0
    out, err = capsys.readouterr()
    printed = " ".join(out.split())
    assert (printed.count(REASON), printed.count(COMMAND)) == (1, 1)
    assert err.count(f"Note: {REASON}") == 1
    assert main(["utilization", *SMALL, "--dry-run"]) == 0
    assert capsys.readouterr().err.count(REASON) == 1
    assert main(["utilization", *SMALL, "export", str(tmp_path / "made")]) == 0
    out, err = capsys.readouterr()
    assert "4 documents with 16 questions" in out
    assert err.count(REASON) == 1


@pytest.mark.parametrize("more", [("--yes",), ("--dry-run",), ("export", "made")])
def test_alone_it_is_an_error_of_one_sentence(more: tuple[str, ...], capsys: Capsys) -> None:
    assert main(["utilization", *SMALL, "--benchmark", "constraint", *more]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert "The benchmark constraints cannot be measured: OR-tools, which proves" in err
    assert COMMAND in err


def test_its_partitions_are_empty_and_those_of_others_are_not() -> None:
    study, store = of_all(), Store.default()
    keys = DOCUMENTS.keys(study)["document"]
    made = [DOCUMENTS.make(study, store, {"document": key, "seed": "s000"}) for key in keys]
    assert [one.values["documents"] for one in made] == [2, 0, 2]
    with pytest.raises(StudyError, match="has no documents network-2k"):
        DOCUMENTS.make(study, store, {"document": "network-2k", "seed": "s000"})
