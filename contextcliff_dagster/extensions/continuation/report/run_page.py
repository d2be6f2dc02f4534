"""Finished runs as one HTML file to explore: every metric over context size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.extensions.continuation.compat.metrics import (
    COHERENCE_KEYS,
    LEVELS,
    METRICS,
)
from contextcliff_dagster.extensions.continuation.compat.result_files import (
    ContextResult,
    Run,
    file_name,
    read_run,
)
from contextcliff_dagster.extensions.continuation.compat.statistics import (
    Round,
    convergence,
    degradation_statistics,
    trend_analysis,
    values_of,
)
from contextcliff_dagster.extensions.continuation.figures import PANELS, plot_standard, value_of
from contextcliff_dagster.reporting.figures import house
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
from contextcliff_dagster.reporting.wording import count, level, tokens
from contextcliff_dagster.store import write_atomic, write_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from contextcliff_dagster.extensions.continuation.results import (
        ArmResult,
        ContinuationResult,
        MetricSize,
        SizeOutcome,
    )

METRIC_NAMES = {
    "score": "Score (nearness to the author's prose)",
    "intact": "Share without collapse",
    "diversity_50": "Distinct words within 50 (share)",
    "diversity_200": "Distinct words within 200 (share)",
    "repetition_50": "Repeated pairs of words within 50 (share)",
    "repetition_200": "Repeated runs of three words within 200 (share)",
    "word_length": "Letters of a word",
    "long_words": "Words of more than six letters (share)",
    "function_words": "Function words (share)",
    "broken_articles": "Articles without a noun (share)",
    "pronouns": "Pronouns (share)",
    "sentences": "Sentences",
    "sentence_length": "Words of a sentence",
    "sentence_variation": "Variation of sentence lengths",
    "rhythm": "Correlation of neighbouring sentence lengths",
    "lix": "Readability (LIX)",
    "shared_content": "Content words shared with the sentence before (share)",
    "commas": "Commas in 100 words",
    "semicolons": "Semicolons in 100 words",
    "questions": "Question marks in 100 words",
    "exclamations": "Exclamation marks in 100 words",
    "dashes": "Dashes in 100 words",
    "quotation_marks": "Quotation marks in 100 words",
    "near_coherence": "Similarity of neighbouring sentences",
    "far_coherence": "Similarity of sentences five apart",
}
FIRST = (
    "score",
    "diversity_200",
    "diversity_50",
    "lix",
    "repetition_200",
    "repetition_50",
    "intact",
)
"""Metrics of the first four panels: the first four that are measured."""


def metric_name(key: str) -> str:
    """The name of a column of the records."""
    return METRIC_NAMES.get(key, key.replace("_", " ").capitalize())


def metric_chart(
    result: ContinuationResult, about: Mapping[str, Sequence[str]] | None = None
) -> MetricChart:
    """Return the metrics of ``result``, score and share without collapse first.

    ``about``: arm -> how it was sampled, in short statements.
    """
    of = "text" if result.arms[0].clusters == "texts" else "passage"
    lines = [_arm_line(arm, result, (about or {}).get(arm.arm, ())) for arm in result.arms]
    measured = {
        key
        for line in lines
        for key, of in line.points.items()
        if any(p.mean is not None for p in of)
    }
    return MetricChart(
        title="Each metric over context size",
        kind="arm",
        metrics=[
            Metric(key, metric_name(key))
            for key in ("score", "intact", *(one.name for one in result.metrics))
        ],
        lines=lines,
        authors=[Author(author_figures(result))],
        bars=f"Points are means over passages; bars are {level(result.confidence)} intervals, "
        f"over {of}.",
        band="Dashed: what the authors wrote after the same points, with a band of one SD between "
        "passages; for the score, human passages and where means of as many lie.",
        first=[key for key in FIRST if key in measured][:4],
    )


def points_of(arm: ArmResult, result: ContinuationResult) -> dict[str, list[Point]]:
    """Metric -> a point for each size of the result; metrics without any figure are empty."""
    sizes: dict[str, Sequence[SizeOutcome | MetricSize]] = {
        "score": arm.score.sizes,
        "intact": arm.intact.sizes,
    }
    for metric in result.metrics:
        for own in metric.arms:
            if own.arm == arm.arm:
                sizes[metric.name] = own.sizes
    return {key: [_arm_point(one) for one in found] for key, found in sizes.items()}


def author_figures(result: ContinuationResult) -> dict[str, tuple[float, Interval | None]]:
    """Metric -> the authors' mean and the band around it."""
    found: dict[str, tuple[float, Interval | None]] = {}
    if result.human is not None:
        human = result.human
        found["score"] = human.mean, (human.floor_low, human.floor_high)
    for metric in result.metrics:
        own = metric.author
        if own is not None:
            band = None if own.sd is None else (own.mean - own.sd, own.mean + own.sd)
            found[metric.name] = own.mean, band
    return found


