"""`policy` writes the certified cap down, `guard` enforces it by its exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from contextcliff_dagster.analysis import METHOD_VERSION
from contextcliff_dagster.scoring import SCORER_VERSION
from contextcliff_dagster_tests.support.measured_stores import copy_of_few, copy_of_quick
from contextcliff_dagster_tests.support.records.profiles import schema
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call, run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which `quick` is measured."""
    return copy_of_quick(tmp_path_factory)


def test_the_cap_of_the_report_is_the_cap_that_is_enforced(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "safe-context.json"
    of = ("--model", "reference-short")
    ended = call("policy", "quick", *of, "--out", str(file), "--store", str(store))
    assert (ended.code, ended.err) == (0, "")
    policy = json.loads(file.read_text())
    schema("safe-context").validate(policy)
    (cliffs,) = (store / "quick" / "profiles").glob("*/reference-short/cliffs.json")
    cap = json.loads(cliffs.read_text())["safe_cap_tokens"]
    assert policy["safe_cap_tokens"] == cap
    assert call("guard", str(file), "--tokens", str(cap)).code == 0
    above = run("guard", str(file), "--tokens", str(cap + 1))
    assert above.code == 4
    assert len(above.sentences) == 1
    assert f"{cap:,}" in above.err
    assert_one_sentence(call("guard", str(file), "--tokens", "1", "--identity", "x"), "identity")
    assert_one_sentence(
        call("guard", str(file), "--tokens", "1", "--model", "reference-long"), "reference-long"
    )


def test_a_file_is_counted_as_the_study_counts(store: Path, tmp_path: Path) -> None:
    file, text = tmp_path / "p.json", tmp_path / "document.txt"
    call(
        "policy",
        "quick",
        "--model",
        "reference-long",
        "--out",
        str(file),
        "--store",
        str(store),
    )
    cap = json.loads(file.read_text())["safe_cap_tokens"]
    text.write_text("1 " * 20)
    assert call("guard", str(file), "--file", str(text)).code == 0
    text.write_text("1 " * 5 * cap)
    ended = call("guard", str(file), "--file", str(text), "--json")
    assert ended.code == 4
    result = json.loads(ended.out)
    assert not result["within"]
    assert result["tokens"] > cap
    assert_one_sentence(call("guard", str(file), "--file", str(tmp_path / "no.txt")), "no.txt")
    assert_one_sentence(call("guard", str(file)), "tokens")


def test_several_models_give_an_array(store: Path, tmp_path: Path) -> None:
    ended = call("policy", "quick", "--out", "-", "--store", str(store))
    result = json.loads(ended.out)
    schema("safe-context").validate(result)
    assert [policy["model"] for policy in result] == ["reference-short", "reference-long"]
    file = tmp_path / "both.json"
    file.write_text(ended.out)
    assert_one_sentence(call("guard", str(file), "--tokens", "1"), "reference-short", "choose one")
    assert call("guard", str(file), "--tokens", "1", "--model", "reference-long").code == 0


def test_without_a_cap_there_is_no_policy(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    few = copy_of_few(tmp_path_factory)
    file = tmp_path / "none.json"
    ended = call("policy", "quick", "--out", str(file), "--store", str(few))
    assert_one_sentence(ended, "insufficient_data", "reference-short")
    assert not file.exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("policy quick", ["no length profile", "contextcliff profile quick"]),
        ("policy nosuch", ["nosuch", "quick"]),
        ("policy quick --expires soon", ["--expires", "2027-03-31"]),
        ("guard nowhere.json --tokens 5", ["nowhere.json", "contextcliff policy"]),
        ("guard nowhere.json --tokens many", ["--tokens", "many"]),
    ],
)
def test_what_cannot_be_is_refused(line: str, words: list[str]) -> None:
    assert_one_sentence(call(*line.split()), *words)


def made_by_method(store: Path, version: str | None, cap: int) -> None:
    """The profile of reference-short as an earlier version of the program left it."""
    (path,) = (store / "quick" / "profiles").glob("*/reference-short/cliffs.json")
    result = json.loads(path.read_text())
    for name in ("method_version", "scorer_version"):
        result.pop(name)
    changed = {} if version is None else {"method_version": version}
    path.write_text(json.dumps({**result, **changed, "safe_cap_tokens": cap}))


@pytest.mark.parametrize("version", ["method_version", "scorer_version"])
def test_a_cap_of_another_version_stays_until_it_is_confirmed(
    version: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store, file = copy_of_quick(tmp_path_factory), tmp_path / "safe-context.json"

    def export(*more: str) -> tuple[dict[str, object], str]:
        of = ("--model", "reference-short", "--out", str(file), "--store", str(store), *more)
        ended = call("policy", "quick", *of)
        assert ended.code == 0, ended.err
        policy = json.loads(file.read_text())
        schema("safe-context").validate(policy)
        return policy, ended.out

    new, _ = export()
    assert (new["method_version"], new["scorer_version"]) == (METHOD_VERSION, SCORER_VERSION)
    # A file of an older version: no version of a method or of scorers, no note.
    old = {k: v for k, v in new.items() if k not in (version, "note")}
    cap = int(str(new["safe_cap_tokens"]))
    file.write_text(json.dumps({**old, "safe_cap_tokens": cap - 7}))
    for _ in range(2):  # asked twice, kept twice, with one note
        kept, out = export()
        assert kept["safe_cap_tokens"] == cap - 7
        assert f"{cap:,} tokens" in str(kept["note"])
        assert "--confirm" in str(kept["note"])
        assert str(kept["note"]) in out
    assert call("guard", str(file), "--tokens", str(cap)).code == 4
    assert export("--confirm")[0] == new
    # The same method and other data: replaced, as ever.
    file.write_text(json.dumps({**new, "safe_cap_tokens": cap - 7}))
    assert export()[0] == new
    # Another study's file is no earlier cap of this one.
    file.write_text(json.dumps({**old, "study": "other", "safe_cap_tokens": cap - 7}))
    assert export()[0] == new
    # A report of an earlier method: its records are analysed again.
    made_by_method(store, None, 17)
    again, out = export()
    assert again["safe_cap_tokens"] == cap
    assert "a cap of 17 tokens" in str(again["note"])
    assert str(again["note"]) in out
    # Made again, with every later one, the report has the new cap and names the old one.
    for _ in range(2):
        assert str(again["note"]) in call("report", "quick", "--store", str(store)).out
    (page,) = (store / "quick" / "report").glob("2*/report.md")
    assert str(again["note"]) in page.read_text()
    assert export()[0] == again


def test_without_its_records_an_older_cap_is_exported_as_what_it_is(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store, file = copy_of_quick(tmp_path_factory), tmp_path / "safe-context.json"
    made_by_method(store, "1", 17)
    shutil.rmtree(store / "quick" / "eval_records")
    of = ("--model", "reference-short", "--out", str(file), "--store", str(store))
    assert call("policy", "quick", *of).code == 0
    policy = json.loads(file.read_text())
    assert (policy["safe_cap_tokens"], policy["method_version"]) == (17, "1")
