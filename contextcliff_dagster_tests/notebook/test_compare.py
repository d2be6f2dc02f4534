"""`compare` from Python: results, files, archives and what the store has, as the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest

from contextcliff_dagster import analyze, compare, profile
from contextcliff_dagster.contracts import ContextCliffError, DataError
from contextcliff_dagster.contracts.results import Comparison, from_json, to_json
from contextcliff_dagster.notebook.profile import StudyResults
from contextcliff_dagster.notebook.results import Result
from contextcliff_dagster.run.study import rebuild_archive
from contextcliff_dagster_tests.support.measured_stores import copy_of_quick
from contextcliff_dagster_tests.support.records.planted_curves import plant, ramp
from contextcliff_dagster_tests.support.records.profiles import schema
from contextcliff_dagster_tests.support.terminal import call

COLUMNS = ["document_id", "example_id", "length_tokens", "score"]


def figures(result: dict[str, Any]) -> dict[str, Any]:
    return {key: result[key] for key in result if key not in ("created_at", "files")}


def analyzed(rows: pd.DataFrame, name: str, *, examples: bool = True, **more: Any) -> Result:
    return analyze(
        rows["length_tokens"],
        rows["score"],
        rows["document_id"],
        examples=rows["example_id"] if examples else None,
        name=name,
        quick=True,
        **more,
    )


@pytest.fixture(scope="module")
def before() -> pd.DataFrame:
    return plant(ramp(1_600), 1)


@pytest.fixture(scope="module")
def after(before: pd.DataFrame) -> pd.DataFrame:
    return before.assign(score=plant(ramp(800), 1)["score"])


def test_results_files_and_the_command_line_agree(
    before: pd.DataFrame, after: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before[COLUMNS].to_csv("before.csv", index=False)
    after[COLUMNS].to_csv("after.csv", index=False)
    ended = call("compare", "before.csv", "after.csv", "--json")
    expected = json.loads(ended.out)
    of_files = compare("before.csv", Path("after.csv"))
    assert figures(of_files.to_dict()) == figures(expected)
    of_results = compare(analyzed(before, "before.csv"), analyzed(after, "after.csv")).to_dict()
    for side in ("a", "b"):  # files call the model after themselves
        of_results[side]["model"] = of_results[side]["name"].removesuffix(".csv")
    assert figures(of_results) == figures(expected)
    schema("comparison").validate(of_files.to_dict())
    mixed = compare(analyzed(before, "mine"), "after.csv")
    assert mixed.comparison.overall.difference == of_files.comparison.overall.difference


def test_a_comparison_shows_draws_and_writes_itself(
    before: pd.DataFrame, after: pd.DataFrame, tmp_path: Path
) -> None:
    from matplotlib import pyplot

    result = compare(analyzed(before, "<i>a"), analyzed(after, "b"), names=("<i>one", "other"))
    assert repr(result) == result.comparison.sentence
    assert "other scores lower than <i>one by" in repr(result)
    page = result._repr_html_()
    assert "&lt;i&gt;one" in page
    assert "<i>" not in page
    assert not pyplot.get_fignums()
    own, (above, below) = result.plot()
    assert below.get_ylabel() == "B minus A"
    assert result.plot((above, below))[0] is own
    pyplot.close(own)
    frame = result.to_frame()
    assert frame["difference"].to_list() == [one.difference for one in result.comparison.bins]
    files = result.save(tmp_path)
    assert files.md.read_text() == result.report()
    written = from_json(Comparison, json.loads(files.json.read_text()))
    assert to_json(written) == result.to_dict()
    picture = tmp_path / "figure.pdf"
    assert result.save(picture) == picture
    assert b"/CIDFontType2" in picture.read_bytes()
    with pytest.raises(DataError, match=r"none of \.png, \.pdf, \.svg; choose"):
        result.save(tmp_path / "table.csv")


def test_at_the_floor_there_is_no_shift_of_a_drop(before: pd.DataFrame) -> None:
    nothing = before.assign(score=[float(i % 40 == 0) for i in range(len(before))])
    result = compare(analyzed(before, "a"), analyzed(nothing, "b"))
    comparison = result.comparison
    assert (comparison.b.verdict, comparison.loss_shift.b_tokens) == ("floor", None)
    assert "no shift of the drop is measured, since b has nothing to lose" in comparison.sentence
    assert "| not measured | not measured | nothing to drop from |" in result.report()


def test_without_examples_documents_are_paired(before: pd.DataFrame, after: pd.DataFrame) -> None:
    pair = [analyzed(rows, name, examples=False) for rows, name in ((before, "a"), (after, "b"))]
    found = compare(*pair).comparison
    named = compare(analyzed(before, "a"), analyzed(after, "b")).comparison
    assert found.paired
    assert found.overall == named.overall
    assert found.warnings == named.warnings
    rows = plant(ramp(1_600), 1, questions=2)
    several = [analyzed(rows, name, examples=False) for name in ("a", "b")]
    averaged = compare(*several).comparison
    assert (averaged.paired, averaged.n, averaged.n_documents) == (True, 100, 100)
    assert any("averaged over their document" in one for one in averaged.warnings)
    strangers = before.assign(document_id="x" + before["document_id"])
    unpaired = compare(pair[0], analyzed(strangers, "b", examples=False)).comparison
    assert (unpaired.paired, unpaired.b.n) == (False, 200)


def test_the_same_name_twice_and_the_same_result_twice(before: pd.DataFrame) -> None:
    one, two = analyzed(before, "m"), analyzed(before, "m", tolerance=0.2, confidence=0.9)
    found = compare(two, one).comparison
    assert (found.a.name, found.b.name) == ("m (A)", "m (B)")
    assert (found.tolerance, found.confidence) == (0.2, 0.9)
    assert not any("same measurement" in note for note in found.warnings)
    assert "A and B are the same measurement." in compare(one, one).comparison.warnings


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_quick(tmp_path_factory)


@pytest.fixture(scope="module")
def profiled(measured: Path) -> StudyResults:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTEXTCLIFF_HOME", str(measured))
        return profile("quick")


@pytest.fixture
def quick(profiled: StudyResults, measured: Path, monkeypatch: pytest.MonkeyPatch) -> StudyResults:
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(measured))
    return profiled


def test_a_measured_study_is_compared_as_on_the_command_line(
    quick: StudyResults, measured: Path, tmp_path: Path
) -> None:
    assert list(quick) == ["reference-short", "reference-long"]
    assert not any(summary.sent for summary in quick.calls.values())
    line = ("compare", *quick, "--study", "quick", "--out", str(tmp_path), "--json")
    expected = figures(json.loads(call(*line, "--store", str(measured)).out))
    short, long = quick.values()
    assert figures(compare(short, long).to_dict()) == expected
    names = [f"quick:{name}@{quick.campaign}" for name in quick]
    assert figures(compare(*names).to_dict()) == expected
    paths = [
        measured / "quick" / "profiles" / quick.campaign / name / "cliffs.json" for name in quick
    ]
    assert figures(compare(*paths).to_dict()) == expected
    with pytest.raises(DataError, match="One model is needed, but there are 2"):
        compare(quick, short)


def test_of_a_kv_policy_the_whole_cache_is_a_in_results_too(quick: StudyResults) -> None:
    one = quick["reference-short"]
    whole, pressed = (
        replace(one, cliffs=replace(one.cliffs, model=f"reference-short{variant}"))
        for variant in ("", "+q4_0")
    )
    comparison = compare(pressed, whole).comparison
    assert (comparison.a.model, comparison.b.model) == ("reference-short", "reference-short+q4_0")
    assert comparison.kv is not None
    assert (comparison.kv.policy, comparison.kv.budget) == ("q4_0", 1.0)


def test_an_archive_is_compared_without_entering_the_store(
    quick: StudyResults, measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "quick.zip"
    assert call("export", "quick", str(archive), "--store", str(measured)).code == 0
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "store"))
    address = "contextcliff_dagster.notebook.compare.rebuild_archive"
    with mock.patch(address, wraps=rebuild_archive) as rebuilt:
        found = compare(f"{archive}:reference-short", f"{archive}:reference-long").comparison
    rebuilt.assert_called_once()
    assert found.overall == compare(*quick.values()).comparison.overall
    assert not (tmp_path / "store").exists()
    with pytest.raises(DataError, match=r"several models.*; choose one as .*quick\.zip:reference"):
        compare(archive, archive)
    with pytest.raises(DataError, match="no model 'x'"):
        compare(f"{archive}:x", archive)
    monkeypatch.setenv("CONTEXTCLIFF_LEDGER", "postgresql://nowhere/x")
    with pytest.raises(DataError, match="contextcliff import"):
        compare(archive, archive)


@pytest.mark.parametrize(
    ("side", "words"),
    [
        (5, "type int"),
        (None, "type NoneType"),
        ("", "type str"),
        ("nosuch.csv", "no file nosuch.csv"),
        (Path("nosuch.csv"), "no file nosuch.csv"),
        ("quick:gpt", "quick"),
        ("result.json", "a result without its answers"),
        ("broken.zip", "broken.zip"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(
    side: Any, words: str, before: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = analyzed(before, "a")
    Path("result.json").write_text(json.dumps(one.to_dict()))
    Path("broken.zip").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ContextCliffError, match=words):
        compare(one, side)