def _arm_line(arm: ArmResult, result: ContinuationResult, about: Sequence[str]) -> Line:
    points = points_of(arm, result)
    return Line(arm.arm, list(result.sizes), points, about)


def _arm_point(one: SizeOutcome | MetricSize) -> Point:
    interval = None
    if one.ci_low is not None and one.ci_high is not None:
        interval = (one.ci_low, one.ci_high)
    rounds = [value for value in one.rounds if value is not None]
    words = f"{count(one.n, 'continuation')} of {count(one.n_passages, 'passage')}"
    if len(rounds) > 1:
        words += f", {len(one.rounds)} rounds"
    return Point(one.mean, interval, words, one.rounds)


_COLUMNS = 4
_LEFT, _GAP, _HEAD, _FOOT = 0.55, 0.5, 1.0, 0.75
_TALL, _NAME = 1.05, 0.6
_AUTHOR = "#2E8B57"


@house.styled()
def plot_metrics(result: ContinuationResult) -> bytes | None:
    """PNG bytes: a panel for each metric that any arm has; None without any but score and share.

    Bars are intervals; dashed with a band of one SD: the authors. Same input, same bytes.
    """
    points = [points_of(arm, result) for arm in result.arms]
    shown = [
        key
        for key in ("score", "intact", *(one.name for one in result.metrics))
        if any(point.mean is not None for arm in points for point in arm.get(key, ()))
    ]
    if not set(shown) - {"score", "intact"}:
        return None
    pitch = _TALL + _NAME
    height = _HEAD + math.ceil(len(shown) / _COLUMNS) * pitch + _FOOT
    figure = house.blank_page(height)
    wide = (house.WIDTH - _LEFT - 0.3 - (_COLUMNS - 1) * _GAP) / _COLUMNS
    limits = house.with_air(*house.token_limits([float(size) for size in result.sizes]))
    authors = author_figures(result)
    for place, key in enumerate(shown):
        row, column = divmod(place, _COLUMNS)
        left, bottom = _LEFT + column * (wide + _GAP), height - _HEAD - (row + 1) * pitch + 0.12
        axes = house.panel(figure, left, bottom, wide, _TALL)
        house.token_axis(axes, limits, named=place + _COLUMNS >= len(shown), most=4)
        axes.tick_params(length=2, labelsize=8.5)
        axes.locator_params(axis="y", nbins=4)
        axes.grid(axis="y")
        if key in authors:
            mean, band = authors[key]
            axes.axhline(mean, color=_AUTHOR, ls="--", lw=1.1, zorder=1)
            if band:
                axes.axhspan(*band, color=_AUTHOR, alpha=0.1, lw=0, zorder=0)
        for number, arm in enumerate(points):
            _draw(axes, result.sizes, arm.get(key, ()), number)
        house.write(
            figure, left, bottom + _TALL + 0.15, house.shortened(metric_name(key), 34), fontsize=9
        )
    title = f"Metrics of prose over context size: {house.shortened(result.model, 48)}"
    house.write(figure, 0.4, height - 0.3, title, fontsize=13, fontweight="bold")
    figure.legend(
        handles=_legend(result),
        loc="upper left",
        bbox_to_anchor=(0.025, 1 - 0.42 / height),
        ncol=min(len(result.arms), 5),
        fontsize=9.5,
    )
    note = (
        f"Tokens of context (log scale). Means over passages with {level(result.confidence)} "
        "intervals. Dashed: the authors, with a band of one SD between passages."
    )
    house.write(figure, 0.4, 0.25, note, fontsize=9.5, color=house.SOFT_INK)
    return house.png_bytes(figure, 64)


def _draw(axes: Axes, sizes: Sequence[int], points: Sequence[Point], number: int) -> None:
    style = house.look(number)
    found = [(x, one.mean, one) for x, one in zip(sizes, points, strict=False)]
    known = [(x, mean, one) for x, mean, one in found if mean is not None]
    at, means = [x for x, _, _ in known], [mean for _, mean, _ in known]
    axes.plot(at, means, color=style.colour, ls=style.dash, lw=1.2, zorder=3)
    house.draw_markers(axes, at, means, style.colour, marker=style.marker, ms=4, mew=0.5, zorder=4)
    for x, _, one in known:
        if one.interval is not None:
            axes.plot([x, x], one.interval, color=style.colour, lw=0.9, zorder=2)


def _legend(result: ContinuationResult) -> list[Line2D]:
    from matplotlib.lines import Line2D

    styles = [(house.look(number), arm.arm) for number, arm in enumerate(result.arms)]
    return [
        Line2D(
            [],
            [],
            color=style.colour,
            ls=style.dash,
            marker=style.marker,
            label=house.shortened(name, 28),
        )
        for style, name in styles
    ]


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
    from contextcliff_dagster.reporting.report_files import for_readers

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


