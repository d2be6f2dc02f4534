"""The page on utilization says first how lengths are made, then what the intervals allow."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from PIL import Image

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.utilization.analysis.model import analyse_model
from contextcliff_dagster.extensions.utilization.report import tables
from contextcliff_dagster.extensions.utilization.report.page import (
    MADE,
    WrongAnswer,
    draw_pictures,
    examples_shown,
    utilization_page,
    withheld,
)
from contextcliff_dagster.extensions.utilization.results import UtilizationResult
from contextcliff_dagster.reporting.markdown import as_page
from contextcliff_dagster.reporting.report_files import write_page
from contextcliff_dagster_tests.extensions.utilization.planted_records import planted_records

HOSTILE = "a|b <script>alert(1)</script> [x](http://example.invalid)"
WRONG = WrongAnswer("m", "warehouse-prose-8k", "How many?", "57", HOSTILE, "hallucination", 3, 0.4)


@cache
def _result() -> UtilizationResult:
    records = planted_records(
        {"jsonl": 30_000, "prose": 7_000},
        benchmarks=("warehouse", "network"),
        arms={"order=shuffled": -0.2},
    )
    return analyse_model(records, evidence="growing")


def _written(result: UtilizationResult, folder: Path) -> tuple[str, str, dict[str, bytes]]:
    pictures = draw_pictures([result])
    answers = examples_shown([WRONG])
    page = utilization_page([result], answers, title="Formats", pictures=pictures)
    files = write_page(page, folder, pictures=pictures, results=[to_json(result)])
    return files.md.read_text("utf-8"), files.html.read_text("utf-8"), pictures


def test_the_first_lines_say_that_lengths_are_made(tmp_path: Path) -> None:
    markdown, html, _ = _written(_result(), tmp_path)
    lines = [line for line in markdown.splitlines() if line]
    assert lines[0] == "# Formats"
    assert lines[1] == MADE
    assert "from length or from work" in lines[2]
    assert html.index("Lengths are made here, not natural") < html.index("<table")


def test_every_headline_and_parting_is_on_the_page() -> None:
    result = _result()
    (pair,) = result.comparisons
    text = as_page(utilization_page([result], title="t").flat())
    partings = [scope.divergence.sentence for scope in (pair.pooled, *pair.benchmarks)]
    for sentence in [*result.headline, *pair.sentences, *partings]:
        assert sentence in text.replace("\\", ""), sentence


def test_report_json_holds_the_result(tmp_path: Path) -> None:
    _written(_result(), tmp_path)
    kept = json.loads((tmp_path / "report.json").read_bytes())
    assert kept["results"] == [to_json(_result())]
    assert kept["sections"]


def test_pictures_are_the_same_each_time_and_are_shown(tmp_path: Path) -> None:
    result = replace(_result(), model="meta/llama 3: 8b")
    markdown, html, pictures = _written(result, tmp_path)
    assert len(pictures) == 3
    assert draw_pictures([result]) == pictures
    for name, content in pictures.items():
        assert f"({name})" in markdown
        assert (tmp_path / name).read_bytes() == content
        assert Image.open(io.BytesIO(content)).width > 400
    assert html.count("data:image/png;base64,") == 3


def test_no_answer_or_name_is_markup(tmp_path: Path) -> None:
    markdown, html, _ = _written(replace(_result(), model=HOSTILE), tmp_path)
    assert "<script>alert" not in html
    shown = MarkdownIt("commonmark").enable("table").render(markdown)
    assert "<script>alert" not in shown
    assert "example.invalid" not in "".join(re.findall(r'href="[^"]*"', html + shown))
    (row,) = re.findall(r"<tr>\s*<td><code>m</code>.*?</tr>", shown, re.DOTALL)
    assert row.count("<td") == 8


def test_each_of_several_models_has_a_section() -> None:
    two = [replace(_result(), model=name) for name in ("first", "second")]
    text = as_page(utilization_page(two, title="t").flat())
    assert text.index("| `second` | structure better |") < text.index("## `first`")
    assert text.index("## `first`") < text.index("## `second`") < text.index("## Where do")
    assert "### `second`" in text


@pytest.mark.parametrize("formats", [{"jsonl": 9e9}, {"jsonl": 9e9, "prose": 9e9, "csv": 1e3}])
def test_one_format_or_three_are_drawn_and_told(formats: dict[str, float], tmp_path: Path) -> None:
    result = analyse_model(planted_records(formats, benchmarks=("warehouse",), seeds=4))
    markdown, _, pictures = _written(result, tmp_path)
    pairs = len(formats) * (len(formats) - 1) // 2
    assert len(pictures) == 1 + pairs
    assert all(f"({name})" in markdown for name in pictures)
    assert markdown.count("\n### ") >= len(formats) - 1


def test_nothing_answered_is_a_page_too(tmp_path: Path) -> None:
    records = planted_records({"jsonl": 9e9, "prose": 9e9}, benchmarks=("warehouse",), seeds=2)
    records["score"] = float("nan")
    records["failure"] = "transport_error"
    markdown, _, _ = _written(analyse_model(records), tmp_path)
    assert "not measured" in markdown or "No answer" in markdown


def test_what_a_picture_shows_is_in_its_alternative_text(tmp_path: Path) -> None:
    _, html, _ = _written(_result(), tmp_path)
    scores, difference, effects = re.findall(r'<img alt="([^"]*)"', html)
    assert re.search(r"JSON lines from 1\.00 at 1k to 0\.\d\d at 32k; prose from", scores)
    assert "begin to differ by more than 0.1 at about" in difference
    assert "as in the table below" in effects


def test_without_leave_no_answer_is_on_the_page_and_a_command_is() -> None:
    page = utilization_page([_result()], withheld("contextcliff report s --with-answers"), title="")
    text = as_page(page.flat())
    assert "no questions or answers" in text
    assert "`contextcliff report s --with-answers`" in text


def test_the_answer_has_tokens_of_all_formats_at_each_scale_and_every_effect() -> None:
    formats = {"jsonl": 9e9, "prose": 9e9, "csv": 9e9}
    arms = {"order=shuffled": -0.2, "thought=on": 0.0}
    result = analyse_model(planted_records(formats, arms=arms, seeds=4))
    rows = _table(result, "| scale | warehouse (ledger) | constraints | network |")[2:]
    assert [row.split("|")[1].strip() for row in rows] == list(result.scales)
    assert rows[3].split("|")[3].strip() == "8,002 / 10,002 / 6,002"
    head = as_page(utilization_page([result], title="t").head).replace("\\", "")
    for arm in ("order, shuffled minus base: -0.", "thought, on minus base: 0.00 ["):
        assert head.count(f"- {arm}") == 1, "over all formats"
    assert "minus other benchmarks" not in head
    alone = analyse_model(planted_records({"prose": 9e9}, arms=arms, seeds=4))
    assert "- order, shuffled minus base: -0." in as_page(utilization_page([alone], title="t").head)
    assert "Effects on" not in as_page(
        utilization_page([analyse_model(planted_records(formats, seeds=2))], title="t").head
    )


def test_a_scale_too_long_for_the_window_has_tokens_too() -> None:
    records = planted_records({"jsonl": 9e9, "prose": 9e9}, benchmarks=("network",), seeds=4)
    long = records["scale_tokens"] == 32_000
    records.loc[long, ["score", "failure"]] = [float("nan"), "context_overflow"]
    result = analyse_model(records)
    assert _table(result, "| scale | network |")[-1].split("|")[2].strip() == "32,002 / 40,002"
    last = result.curves[0].scales[-1]
    assert (last.n, last.n_documents, last.missing, last.mean) == (0, 0, 16, None)
    partly = long & (records["seed"] > 1)
    records.loc[long & ~partly, "score"] = 1.0
    records.loc[long & ~partly, "failure"] = None
    last = analyse_model(records).curves[0].scales[-1]
    assert (last.tokens, last.n_documents) == (32_000, 2), "of the documents with an answer"


def test_verdicts_are_words() -> None:
    few = planted_records({"jsonl": 9e9, "prose": 9e9}, benchmarks=("network",), seeds=1)
    (_, *rows) = [cell.split("|") for cell in _table(analyse_model(few), "| format | answers")]
    assert {row[4].strip() for row in rows[1:]} == {"too few data"}


def _table(result: UtilizationResult, head: str) -> list[str]:
    lines = as_page(utilization_page([result], title="t").flat()).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(head))
    return lines[first : lines.index("", first)]


def test_band_and_tests_that_disagree_are_explained() -> None:
    few = planted_records({"jsonl": 9e9, "prose": 3_000}, benchmarks=("network",), seeds=4)
    (pair,) = analyse_model(few).comparisons
    (sentence,) = tables.disagreements(pair.pooled, 0.95)
    assert sentence == (
        "At 4k, 8k, 16k and 32k the band excludes 0, but the adjusted permutation test does not "
        "reject (p > 0.05): with 4 documents the smallest possible p-value is 0.12 before Holm's "
        "adjustment, so the test needs more seeds. The verdict follows the band."
    )
    many = planted_records({"jsonl": 9e9, "prose": 3_000}, benchmarks=("network",), seeds=12)
    (pair,) = analyse_model(many).comparisons
    assert tables.disagreements(pair.pooled, 0.95) == []


def test_models_at_the_floor_are_said_to_be_there(tmp_path: Path) -> None:
    result = analyse_model(planted_records({"jsonl": 0, "prose": 0}, benchmarks=("network",)))
    markdown, _, pictures = _written(result, tmp_path)
    assert markdown.count("At the floor: the mean score is 0.00") >= 2
    assert "at the floor from the start" in markdown
    assert "alike" not in markdown.partition("## How was it measured?")[0]
    assert len(pictures) == 2
