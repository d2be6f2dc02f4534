"""`card`: the files of a measured model, and the sentence where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from contextcliff_dagster_tests.support.measured_stores import copy_of_quick
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(copy_of_quick(tmp_path_factory))


def test_three_files_of_a_measured_model(store: str, tmp_path: Path) -> None:
    ended = call("card", "reference-short", "--store", store, "--out", str(tmp_path / "card"))
    assert (ended.code, ended.err) == (0, "")
    page = (tmp_path / "card" / "card.md").read_text()
    badge = ElementTree.parse(tmp_path / "card" / "badge.svg").getroot()
    machine = json.loads((tmp_path / "card" / "card.jsonld").read_text())
    (path,) = Path(store).glob("quick/profiles/*/reference-short/cliffs.json")
    result = json.loads(path.read_text())
    assert machine["@graph"][1]["value"] == result["safe_cap_tokens"]
    headline = ended.out.splitlines()[0].partition(": ")[2]
    assert headline.startswith(f"safe to {result['safe_cap_tokens']:,} tokens (lookup, 20")
    assert f"![{headline}](badge.svg)" in page
    assert headline in "".join(badge.itertext())
    for text in (page, json.dumps(machine), ended.out):
        assert store not in text
    printed = call("card", "reference-short", "--store", store, "--out", str(tmp_path), "--json")
    assert json.loads(printed.out) == machine


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nosuch", ["'nosuch'", "quick"]),
        ("reference-short --campaign nosuch", ["'reference-short' in campaign 'nosuch'"]),
        ("reference-short --study reference", ["reference", "no length profile"]),
        ("nosuch --study quick", ["'nosuch'", "quick:reference-short@"]),
        ("quick:nosuch", ["quick:nosuch"]),
    ],
)
def test_what_is_not_measured_is_named(
    store: str, line: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_sentence(call("card", *line.split(), "--store", store), *words)
    assert not list(tmp_path.iterdir())
