"""What the questions are besides long: the picture, the sections, and nothing where nothing is."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image

from contextcliff_dagster.reporting.figures.confounds import plot_questions
from contextcliff_dagster.reporting.report_files import write_report
from contextcliff_dagster_tests.support.records.reports import (
    control_of,
    page_of,
    results_of,
    sample,
)


def _bins(result: dict[str, Any], mean: float) -> list[dict[str, Any]]:
    interval = {"ci_low": mean - 0.1, "ci_high": mean + 0.1}
    return [{"bin": b["bin"], "n": 20, "mean": mean, **interval} for b in result["bins"]]


def _group(low: float, high: float, mean: float | None) -> dict[str, Any]:
    known = (None, None) if mean is None else (max(mean - 0.1, 0.0), mean + 0.1)
    return {
        "low": low,
        "high": high,
        "n": 30,
        "n_documents": 28,
        "mean": mean,
        "ci_low": known[0],
        "ci_high": known[1],
        "at_equal_length": mean,
        "at_equal_length_low": known[0],
        "at_equal_length_high": known[1],
    }


def _curve(axis: str, groups: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "axis": axis,
        "n": 150,
        "n_all": 200,
        "groups": groups,
        "p_value": 0.004,
        "group": 1,
        "difference": -0.3,
        "difference_low": -0.41,
        "difference_high": -0.19,
        "refused_because": None,
    }


def _level(result: dict[str, Any], name: str, cap: int | None) -> dict[str, Any]:
    return {
        "name": name,
        "levels": ["1"] if name == "simple" else ["2", "3"],
        "n": 100,
        "n_documents": 90,
        "verdict": "cliff" if cap else "insufficient_data",
        "safe_cap_tokens": cap,
        "safe_cap_reason": "Only 12 scored examples." if cap is None else "As far as this.",
        "baseline": 0.9,
        "location_tokens": cap and cap + 100,
        "ci_low": cap,
        "ci_high": cap and cap + 300,
        "bins": _bins(result, 0.7),
    }


def _mix(
    category: str, values: list[str], shares: list[float], bins: list[dict[str, Any]]
) -> dict[str, Any]:
    drop = ("drop", "drop_ci_low", "drop_ci_high", "drop_as_measured")
    return {
        "category": category,
        "identified": "not_assessed",
        **dict.fromkeys(("from_tokens", "to_tokens", *drop)),
        "values": values,
        "shares": shares,
        "bins": bins,
    }


def asked(model: str = "a") -> dict[str, Any]:
    """A result that says everything of its questions."""
    result = sample(model)[0]
    mixed = [
        {**b, "n": [10, 10], "standardised": 0.8, "mean": 0.6, "covered": 1.0}
        for b in _bins(result, 0.8)
    ]
    return {
        **result,
        "mix": [
            _mix("task", ["x", "y"], [0.5, 0.5], []),
            _mix("kind", ["easy", "ha|rd"], [0.4, 0.6], mixed),
        ],
        "by_position": _curve(
            "evidence_position", [_group(i / 5, i / 5 + 0.2, 0.5) for i in range(5)]
        ),
        "by_distance": _curve(
            "inter_evidence_tokens", [_group(0, 60, 0.7), _group(60, 400, None), _group(4, 9, 0.4)]
        ),
        "controls": [
            {
                **control_of(name),
                "n_all": 200,
                "n_askable": 150,
                "says": [f"{name} says it"],
                "bins": _bins(result, mean),
            }
            for name, mean in (("no_context", 0.2), ("oracle", 0.85))
        ],
        "levels": [_level(result, "simple", 700), _level(result, "complex", None)],
    }


def test_every_model_that_says_something_has_a_block_and_the_bytes_repeat() -> None:
    one, both = (
        plot_questions(results_of([asked()])),
        plot_questions(results_of([asked(), asked("b")])),
    )
    assert one is not None
    assert both is not None
    assert both == plot_questions(results_of([asked(), asked("b")]))
    heights = [Image.open(io.BytesIO(png)).height for png in (one, both)]
    assert heights[1] > heights[0]
    with_another = plot_questions(results_of([asked(), sample("b")[0]]))
    assert with_another is not None
    assert Image.open(io.BytesIO(with_another)).height == heights[0]


def test_a_mean_of_zero_is_shown() -> None:
    result = sample("a")[0]
    groups = [_group(0.0, 0.5, 0.0), _group(0.5, 1.0, 0.0)]
    curve = _curve("evidence_position", groups)
    assert plot_questions(results_of([{**result, "by_position": curve}]))


def test_a_result_that_says_nothing_has_no_picture_and_no_section(tmp_path: Path) -> None:
    plain = sample("a")[0]
    (tmp_path / "questions.png").write_bytes(b"of an earlier report")
    files = write_report(results_of([plain]), None, tmp_path, title="t")
    assert not (tmp_path / "questions.png").exists()
    page = files.md.read_text("utf-8")
    assert "questions.png" not in page
    assert "Evidence position" not in page
    empty = {"mix": [], "controls": [], "by_position": None, "by_distance": None, "levels": []}
    assert plot_questions(results_of([{**plain, **empty}])) is None


def test_the_page_has_the_sections_and_links_the_picture_once(tmp_path: Path) -> None:
    results = results_of([asked(), asked("b")])
    write_report(results, None, tmp_path, title="t")
    assert (tmp_path / "questions.png").read_bytes().startswith(b"\x89PNG")
    page = page_of(results, pictures=["questions.png"])
    assert page.count("](questions.png)") == 1
    assert page.count("### At an equal mix of kinds of question") == 2
    assert "easy: 40.0%; ha\\|rd: 60.0%" in page
    assert "40 to 60%" in page
    assert "(p = 0.004). Largest difference: 20 to 40% (difference -0.30 [-0.41, -0.19])." in page
    assert "| 60 to 400 | 30 | 28 | too few | lengths too different |" in page
    assert "| simple (1) | 100 | 90 | 0.90 | cliff | 700 | 800 [700, 1,000] |" in page
    assert "- oracle says it." in page
    assert "- 150 of 200 examples give the position of their evidence." in page
    assert "| 0.20 [0.10, 0.30], n = 20 | 0.85 [0.75, 0.95], n = 20 |" in page
    assert "- complex: Only 12 scored examples." in page


def test_a_test_that_was_refused_is_among_what_was_not_measured() -> None:
    refused = _curve("evidence_position", []) | {
        "p_value": None,
        "refused_because": "only 9 examples on 8 documents say it",
    }
    page = page_of(results_of([{**sample("a")[0], "by_position": refused}]))
    assert "No test of the score by evidence position: only 9 examples" in page
    assert "### Evidence position" not in page
