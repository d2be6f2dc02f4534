"""Finished runs as one HTML file to explore: every metric of Context-Tester over context size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contextcliff_dagster.extensions.continuation.compat.metrics import (
    COHERENCE_KEYS,
    LEVELS,
    METRICS,
)
from contextcliff_dagster.extensions.continuation.compat.result_files import ContextResult, Run
from contextcliff_dagster.extensions.continuation.compat.statistics import Round, values_of
from contextcliff_dagster.extensions.continuation.figures import (
    PANELS,
    plot_standard,
    value_of,
)
from contextcliff_dagster.reporting.html.metric_chart import (
    Author,
    Interval,
    Line,
    Metric,
    MetricChart,
    Point,
    number_words,
)
from contextcliff_dagster.reporting.sections import (
    Bracketed,
    Cell,
    DataTable,
    Figure,
    Fold,
    Paragraph,
    Section,
    map_texts,
)
from contextcliff_dagster.reporting.wording.number_format import count, tokens
from contextcliff_dagster.store import write_atomic

FILE = "comparison.html"
TITLE = "Continuations of finished runs"
NOTE = (
    "The formulas are Context-Tester's, rounding included; its rule for degradation has no control "
    "for chance, so no verdict is given here. Each run has one passage: intervals over its rounds "
    "say nothing of other passages."
)
_CONFIDENCE = 0.95
_SIGNED = (
    *("cloze_score", "sentence_length_skewness", "sentence_length_kurtosis"),
    *(key for key in COHERENCE_KEYS if key != "coherence_variance"),
)
"""Metrics that can be below 0."""
_DEVIATIONS = {"cloze_score": "cloze_score_std", "vocabulary_diversity": "vocab_diversity_std"}
_SETTINGS = {
    "max_tokens": "up to {} tokens",
    "temperature": "temperature {}",
    "top_k": "top-k {}",
    "top_p": "top-p {}",
    "min_p": "min-p {}",
    "rep_pen": "repetition penalty {}",
    "seed": "seed {}",
}
_NAMES = {
    **{panel.key: panel.name for panel in PANELS},
    "pct_unfamiliar_words": "Unfamiliar words (share)",
    "avg_sentence_length": "Words of a sentence",
    "reading_level": "Reading level (school grade)",
    "word_count": "Words",
    "sentence_count": "Sentences",
    "sentence_length_variance": "Variance of sentence lengths",
    "trigram_repetition_rate": "Repeated runs of three words",
    "unique_word_ratio_100": "Distinct words within 100",
    "word_entropy": "Entropy of words (bits)",
    "char_entropy": "Entropy of characters (bits)",
    "comma_density": "Commas in a sentence",
    "semicolon_density": "Semicolons in a sentence",
    "question_density": "Question marks in a sentence",
    "exclamation_density": "Exclamation marks in a sentence",
    "avg_syllables_per_word": "Syllables of a word",
    "long_word_ratio": "Words of more than six letters (share)",
    "function_word_ratio": "Function words (share)",
    "sentence_length_skewness": "Skewness of sentence lengths",
    "sentence_length_kurtosis": "Kurtosis of sentence lengths",
    "avg_word_length": "Letters of a word",
    "global_coherence": "Similarity to the mean of all sentences",
    "local_coherence_3sent": "Similarity within three sentences",
    "coherence_variance": "Variance of neighbours' similarity",
}


GRADES = (*(name for _, name in LEVELS), "16+")
"""Reading levels, the easiest first."""


def write_run_page(runs: Sequence[Run], folder: Path) -> Path:
    """Write `FILE` into ``folder``: what `run_chart` shows, and all averages as tables.

    Secrets of the environment and absolute paths of this machine do not enter it.

    Raises:
        StoreError: it cannot be written.
    """
    from contextcliff_dagster.reporting.html.metric_chart import (
        metric_chart_html,
        metric_chart_interactive,
    )
    from contextcliff_dagster.reporting.html.render import blocks_html, html_page
    from contextcliff_dagster.reporting.local_paths import for_readers

    redact = for_readers()
    chart = map_texts(run_chart(runs), redact)
    picture = Figure(Path("standard.png"), "Averages of four metrics over context size")
    folds = [
        Fold("What are the averages?", [Section("", [picture], 3), *map(_table, runs)]),
        Fold("How were the runs made?", [Section(run.name, [_made(run)], 3) for run in runs]),
    ]
    folds = [Fold(fold.question, map_texts(fold.sections, redact)) for fold in folds]
    html = html_page(
        TITLE,
        blocks_html([Paragraph(NOTE)]) + metric_chart_html(chart),
        folds,
        metric_chart_interactive(chart),
        {"standard.png": plot_standard(runs, 110)},
    )
    write_atomic(folder / FILE, html.encode(), private=False)
    return folder / FILE


def run_chart(runs: Sequence[Run]) -> MetricChart:
    """Return every metric of ``runs``, a line a run; the author's figures as far as known."""
    inverted = {panel.key for panel in PANELS if panel.invert}
    return MetricChart(
        title="Each metric over context size",
        kind="run",
        metrics=[
            Metric(key, _NAMES[key], key in inverted, GRADES if key == "reading_level" else ())
            for key in METRICS
        ],
        lines=[_line(run) for run in runs],
        authors=[Author(_author(run), row) for row, run in enumerate(runs) if run.author],
        bars="Points are averages of rounds; bars are 95% intervals over the rounds (Student's t).",
        band="Dashed: the author's own text of each run, where its files have it.",
        first=[panel.key for panel in PANELS],
    )


