"""`profile` from Python: the assets of the command line, in the same store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster import profile
from contextcliff_dagster.contracts import BudgetError, ContextCliffError, DataError
from contextcliff_dagster.studies import find_study
from contextcliff_dagster_tests.support.measured_stores import copy_of_quick
from contextcliff_dagster_tests.support.terminal import call


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    measured = copy_of_quick(tmp_path_factory)
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(measured))
    return measured


def test_a_study_gives_a_result_for_each_model(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = profile(find_study("quick"), model=["reference-long"])
    (name,) = found
    assert name == "reference-long"
    assert not any(summary.sent for summary in found.calls.values())
    path = store / "quick" / "profiles" / found.campaign / name / "cliffs.json"
    assert found[name].to_dict() == json.loads(path.read_text())
    assert found[name].bins
    assert len(found[name].records) == sum(one.n for one in found[name].cliffs.bins)
    text = found.methods()
    assert "Documents were sent whole, at their natural length" in text
    assert f"at most {found.study.recipe().max_output_tokens} tokens" in text
    assert "at temperature 0 (" in text
    assert text.partition(". ")[2] in found.files.md.read_text("utf-8")  # of all models there
    assert found.files.md.is_relative_to(store)
    assert f"safe up to {found[name].safe_cap_tokens:,} tokens" in repr(found)
    assert "<img" in found._repr_html_()
    assert capsys.readouterr().out == ""


def test_a_file_of_questions_is_measured_and_found_again(tmp_path: Path) -> None:
    rows = [
        {
            "document": f"The number of box {n} is {n + 400}. " + "It is a box. " * (n % 40),
            "question": f"What is the number of box {n}?",
            "answers": [str(n + 400)],
        }
        for n in range(40)
    ]
    data = tmp_path / "questions.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    seen: list[str] = []
    found = profile(
        data, "reference-short", samples_per_bin=2, on_progress=lambda name, _: seen.append(name)
    )
    assert set(seen) == {"reference-short"}
    assert found.study.name.startswith("data-questions-")
    again = profile(found.study.name, samples_per_bin=2)
    assert again["reference-short"].cliffs.n == found["reference-short"].cliffs.n
    assert call("report", found.study.name).code == 0


@pytest.mark.parametrize(
    ("study", "more", "words"),
    [
        ("nosuch", {}, "no study and no file 'nosuch'; there are the studies"),
        ("", {}, "study is ''"),
        (None, {}, "study is None"),
        (5, {}, "study is 5"),
        ("here.jsonl", {}, "needs a model"),
        ("here.jsonl", {"model": "nosuch"}, "nosuch"),
        ("quick", {"model": "nosuch"}, "nosuch"),
        ("quick", {"model": [None]}, "model is None"),
        ("quick", {"questions": "q.csv"}, "--data"),
        ("nosuch.yaml", {}, "nosuch.yaml"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(
    study: Any,
    more: dict[str, Any],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here.jsonl").write_text('{"document": "a", "question": "b", "answers": ["a"]}\n')
    with pytest.raises(ContextCliffError, match=words) as raised:
        profile(study, **more)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("more", [{"questions": "recall"}, {"prompt": "p"}, {"replicates": 2}])
def test_a_study_object_has_its_own(more: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=f"{next(iter(more))} is for data and studies by name"):
        profile(find_study("quick"), **more)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"samples_per_bin": 1.5}, "samples_per_bin is 1.5; give a whole number"),
        ({"questions_per_document": True}, "questions_per_document is True"),
        ({"replicates": "2"}, "replicates is '2'"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"budget_usd": "much"}, "budget_usd is 'much'; give an amount"),
        ({"budget_usd": -1}, "budget_usd is -1"),
    ],
)
def test_a_number_of_another_kind_is_refused_before_anything_is_read(
    more: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        profile("quick", **more)


def test_another_tolerance_needs_no_call_and_answers_are_a_table(store: Path) -> None:
    found = profile("quick", "reference-short", tolerance=0.1, score="f1")
    assert not any(summary.sent for summary in found.calls.values())
    (result,) = found.values()
    assert (result.cliffs.tolerance, result.cliffs.score.name) == (0.1, "f1")
    answers = found.answers()
    assert len(answers) == len(result.records)
    assert set(answers["model"]) == {"reference-short"}
    assert answers["answer"].notna().all()
    last = found.answers(bins=["b04"])
    assert set(last["bin"]) == {"b04"}
    assert 0 < len(last) < len(answers)


def test_costs_are_agreed_on_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = (
        "models:\n  far: {engine: openai, model_id: m, base_url: 'https://api.example.org/v1'%s}\n"
    )
    monkeypatch.chdir(tmp_path)
    study = find_study("quick").with_samples(2)
    Path("models.yaml").write_text(models % "")
    with pytest.raises(BudgetError, match=r"price of far is not known.*yes=True"):
        profile(study, "far")
    Path("models.yaml").write_text(
        models % ", price: {input_usd_per_mtok: 9000, output_usd_per_mtok: 9000}"
    )
    with pytest.raises(BudgetError, match=r"This would cost about \$.*budget_usd="):
        profile(study, "far")
