"""Other people's definitions, on tables worked by hand and on published ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from contextcliff_dagster.analysis.robustness import effective_lengths
from contextcliff_dagster.contracts.results.cliffs import EffectiveLength

LENGTHS = [1_000, 2_000, 4_000, 8_000, 16_000]
SCORES = [0.92, 0.90, 0.86, 0.70, 0.60]


def test_each_definition_by_hand() -> None:
    definitions, warnings = effective_lengths(LENGTHS, SCORES)
    assert definitions.ruler_85_6 == EffectiveLength(4_000, None, 0.856)
    assert definitions.nolima_0_85.tokens == 4_000  # .85 x .92 = .782
    assert definitions.mecw_5pct.tokens == 2_000  # .95 x .92 = .874
    assert definitions.drop_30pct.tokens == 8_000  # .70 x .92 = .644
    assert warnings == []
    longscore = definitions.longscore
    base = (0.92 + 0.90 + 0.86) / 3
    assert longscore.base == pytest.approx(base)
    assert longscore.base_tokens == [1_000, 2_000, 4_000]
    assert longscore.mean == pytest.approx(((0.70 - base) / base + (0.60 - base) / base) / 2)


def test_a_rule_met_nowhere_or_everywhere_is_censored() -> None:
    low, _ = effective_lengths(LENGTHS, [0.5, 0.5, 0.5, 0.5, 0.5])
    assert low.ruler_85_6 == EffectiveLength(None, "<", 0.856)
    assert (low.nolima_0_85.tokens, low.nolima_0_85.censored) == (16_000, ">")


def test_a_shorter_length_that_fails_is_a_warning_for_rules_that_do_not_stop_there() -> None:
    definitions, warnings = effective_lengths(LENGTHS, [0.92, 0.5, 0.9, 0.5, 0.5])
    assert definitions.ruler_85_6.tokens == 4_000
    assert definitions.drop_30pct.tokens == 1_000
    assert any(w.startswith("RULER's rule already fails") for w in warnings)


def test_no_lengths_give_no_definitions() -> None:
    definitions, _ = effective_lengths([], [])
    assert definitions.ruler_85_6 == EffectiveLength(None, None, None)
    assert definitions.longscore.by_length == []


def test_published_effective_lengths_are_reproduced() -> None:
    folder = os.environ.get("CONTEXTCLIFF_REAL_DATA")
    if not folder:
        pytest.skip("CONTEXTCLIFF_REAL_DATA names no folder of published curves")
    rows = json.loads((Path(folder) / "published_curves_sample.json").read_text("utf-8"))
    checked = 0
    for row in rows:
        claim = row.get("effective_length_by_stated_rule")
        if claim is None or row.get("threshold") is None:
            continue
        relative = "relative" in (row.get("threshold_kind") or "")
        definitions, _ = effective_lengths(
            row["lengths"],
            [s / 100 for s in row["scores"]],
            base_score=row["base_score"] / 100 if row.get("base_score") else None,
            threshold=row["threshold"] / 100,
        )
        result = definitions.nolima_0_85 if relative else definitions.ruler_85_6
        if result.censored == "<":
            said: str | int = f"<{row['lengths'][0]}"
        else:
            said = result.tokens
        if isinstance(claim, str) and claim.startswith(">="):
            assert result.censored == ">"
            claim = int(claim.removeprefix(">="))
        assert said == claim, row["id"]
        checked += 1
    assert checked >= 33


def test_a_base_of_nothing_is_said() -> None:
    definitions, warnings = effective_lengths([4_000, 8_000], [0.0, 0.0])
    assert definitions.nolima_0_85.threshold == 0.0
    assert any("base score is 0" in said for said in warnings)
