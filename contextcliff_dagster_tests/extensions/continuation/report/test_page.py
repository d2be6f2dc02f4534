"""The page on continuations: the verdict first, every figure of the result in a table."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.continuation.analysis.model import analyse_model
from contextcliff_dagster.extensions.continuation.report.page import (
    MEASURED,
    continuation_page,
    draw_pictures,
)
from contextcliff_dagster.extensions.continuation.report.run_page import metric_chart
from contextcliff_dagster.extensions.continuation.results import ContinuationResult
from contextcliff_dagster.reporting.markdown import as_page
from contextcliff_dagster.reporting.report_files import write_page
from contextcliff_dagster_tests.extensions.continuation.analysis.test_degenerate import (
    QUICK,
    STUDY,
    rows_of,
)
from contextcliff_dagster_tests.extensions.continuation.measured_study import (
    measured_result,
    measured_rows,
)
from contextcliff_dagster_tests.support.simulated_study import SimulatedStudy

HOSTILE = "q4|<script>alert(1)</script> [x](http://example.invalid)"


@cache
def collapsing() -> ContinuationResult:
    base = SimulatedStudy(passages=12, rounds=3).draw(np.random.default_rng(0))
    lost = replace(SimulatedStudy(passages=12, rounds=3), share=0.6, from_size=16384)
    other = lost.draw(np.random.default_rng(0)).assign(arm=HOSTILE)
    return analyse_model(
        pd.concat([base, other]),
        settings=QUICK,
        arms=["base", HOSTILE],
        human=np.random.default_rng(1).random(50),
        context=ProfileContext(model="tiny", tokenizer="tiktoken:o200k_base"),
    )


def written(result: ContinuationResult, folder: Path) -> tuple[str, str, dict[str, bytes]]:
    pictures = draw_pictures([result])
    page = continuation_page([result], title="Continuations", pictures=pictures)
    files = write_page(page, folder, pictures=pictures, results=[to_json(result)])
    return files.md.read_text("utf-8"), files.html.read_text("utf-8"), pictures


def test_the_page_says_what_the_score_is_before_any_figure(tmp_path: Path) -> None:
    markdown, html, _ = written(collapsing(), tmp_path)
    lines = [line for line in markdown.splitlines() if line]
    assert lines[:2] == ["# Continuations", MEASURED]
    assert html.index("human prose averages 0.5") < html.index("<table")


def test_every_sentence_of_the_result_is_on_the_page() -> None:
    result = collapsing()
    text = as_page(continuation_page([result], title="t").flat()).replace("\\", "")
    for sentence in (*result.headline[2:], *result.warnings, *result.arms[1].sentences):
        words = sentence.split(HOSTILE)[-1]
        assert words in text


def test_names_of_arms_are_no_markup(tmp_path: Path) -> None:
    _, html, _ = written(collapsing(), tmp_path)
    assert "<script>alert" not in html


def test_pictures_are_the_same_bytes_and_show_the_arms() -> None:
    first, again = draw_pictures([collapsing()]), draw_pictures([collapsing()])
    assert first == again
    assert set(first) == {"continuation-sizes-tiny.png", "continuation-arms-tiny.png"}
    for data in first.values():
        picture = Image.open(io.BytesIO(data)).convert("L")
        assert np.asarray(picture).std() > 10


@pytest.mark.parametrize("spoil", ["single", "empty"])
def test_results_without_a_conclusion_have_a_page(spoil: str, tmp_path: Path) -> None:
    rows = rows_of(replace(STUDY, passages=1, texts=1) if spoil == "single" else STUDY)
    if spoil == "empty":
        rows = rows.assign(score=np.nan, collapse=None)
    markdown, _, _ = written(analyse_model(rows, settings=QUICK), tmp_path)
    assert "Insufficient data" in markdown


def test_several_models_have_a_section_each() -> None:
    other = replace(collapsing(), model="small")
    text = as_page(continuation_page([collapsing(), other], title="t").flat())
    assert text.count("\n## `") == 2


def test_the_first_panels_are_of_metrics_that_are_measured() -> None:
    short = measured_rows().assign(diversity_200=np.nan, repetition_200=np.nan)
    assert metric_chart(measured_result(short)).first == [
        *("score", "diversity_50", "lix", "repetition_50"),
    ]