View = Literal["standard", "rounds", "enhanced", "convergence"]


MOST_RUNS = 6


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What is drawn, where to, how fine; ``tolerance``: share of the author's figure that is near.

    ``folder``: of the files; ``dpi``: pixels an inch, of a picture that is 11.5 inches wide.
    """

    view: View = "standard"
    tolerance: float = 0.1
    dpi: int = 300
    folder: Path = Path("continuation-comparison")


@dataclass(frozen=True, slots=True)
class Compared:
    """The files that were written, pictures first, and the content of the JSON file."""

    files: tuple[Path, ...]
    result: dict[str, Any]


def compare_results(paths: Sequence[Path], options: CompareOptions) -> Compared:
    """Draw one to six runs, each a folder of results or a CSV file, and write their figures.

    Files of the same view in the folder are replaced.

    Raises:
        DataError: too many runs for the view, or one without what it needs.
        ScoreFileError: a run cannot be read.
        StoreError: the files cannot be written.
    """
    most = 1 if options.view == "enhanced" else MOST_RUNS
    if not 1 <= len(paths) <= most:
        wanted = "one run" if most == 1 else f"one to {most} runs"
        raise DataError(f"{len(paths)} runs are given; the {options.view} view takes {wanted}.")
    runs = _named_apart([read_run(path) for path in paths], paths)
    for run, path in zip(runs, paths, strict=True):
        _require(run, path, options.view)
    result: dict[str, Any] = {"view": options.view, "runs": [run_summary(run) for run in runs]}
    pictures = _pictures(runs, options, result)
    files = []
    for name, content in pictures.items():
        write_atomic(options.folder / name, content, private=False)
        files.append(options.folder / name)
    page = write_run_page(runs, options.folder)
    write_json(options.folder / f"{options.view}.json", result)
    return Compared((*files, page, options.folder / f"{options.view}.json"), result)


def _pictures(
    runs: Sequence[Run], options: CompareOptions, result: dict[str, Any]
) -> dict[str, bytes]:
    """PNG files by name; what the view computes is added to ``result``."""
    from contextcliff_dagster.extensions.continuation.figures import (
        plot_convergence,
        plot_enhanced,
        plot_rounds,
        plot_standard,
    )

    if options.view == "enhanced":
        found = degradation_statistics(runs[0].rounds)
        result["statistics"] = found
        return {"enhanced.png": plot_enhanced(runs[0], found, options.dpi)}
    if options.view == "convergence":
        near = [convergence(run.averages, run.author, options.tolerance) for run in runs]
        for summary, one in zip(result["runs"], near, strict=True):
            firsts = {metric: one.first_size(metric) for metric in one.near}
            summary |= {"tolerance": one.tolerance, "near": one.near, "first_size": firsts}
            summary["groups"] = one.groups()
        names = [
            "convergence.png" if len(runs) == 1 else f"convergence-{k}-{file_name(run.name)}.png"
            for k, run in enumerate(runs, 1)
        ]
        return {
            name: plot_convergence(run, one, options.dpi)
            for name, run, one in zip(names, runs, near, strict=True)
        }
    plot = plot_rounds if options.view == "rounds" else plot_standard
    return {f"{options.view}.png": plot(runs, options.dpi)}


def _named_apart(runs: Sequence[Run], paths: Sequence[Path]) -> list[Run]:
    """The runs, with their paths as ids where names are the same."""
    names = [run.name for run in runs]
    return [
        run
        if names.count(run.name) == 1
        else Run(
            {**run.metadata, "model_id": str(path)}, run.contexts, run.author, run.context_lengths
        )
        for run, path in zip(runs, paths, strict=True)
    ]


def _require(run: Run, path: Path, view: View) -> None:
    if view in ("rounds", "enhanced") and not run.rounds:
        raise DataError(
            f"{path} has averages only, and the {view} view needs each round; name the folder with "
            "its context_N_results.json files."
        )
    if view == "convergence" and not convergence(run.averages, run.author).near:
        raise DataError(
            f"{path} has no figures of the author's text, which the convergence view compares "
            "with; name a folder whose metadata.json has ground_truth_analysis."
        )


def run_summary(run: Run) -> dict[str, Any]:
    """Averages by context size, the author's figures, trends and degradation points."""
    averages = {
        size: {metric: figures[metric] for metric in METRICS if metric in figures}
        for size, figures in run.averages.items()
    }
    return {
        "name": run.name,
        "text": run.metadata.get("source_text_name"),
        "rounds": {size: len(some) for size, some in run.rounds.items()} or None,
        "author": {metric: run.author[metric] for metric in METRICS if metric in run.author},
        "averages": averages,
        **trend_analysis(run.averages),
    }
