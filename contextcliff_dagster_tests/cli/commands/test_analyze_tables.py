"""`contextcliff analyze --aggregated`: tables of means, worked examples and published curves."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.files.score_tables import (
    conforming,
    means,
    without_file,
    write,
)
from contextcliff_dagster_tests.support.paths import DOCS
from contextcliff_dagster_tests.support.terminal import call

PAGE = DOCS / "analyze.md"


def analyzed(path: Path, *options: str) -> dict[str, Any]:
    """The result of one table."""
    ended = call("analyze", "--quick", "--aggregated", str(path), "--json", "-", *options)
    assert ended.code == 0, ended.err
    result: dict[str, Any] = json.loads(ended.out)
    return result


def test_the_worked_examples_of_the_page_are_right(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    table, with_base = re.findall(r"```csv\n(.*?)```", text, re.S)
    claims = re.findall(r"^\| `(\w+)` \| .* \| ([\d.]+) \| ([\d,]+) \| ([\d,]+) \|$", text, re.M)
    assert {name for name, *_ in claims} == {"ruler_85_6", "nolima_0_85", "mecw_5pct", "drop_30pct"}
    for csv, column in ((table, 0), (with_base, 1)):
        (tmp_path / "t.csv").write_text(csv, encoding="utf-8")
        definitions = analyzed(tmp_path / "t.csv", "--scale", "100")["definitions"]
        for name, threshold, *tokens in claims:
            assert definitions[name]["tokens"] == int(tokens[column].replace(",", "")), name
            if column == 0:
                assert definitions[name]["threshold"] == pytest.approx(float(threshold))
    (tmp_path / "t.csv").write_text(table, encoding="utf-8")
    longscore = analyzed(tmp_path / "t.csv", "--scale", "100")["definitions"]["longscore"]
    pattern = r"/ 3 = ([\d.]+).*?values (.*?); mean (−[\d.]*\d)"
    ((base, values, mean),) = re.findall(pattern, text, re.S)
    assert longscore["base"] == pytest.approx(float(base), abs=5e-5)
    said = [-float(v) for v in re.findall(r"−([\d.]+)", values)]
    assert [v["value"] for v in longscore["by_length"]] == pytest.approx(said, abs=5e-5)
    assert longscore["mean"] == pytest.approx(-float(mean.removeprefix("−")), abs=5e-5)


def test_without_n_there_is_neither_verdict_nor_interval(tmp_path: Path) -> None:
    for table in (means(None), means().drop(columns="n")):
        result = analyzed(write(tmp_path / "t.csv", table))
        assert (result["verdict"], result["safe_cap_tokens"], result["n"]) == (
            "insufficient_data", None, 0,
        )  # fmt: skip
        assert "no n for 6 of its 6 lengths" in result["safe_cap_reason"]
        assert [b["mean"] for b in result["bins"]] == list(means()["mean"])
        assert all(b["ci_low"] is None and b["sd"] is None for b in result["bins"])
        assert result["baseline"]["ci_low"] is None
        assert result["definitions"]["ruler_85_6"]["tokens"] == 16_384


def test_with_n_at_some_lengths_those_have_an_interval(tmp_path: Path) -> None:
    table = means()
    table.loc[3, "n"] = None
    result = analyzed(write(tmp_path / "t.parquet", table))
    assert result["verdict"] == "insufficient_data"
    assert "no n for 1 of its 6 lengths" in result["safe_cap_reason"]
    assert [b["ci_low"] is None for b in result["bins"]] == [False] * 3 + [True] + [False] * 2


def test_with_n_there_is_a_verdict_and_what_it_assumes(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", means(200))
    result = tmp_path / "t.json"
    ended = call("analyze", "--aggregated", str(path), "--json", str(result))
    checked = conforming(result)
    assert (checked["verdict"], checked["safe_cap_tokens"]) == ("cliff", 16_384)
    assert checked["cliff"]["ci_low"] >= 4_096
    assert (checked["n"], checked["n_documents"]) == (1_200, None)
    assert any("independent examples scored 0 or 1" in text for text in checked["warnings"])
    assert "independent examples" in ended.out
    assert "RULER:                 16,384 tokens" in ended.out
    first = checked["bins"][0]
    assert first["ci_low"] < 0.94 < first["ci_high"]
    assert first["ci_width"] < 0.08
    small = analyzed(write(tmp_path / "s.csv", means(12)))["bins"][0]
    assert small["ci_width"] > 0.25


def test_a_verdict_needs_enough_examples_here_too(tmp_path: Path) -> None:
    result = analyzed(write(tmp_path / "t.csv", means(4)))
    assert (result["verdict"], result["safe_cap_tokens"]) == ("insufficient_data", None)
    assert result["bins"][0]["ci_low"] is not None


def test_flat_tables_are_seldom_called_anything_but_stable(tmp_path: Path) -> None:
    """Sampled from one mean: at 5% each, four alarms of twelve have a chance of 1 in 500."""
    rng = np.random.default_rng(5)
    rows = []
    for model in range(12):
        for length in (4_096, 8_192, 16_384, 32_768, 65_536, 131_072):
            mean = rng.binomial(60, 0.7) / 60
            rows.append({"model": f"m{model:02d}", "length_tokens": length, "mean": mean, "n": 60})
    to = tmp_path / "to.json"
    path = str(write(tmp_path / "flat.csv", rows))
    each = ("--quick", "--by", "model", "--json", str(to))
    assert call("analyze", "--aggregated", path, *each).code == 0
    verdicts = [result["verdict"] for result in conforming(to)]
    assert verdicts.count("stable") >= 9, verdicts


def test_base_score_and_threshold_take_the_place_of_the_usual_ones(tmp_path: Path) -> None:
    table = means().assign(base_score=[0.99, *[None] * 5], threshold=[None, 0.93, *[None] * 4])
    result = analyzed(write(tmp_path / "t.csv", table))
    definitions = result["definitions"]
    assert definitions["ruler_85_6"] == {"tokens": 16_384, "censored": None, "threshold": 0.93}
    assert definitions["nolima_0_85"]["threshold"] == pytest.approx(0.85 * 0.99)
    assert definitions["drop_30pct"]["threshold"] == pytest.approx(0.7 * 0.99)
    assert any("base score 0.990" in text for text in result["warnings"])


def test_repeated_lengths_are_pooled(tmp_path: Path) -> None:
    rows = [
        {"length_tokens": 8_192, "mean": 0.5, "n": 300},
        {"length_tokens": 4_096, "mean": 0.9, "n": 100},
        {"length_tokens": 4_096, "mean": 0.5, "n": 300},
    ]
    first, second = analyzed(write(tmp_path / "t.jsonl", rows))["bins"]
    assert (first["n"], first["median_tokens"]) == (400, 4_096)
    assert first["mean"] == pytest.approx(0.6)
    assert second["mean"] == 0.5
    rows[1].pop("n")
    first, _ = analyzed(write(tmp_path / "t.jsonl", rows))["bins"]
    assert (first["n"], first["ci_low"]) == (0, None)
    assert first["mean"] == pytest.approx(0.7)


def test_a_huge_n_is_told_with_no_less_caution(tmp_path: Path) -> None:
    result = analyzed(write(tmp_path / "t.csv", means(2_000_000)))
    assert (result["n"], result["verdict"]) == (12_000_000, "cliff")
    assert result["bins"][0]["ci_width"] < 0.001


@examples(5)
@given(st.permutations(range(6)), st.sampled_from([1.0, 100.0]))
def test_order_and_scale_do_not_matter(tmp_path: Path, order: list[int], scale: float) -> None:
    table = means(40)
    usual = without_file(analyzed(write(tmp_path / "a.csv", table)))
    other = table.assign(mean=(table["mean"] * scale).round(6)).iloc[order]
    path = write(tmp_path / "b.jsonl", other)
    assert without_file(analyzed(path, "--scale", f"{scale:g}")) == usual


def published() -> list[dict[str, Any]]:
    folder = os.environ.get("CONTEXTCLIFF_REAL_DATA")
    if not folder:
        pytest.skip("CONTEXTCLIFF_REAL_DATA names no folder of published curves")
    rows: list[dict[str, Any]] = json.loads(
        (Path(folder) / "published_curves_sample.json").read_text("utf-8")
    )
    return rows


def as_claimed(definition: dict[str, Any], shortest: int) -> str | int:
    """An effective length as papers print it: ``<1024``, ``>=131072`` or tokens."""
    if definition["censored"] == "<":
        return f"<{shortest}"
    if definition["censored"] == ">":
        return f">={definition['tokens']}"
    return int(definition["tokens"])


def test_published_effective_lengths_are_reproduced_exactly(tmp_path: Path) -> None:
    checkable = [r for r in published() if r.get("effective_length_by_stated_rule") is not None]
    assert len(checkable) >= 33
    rows = [
        {"model": r["id"], "length_tokens": length, "mean": score, "n": None,
         "base_score": r.get("base_score"), "threshold": r["threshold"]}
        for r in checkable
        for length, score in zip(r["lengths"], r["scores"], strict=True)
    ]  # fmt: skip
    path = write(tmp_path / "curves.csv", pd.DataFrame(rows).sample(frac=1, random_state=0))
    to = tmp_path / "curves.json"
    ended = call(
        *("analyze", "--quick", "--aggregated", "--scale", "100", str(path)),
        *("--by", "model", "--json", str(to)),
    )
    assert ended.code == 0, ended.err
    found = {result["model"]: result for result in conforming(to)}
    for row in checkable:
        result, shortest = found[row["id"]], min(row["lengths"])
        relative = "relative" in row["threshold_kind"]
        rules = ["nolima_0_85", "ruler_85_6"] if relative else ["ruler_85_6"]
        for rule in rules:  # a relative rule's threshold is printed, too
            said = as_claimed(result["definitions"][rule], shortest)
            assert said == row["effective_length_by_stated_rule"], (row["id"], rule)
        assert result["verdict"] == "insufficient_data"


def test_every_published_curve_is_read_or_refused_for_its_zero_length(tmp_path: Path) -> None:
    for row in published()[::7]:
        table = pd.DataFrame({"length_tokens": row["lengths"], "mean": row["scores"]})
        path = write(tmp_path / f"{row['id']}.parquet", table)
        ended = call("analyze", "--quick", "--aggregated", "--scale", "100", str(path))
        assert ended.code == (2 if min(row["lengths"]) == 0 else 0), ended.err
