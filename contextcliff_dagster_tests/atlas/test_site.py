"""The atlas: what is built from tables, what is kept, and what its pages say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from contextcliff_dagster.atlas import results
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.reporting import caps_site
from contextcliff_dagster_tests.atlas.test_series import SOURCES, TABLES, published, rows
from contextcliff_dagster_tests.support.terminal import call

SOURCE = """
name: Made up
table: t.csv
citation: Nobody 2026, nowhere
aliases: {m-0613: m}
conditions: {first: question first, last: question last}
cut: [{tokens: 14000, where: tail}]
traps: [Mind the <gap> & the rest.]
"""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """One model in two conditions, one of which falls, and another with few answers."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "made.yaml").write_text(SOURCE)
    falls = (np.arange(120) < 60).astype(float)
    parts = [
        rows(120, prompt_variant="first", score=falls),
        rows(120, model="m-0613", prompt_variant="last", length_unit="words"),
        rows(20, model="few<b>"),
    ]
    text = "".join(part.to_csv(index=False, header=not i) for i, part in enumerate(parts))
    (folder / "t.csv").write_text(text)
    return folder


def build(tables: Path, *more: str) -> dict[str, object]:
    ended = call("atlas", "build", str(tables), "--json", *more)
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out))


def test_a_site_has_a_page_for_each_series_and_says_what_is_missing(
    tables: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    said = build(tables, "--output", str(site))
    assert (said["series"], said["models"], said["too_few"]) == (2, 1, 1)
    machine = json.loads((site / "atlas.json").read_text())
    first, last = sorted(machine["series"], key=lambda one: str(one["condition"]))
    assert (first["verdict"], first["unit"], last["unit"]) == ("cliff", "tokens_model", "words")
    assert first["safe_cap"] < 7_000 <= first["midpoint"][2]
    assert (last["verdict"], last["read_to"]) == ("stable", 7_000)
    assert last["safe_cap"] <= last["lengths"][1] <= 7_000
    index = (site / "index.html").read_text()
    assert "few&lt;b&gt;" in index
    assert "20 answers on 20 documents; it takes 60 on 20." in index
    for one in machine["series"]:
        page = (site / one["page"]).read_text()
        assert "Mind the &lt;gap&gt; &amp; the rest." in page
        assert "Nobody 2026, nowhere. Licence: none found." in page
        assert not re.search(r'(?:src|href)="(?:http(?!s://nowhere)|//)', page)
    words = (site / last["page"]).read_text()
    assert "Nothing was read beyond 7,000 words" in words
    assert "tokens" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", words, flags=re.S)


def test_what_did_not_change_is_not_analysed_again(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    build(tables, "--output", str(site))
    before = {file: file.read_bytes() for file in site.rglob("*") if file.is_file()}
    analysed = []
    known = results._analysed
    monkeypatch.setattr(results, "_analysed", lambda one: (analysed.append(one), known(one))[1])
    build(tables, "--output", str(site))
    assert analysed == []
    assert {file: file.read_bytes() for file in site.rglob("*") if file.is_file()} == before
    table = tables / "t.csv"
    table.write_text(table.read_text().replace("m,t,s3,", "m,t,s3b,", 1))
    build(tables, "--output", str(site))
    assert [one.condition for one in analysed] == ["question first"]
    assert len(list((site / ".results").iterdir())) == 2, "results of other tables are let go"


def test_a_kept_result_that_is_damaged_is_made_again(tables: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    build(tables, "--output", str(site))
    machine = (site / "atlas.json").read_bytes()
    for file in (site / ".results").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    build(tables, "--output", str(site))
    assert (site / "atlas.json").read_bytes() == machine


def test_a_page_that_is_no_atlas_is_not_written_over(tables: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("my own")
    ended = call("atlas", "build", str(tables), "--output", str(tmp_path))
    assert ended.code == 2
    assert "holds a page that is not from the atlas" in ended.err
    assert (tmp_path / "index.html").read_text() == "my own"


def test_a_build_that_was_cut_short_is_made_again(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    written = caps_site.write_atomic

    def full(file: Path, content: bytes) -> None:
        if file.name == "index.md":
            raise StoreError("No space is left.")
        written(file, content)

    with monkeypatch.context() as patch:
        patch.setattr(caps_site, "write_atomic", full)
        assert call("atlas", "build", str(tables), "--output", str(site)).code != 0
    assert (site / "atlas.json").exists()
    build(tables, "--output", str(site))
    assert "cliff" in (site / "index.html").read_text()


def test_tables_without_enough_answers_make_no_site(tables: Path, tmp_path: Path) -> None:
    (tables / "t.csv").write_text(rows(20).to_csv(index=False))
    ended = call("atlas", "build", str(tables), "--output", str(tmp_path / "site"))
    assert ended.code == 2
    assert "enough answers for a verdict" in ended.err


@published
def test_the_atlas_of_the_project_is_what_the_tables_give(tmp_path: Path) -> None:
    """Whoever has the tables gets the same figures; the tables are not part of the project."""
    build(SOURCES, "--tables", str(TABLES), "--output", str(tmp_path / "site"))
    kept = SOURCES.parent
    assert (tmp_path / "site" / "atlas.json").read_bytes() == (kept / "atlas.json").read_bytes()
    largest = max(file.stat().st_size for file in kept.rglob("*.html"))
    assert largest <= 3_000_000
