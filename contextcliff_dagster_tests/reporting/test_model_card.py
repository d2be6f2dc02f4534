"""A model's card: no number without its task, day and certainty; text is text; the badge fits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.reporting.model_card import (
    badge_svg,
    card_json_ld,
    card_markdown,
    headline,
    json_ld_text,
    text_width,
)
from contextcliff_dagster_tests.support.records.planted_curves import bins_of, plant, ramp
from contextcliff_dagster_tests.support.records.profiles import QUICK

HOSTILE = "</title><script>alert(1)</script>|`]] & \"'\x00\u202e\n```\n# x"
SVG = "{http://www.w3.org/2000/svg}"
TIMES = {"times": {"measured_to": "2026-11-21T23:30:00-02:00"}}


def result(**given: Any) -> Cliffs:
    records = plant(ramp(1_600), 1)
    facts = {"task": "lookup", "study": "quick", "campaign": "one", "identity": "ab12", **given}
    context = ProfileContext(facts.pop("model", "m"), provenance=TIMES, **facts)
    return profile_model(records, bins_of(records), QUICK, context).cliffs


CAPPED = result()
NO_CAP = replace(CAPPED, safe_cap_tokens=None, joint_cap=None, cliff=None)
TOO_FEW = replace(NO_CAP, verdict=Verdict.INSUFFICIENT_DATA, safe_cap_reason="Too few examples.")


@pytest.mark.parametrize(
    ("cliffs", "words"),
    [
        (replace(CAPPED, safe_cap_tokens=51_999), "safe to 51k tokens (lookup, 2026-11-22)"),
        (replace(CAPPED, safe_cap_tokens=9_999), "safe to 9,999 tokens (lookup, 2026-11-22)"),
        (TOO_FEW, "no cap: insufficient data (lookup, 2026-11-22)"),
        (NO_CAP, "no cap: not supported by the data (lookup, 2026-11-22)"),
        (replace(NO_CAP, verdict=Verdict.FLOOR), "no cap: score at the floor (lookup, 2026-11-22)"),
        (replace(TOO_FEW, task=None), "no cap: insufficient data (quick, 2026-11-22)"),
        (replace(TOO_FEW, task="t" * 50), f"no cap: insufficient data ({'t' * 39}…, 2026-11-22)"),
    ],
)
def test_the_headline_has_task_and_day(cliffs: Cliffs, words: str) -> None:
    assert headline(cliffs) == words
    assert words in "".join(ElementTree.fromstring(badge_svg(cliffs)).itertext())


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("cliffs", [CAPPED, TOO_FEW])
def test_the_badge_is_accessible(cliffs: Cliffs) -> None:
    svg = ElementTree.fromstring(badge_svg(cliffs))
    title = svg.find(f"{SVG}title")
    assert title is not None
    assert svg.get("role") == "img"
    assert svg.get("aria-labelledby") == title.get("id")
    assert f"m: {headline(cliffs)}" in (title.text or "")
    for box in svg.findall(f"{SVG}rect"):
        assert 1.05 / (luminance(box.get("fill") or "") + 0.05) >= 4.5


@given(task=st.text(max_size=80), model=st.text(min_size=1, max_size=40))
def test_the_badge_fits_its_text_and_is_always_xml(task: str, model: str) -> None:
    cliffs = replace(CAPPED, task=task, model=model)
    svg = ElementTree.fromstring(badge_svg(cliffs))
    left, right = svg.findall(f"{SVG}g/{SVG}text")
    split, width = (float(box.get("width") or 0) for box in svg.findall(f"{SVG}rect"))
    for text, start, end in ((left, 0.0, split), (right, split, split + width)):
        at, long = float(text.get("x") or 0), float(text.get("textLength") or 0)
        assert start < at < at + long < end
        assert abs(long - text_width(text.text or "")) <= 0.5
    assert float(svg.get("width") or 0) == split + width
    assert json.loads(json_ld_text(cliffs)) == card_json_ld(cliffs)


def test_wide_characters_take_more_room() -> None:
    assert text_width("文" * 10) == 110
    assert text_width("iiii") < text_width("WWWW")


def test_no_number_stands_without_its_certainty() -> None:
    page = card_markdown(CAPPED)
    cap, drop = CAPPED.safe_cap_tokens, CAPPED.cliff
    assert drop is not None
    for words in (
        f"up to {cap:,} tokens are safe: the score stays within 30% of its baseline",
        "(95% confidence)",
        f"{drop.location_tokens:,} \\[{drop.ci_low:,}, {drop.ci_high:,}\\] tokens (95% interval)",
        "| Task | lookup |",
        "| Measured | 2026-11-22, 200 examples over 200 documents",
        "campaign one",
        "`ab12`",
    ):
        assert words in page
    none = card_markdown(TOO_FEW)
    assert "No safe cap. Too few examples." in none
    assert "are safe" not in none
    assert "The cap holds for this task" in page
    assert "This holds for this task" in none


def test_the_json_ld_is_schema_org() -> None:
    data = json.loads(json_ld_text(CAPPED))
    assert data["@context"] == "https://schema.org"
    model, cap, drop = data["@graph"]
    assert (model["name"], model["identifier"]) == ("m", "ab12")
    assert {cap["@type"], drop["@type"]} == {"Observation"}
    assert cap["observationAbout"] == {"@id": model["@id"]}
    assert (cap["value"], cap["observationDate"]) == (CAPPED.safe_cap_tokens, "2026-11-22")
    facts = {one["name"]: one["value"] for one in cap["additionalProperty"]}
    assert (facts["confidence"], facts["tolerance"], facts["task"]) == (0.95, 0.3, "lookup")
    assert drop["minValue"] <= drop["value"] <= drop["maxValue"]
    _, without = card_json_ld(TOO_FEW)["@graph"]
    assert "value" not in without
    assert "Too few examples" in without["description"]


def test_hostile_names_are_text() -> None:
    cliffs = result(model=HOSTILE, task=HOSTILE, study="s", identity=None, tokenizer=HOSTILE)
    page = card_markdown(cliffs)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(page)
    html = [t.content for t in tokens if t.type == "html_block"]
    html += [c.content for t in tokens for c in t.children or () if c.type == "html_inline"]
    assert {tag for one in html for tag in re.findall(r"</?(\w+)", one)} == {"details", "summary"}
    assert [t.content for t in tokens if t.type == "fence"] == [json_ld_text(cliffs) + "\n"]
    assert "<" not in json_ld_text(cliffs)
    assert card_json_ld(cliffs)["@graph"][0]["name"] == HOSTILE
    svg = ElementTree.fromstring(badge_svg(cliffs))
    assert {element.tag for element in svg.iter()} == {
        f"{SVG}{name}" for name in ("svg", "title", "rect", "g", "text")
    }