def _line(run: Run) -> Line:
    averages = run.averages
    points = {
        key: [_point(run.contexts[size], averages[size], key) for size in averages]
        for key in METRICS
    }
    return Line(run.name, list(averages), points, _about(run))


def _point(result: ContextResult, average: Round, key: str) -> Point:
    rounds = [_value(one, key) for one in result.rounds]
    planned = average.get("num_rounds")
    n = len(rounds) or (int(planned) if isinstance(planned, int | float) else 0)
    words = count(n, "round") if n else "rounds not known"
    mean = _value(average, key)
    return Point(mean, _interval(result, average, key, n), words, rounds if len(rounds) > 1 else ())


def _interval(result: ContextResult, average: Round, key: str, n: int) -> Interval | None:
    """Over the rounds, or from the deviation that a CSV file has of two of the metrics."""
    mean = _value(average, key)
    if key == "reading_level" or mean is None or n < 2:
        return None
    if result.rounds:
        values = values_of(result.rounds, key)
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    else:
        deviation = value_of(average, _DEVIATIONS[key]) if key in _DEVIATIONS else None
    if not deviation:
        return None
    from scipy.special import stdtrit

    reach = float(stdtrit(n - 1, 0.5 + _CONFIDENCE / 2)) * deviation / n**0.5
    return mean - reach if key in _SIGNED else max(mean - reach, 0.0), mean + reach


def _value(figures: Round, key: str) -> float | None:
    if key != "reading_level":
        return value_of(figures, key)
    level = str(figures.get(key))
    return float(GRADES.index(level)) if level in GRADES else None


def _author(run: Run) -> dict[str, tuple[float, Interval | None]]:
    found = {key: _value(run.author, key) for key in METRICS}
    return {key: (value, None) for key, value in found.items() if value is not None}


def _about(run: Run) -> list[str]:
    settings: Mapping[str, Any] = run.metadata.get("generation_params") or {}
    text = run.metadata.get("source_text_name")
    sampling = [
        words.format(settings[key])
        for key, words in _SETTINGS.items()
        if settings.get(key) is not None
    ]
    return [*([f"text: {text}"] if text else []), *([", ".join(sampling)] if sampling else [])]


def _made(run: Run) -> DataTable:
    known = {key: run.metadata.get(key) for key in ("model_name", "model_id", "source_text_name")}
    rows: list[list[Cell]] = [
        [key.replace("_", " "), str(value)] for key, value in known.items() if value is not None
    ]
    rows += [["sampling", words] for words in _about(run)[-1:]]
    return DataTable(["what", "value"], rows, right=())


def _table(run: Run) -> Section:
    averages = run.averages
    rows: list[list[Cell]] = []
    for key in METRICS:
        values = [_value(one, key) for one in averages.values()]
        author = _value(run.author, key)
        if any(value is not None for value in values):
            cells = [*values, author]
            rows.append([_NAMES[key], *(Bracketed(_words(key, value)) for value in cells)])
    columns = ["metric", *(f"{tokens(size)} tokens" for size in averages), "author"]
    return Section(run.name, [DataTable(columns, rows, "Averages of the rounds", right=())], 3)


def _words(key: str, value: float | None) -> str:
    if key == "reading_level" and value is not None:
        return GRADES[int(value)]
    return "not measured" if value is None else number_words(value)
