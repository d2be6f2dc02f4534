"""Pairs: what two conditions do to the same answers, and what of a family is believed."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from csv import DictReader
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.atlas.results import Kept, Pair, _in_family, pairs_of
from contextcliff_dagster.atlas.series import series_of
from contextcliff_dagster.atlas.sources import Conditions, Source, load_sources
from contextcliff_dagster.contracts.results import Comparison, from_json
from contextcliff_dagster_tests.atlas.test_series import SOURCES, TABLES, published, rows, source
from contextcliff_dagster_tests.reporting.html.test_other_pages import OLD
from contextcliff_dagster_tests.support.terminal import call

FIRST_OR_LAST = Conditions(name="place", a="first", b=("last",))
FALLS = (np.arange(120) < 60).astype(float)


def of(**given: Any) -> Source:
    return source(pairs=(FIRST_OR_LAST,), **given)


def found(of: Source, *tables: pd.DataFrame, folder: Path) -> list[Pair]:
    series = series_of("s", of, pd.concat(tables))
    return list(pairs_of(series, {}, {"s": of}, Kept(folder)))


def asked(condition: str, count: int = 120, **given: Any) -> pd.DataFrame:
    return rows(count, prompt_variant=condition, **given)


def test_the_same_documents_are_compared_one_by_one(tmp_path: Path) -> None:
    (pair,) = found(of(), asked("first", score=FALLS), asked("last"), folder=tmp_path)
    compared = pair.comparison
    assert compared.paired
    assert (compared.a.name, compared.b.name, compared.n) == ("first", "last", 120)
    assert compared.overall.difference == pytest.approx(0.5)
    long = [bin for bin in compared.bins if bin.edge_low >= 7_000]
    assert len(long) == 5
    assert all(bin.difference == 1 and (bin.p_value or 1) < 0.05 for bin in long)
    assert all(bin.difference == 0 for bin in compared.bins if bin.edge_high <= 7_000)


def test_words_for_a_condition_and_columns_beside_it_change_nothing(tmp_path: Path) -> None:
    named = of(conditions={"first": "asked, then read"}, series=("prompt_variant", "source"))
    tables = [
        asked(condition, source=fork, score=score)
        for fork in ("x", "y")
        for condition, score in (("first", FALLS), ("last", 1.0))
    ]
    pairs = found(named, *tables, folder=tmp_path)
    assert [(p.a.condition, p.b.condition, p.of) for p in pairs] == [
        ("asked, then read, x", "last, x", 2),
        ("asked, then read, y", "last, y", 2),
    ]


def test_models_tasks_and_units_are_never_mixed(tmp_path: Path) -> None:
    for other in ({"model": "n"}, {"task": "u"}, {"length_unit": "words"}):
        assert not found(of(), asked("first"), asked("last", **other), folder=tmp_path)


def test_a_pair_takes_as_many_shared_answers_as_a_verdict(tmp_path: Path) -> None:
    few = asked("last", sample=[f"s{row}" for row in range(70, 190)])
    few["document"] = "d" + few["sample"].str.removeprefix("s")
    assert not found(of(), asked("first"), few, folder=tmp_path), "only 50 are shared"
    one_document = [asked(condition, document="d") for condition in ("first", "last")]
    assert not found(of(), *one_document, folder=tmp_path)


def test_prompts_that_differ_are_compared_as_such(tmp_path: Path) -> None:
    """Rows at the same place of two tables are not the same prompt."""
    made = of(natural=False)
    names = [f"other{row}" for row in range(120)]
    (pair,) = found(made, asked("first"), asked("last", sample=names), folder=tmp_path)
    assert not pair.comparison.paired
    nameless = [asked(condition, sample="") for condition in ("first", "last")]
    (pair,) = found(made, *nameless, folder=tmp_path)
    assert not pair.comparison.paired
    (pair,) = found(made, asked("first"), asked("last"), folder=tmp_path)
    assert pair.comparison.paired


def test_answers_of_other_lengths_have_no_caps_to_compare(tmp_path: Path) -> None:
    short = asked("last", length_tokens=300 + np.arange(120))
    (pair,) = found(of(), asked("first", score=FALLS), short, folder=tmp_path)
    compared = pair.comparison
    assert compared.overall.difference == pytest.approx(0.5)
    assert (compared.caps.a_tokens, compared.midpoint_shift) == (None, None)
    assert compared.loss_shift.a_tokens is None
    assert "Last has texts of 300 to 419 tokens" in compared.warnings[0]


def test_what_the_harness_cut_is_in_no_pair(tmp_path: Path) -> None:
    cut = of(cut=({"tokens": 8_000, "where": "tail"},))
    (pair,) = found(cut, asked("first", score=FALLS), asked("last"), folder=tmp_path)
    assert max(bin.edge_high for bin in pair.comparison.bins) <= 8_001
    assert pair.comparison.n == 71


p_values = st.lists(st.floats(0.0002, 1), min_size=1, max_size=8)


@given(p_values)
def test_a_family_makes_no_test_more_certain(drawn: Sequence[float]) -> None:
    one = from_json(Comparison, json.loads(OLD.read_text("utf-8")))
    family = [
        replace(
            one,
            overall=replace(one.overall, p_value=p, ci_low=0.1, ci_high=0.2, difference=0.15),
            bins=[replace(bin, p_value=p) for bin in one.bins],
        )
        for p in drawn
    ]
    told = list(_in_family(family))
    assert [row.overall.p_value for row in told] == holm(list(drawn))
    for row, before in zip(told, drawn, strict=True):
        overall = row.overall
        assert overall.p_value is not None
        assert overall.p_value >= before
        assert overall.ci_low is not None
        assert (overall.ci_low <= 0) == (overall.p_value > 1 - row.confidence)
        assert all(bin.p_value == min(1, before * len(drawn)) for bin in row.bins)


def test_a_pair_has_its_page_and_its_place_among_the_others(tmp_path: Path) -> None:
    lines = [
        "name: Made up",
        "table: t.csv",
        "citation: Nobody 2026",
        "conditions: {first: question <first>, last: question last}",
        "pairs: [{name: place of the question, a: first, b: [last]}]",
    ]
    (tmp_path / "made.yaml").write_text("\n".join(lines))
    parts = [asked("first", score=FALLS), asked("last")]
    table = pd.concat(parts).assign(length_unit="words")
    table.to_csv(tmp_path / "t.csv", index=False)
    site = tmp_path / "site"
    ended = call("atlas", "build", str(tmp_path), "--output", str(site), "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["pairs"] == 1
    (pair,) = json.loads((site / "atlas.json").read_text())["pairs"]
    assert (pair["means"], pair["paired"], pair["n_documents"]) == ([0.5, 1.0], True, [120, 120])
    page = (site / pair["page"]).read_text()
    shown = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S)
    assert "Question last scores higher than question &lt;first&gt; by 0.50" in shown
    assert "tokens" not in shown
    assert 'aria-label="Mean score of B minus that of A' in shown
    assert re.search(r"significantly so at 7,\d{3} to [\d,]+ words", shown)
    assert "P-values are adjusted for" not in shown, "it is the only pair"
    assert not re.search(r'(?:src|href)="(?:http|//)', page)
    for index in ("index.html", "index.md"):
        text = (site / index).read_text()
        assert pair["page"] in text
        assert "Made up: place of the question" in text
    (tmp_path / "made.yaml").write_text("\n".join(lines[:-1]))
    assert call("atlas", "build", str(tmp_path), "--output", str(site)).code == 0
    assert not (site / pair["page"]).exists()
    assert "What does a condition change" not in (site / "index.html").read_text()


def test_a_family_without_a_second_condition_is_named(tmp_path: Path) -> None:
    (tmp_path / "made.yaml").write_text(
        "{name: M, table: t.csv, citation: C, pairs: [{name: p, a: first, b: []}]}"
    )
    ended = call("atlas", "build", str(tmp_path))
    assert ended.code == 2
    assert "made.yaml, line 1, key 'pairs.0.b'" in ended.err


def test_a_condition_that_the_table_does_not_have_is_named(tmp_path: Path) -> None:
    asked("first").to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "made.yaml").write_text(
        "{name: M, table: t.csv, citation: C, pairs: [{name: p, a: first, b: [lsat]}]}"
    )
    ended = call("atlas", "build", str(tmp_path), "--output", str(tmp_path / "site"))
    assert ended.code == 2
    assert "'lsat'" in ended.err


@published
def test_published_pairs_are_those_of_a_second_reading() -> None:
    """Means over the shared answers, by the table's own rows."""
    known = json.loads((SOURCES.parent / "atlas.json").read_text())["pairs"]
    assert {pair["family"] for pair in known} >= {
        "question before or after the filing",
        "layers skipped",
        "thinking budget",
    }
    for name, one in load_sources(SOURCES).items():
        own = [pair for pair in known if pair["source"] == name and pair["paired"]]
        if not own:
            continue
        with gzip.open(TABLES / one.table, "rt", encoding="utf-8") as file:
            table = list(DictReader(file))
        answers: dict[tuple[str, ...], dict[tuple[str, str], float]] = defaultdict(dict)
        for row in table:
            words = one.conditions.get(row["prompt_variant"], row["prompt_variant"])
            key = (one.aliases.get(row["model"], row["model"]), one.task(row["task"]), words)
            example = row["document"], row["sample"]
            answers[key][example] = float(row["score"] or "nan")
        for pair in own:
            sides = [
                next(
                    found
                    for (model, task, words), found in answers.items()
                    if (model, task) == (pair["model"], pair["task"])
                    and f"{pair[side]}, ".startswith(f"{words}, ")
                )
                for side in ("a", "b")
            ]
            shared = sides[0].keys() & sides[1].keys()
            if pair["n"][0] == len(shared):  # nothing was cut
                assert [fmean(side[key] for key in shared) for side in sides] == pytest.approx(
                    pair["means"]
                )
            assert pair["n"][0] <= len(shared)
