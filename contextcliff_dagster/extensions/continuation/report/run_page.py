"""Interactive HTML page of finished runs: every metric over context size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    "repetition_50": "Repeated word pairs within 50 (share)",
    "repetition_200": "Repeated three-word runs within 200 (share)",
    "word_length": "Letters per word",
    "long_words": "Words of more than six letters (share)",
    "function_words": "Function words (share)",
    "broken_articles": "Articles without a noun (share)",
    "pronouns": "Pronouns (share)",
    "sentences": "Sentences",
    "sentence_length": "Words per sentence",
    "sentence_variation": "Variation of sentence lengths",
    "rhythm": "Correlation of neighbouring sentence lengths",
    "lix": "Readability (LIX)",
    "shared_content": "Content words shared with the previous sentence (share)",
    "commas": "Commas per 100 words",
    "semicolons": "Semicolons per 100 words",
    "questions": "Question marks per 100 words",
    "exclamations": "Exclamation marks per 100 words",
    "dashes": "Dashes per 100 words",
    "quotation_marks": "Quotation marks per 100 words",
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
"""Candidates for the first four panels, which show the first four that were measured."""


def metric_name(key: str) -> str:
    """Return the display name of a column of the records."""
    return METRIC_NAMES.get(key, key.replace("_", " ").capitalize())


def metric_chart(
    result: ContinuationResult, about: Mapping[str, Sequence[str]] | None = None
) -> MetricChart:
    """Return a chart of the metrics in ``result``, score and share without collapse first.

    ``about`` states in a few words how each arm was sampled.
    """
    of = "text" if result.arms[0].clusters == "texts" else "passage"
    lines = [
        Line(arm.arm, list(result.sizes), points_of(arm, result), (about or {}).get(arm.arm, ()))
        for arm in result.arms
    ]
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
            for key in ("score", "intact", *(metric.name for metric in result.metrics))
        ],
        lines=lines,
        authors=[Author(author_figures(result))],
        bars=f"Points are means over passages; bars are {level(result.confidence)} intervals, "
        f"over {of}.",
        band="Dashed: what the authors wrote after the same points, with a band of one SD between "
        "passages; for the score, human passages and the range of means of as many.",
        first=[key for key in FIRST if key in measured][:4],
    )


def points_of(arm: ArmResult, result: ContinuationResult) -> dict[str, list[Point]]:
    """Return a point for each metric and size of the result."""
    sizes: dict[str, Sequence[SizeOutcome | MetricSize]] = {
        "score": arm.score.sizes,
        "intact": arm.intact.sizes,
    }
    for metric in result.metrics:
        for arm_metric in metric.arms:
            if arm_metric.arm == arm.arm:
                sizes[metric.name] = arm_metric.sizes
    return {key: [_arm_point(size) for size in entries] for key, entries in sizes.items()}


def author_figures(result: ContinuationResult) -> dict[str, tuple[float, Interval | None]]:
    """Return, for each metric, the authors' mean and the band around it."""
    figures: dict[str, tuple[float, Interval | None]] = {}
    if human := result.human:
        figures["score"] = human.mean, (human.floor_low, human.floor_high)
    for metric in result.metrics:
        if author := metric.author:
            band = None if author.sd is None else (author.mean - author.sd, author.mean + author.sd)
            figures[metric.name] = author.mean, band
    return figures


def interval_of(size: SizeOutcome | MetricSize) -> tuple[float, float] | None:
    """Return the interval of the mean, or None without one."""
    return None if size.ci_low is None or size.ci_high is None else (size.ci_low, size.ci_high)


def _arm_point(size: SizeOutcome | MetricSize) -> Point:
    rounds = [value for value in size.rounds if value is not None]
    words = f"{count(size.n, 'continuation')} of {count(size.n_passages, 'passage')}"
    if len(rounds) > 1:
        words += f", {len(size.rounds)} rounds"
    return Point(size.mean, interval_of(size), words, size.rounds)


_COLUMNS = 4
_LEFT, _GAP, _HEAD, _FOOT = 0.55, 0.5, 1.0, 0.75
_TALL, _NAME = 1.05, 0.6
_AUTHOR = "#2E8B57"


@house.styled()
def plot_metrics(result: ContinuationResult) -> bytes | None:
    """Draw a panel for each measured metric; return the PNG, or None without prose metrics.

    Bars are intervals; the dashed line with a band of one SD shows the authors.
    """
    points = [points_of(arm, result) for arm in result.arms]
    shown = [
        key
        for key in ("score", "intact", *(metric.name for metric in result.metrics))
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
        handles=house.line_handles(house.shortened(arm.arm, 28) for arm in result.arms),
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
    pairs = [(x, point.mean, point) for x, point in zip(sizes, points, strict=False)]
    finite = [(x, mean, point) for x, mean, point in pairs if mean is not None]
    at, means = [x for x, _, _ in finite], [mean for _, mean, _ in finite]
    axes.plot(at, means, color=style.colour, ls=style.dash, lw=1.2, zorder=3)
    house.draw_markers(axes, at, means, style.colour, marker=style.marker, ms=4, mew=0.5, zorder=4)
    for x, _, point in finite:
        if point.interval is not None:
            axes.plot([x, x], point.interval, color=style.colour, lw=0.9, zorder=2)


FILE = "comparison.html"
TITLE = "Continuations of finished runs"
NOTE = (
    "The formulas are Context-Tester's, rounding included; its rule for degradation does not "
    "account for chance, so this page gives no verdict. Each run has one passage: intervals over "
    "its rounds do not extend to other passages."
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
    "avg_sentence_length": "Words per sentence",
    "reading_level": "Reading level (school grade)",
    "word_count": "Words",
    "sentence_count": "Sentences",
    "sentence_length_variance": "Variance of sentence lengths",
    "trigram_repetition_rate": "Repeated three-word runs",
    "unique_word_ratio_100": "Distinct words within 100",
    "word_entropy": "Entropy of words (bits)",
    "char_entropy": "Entropy of characters (bits)",
    "comma_density": "Commas per sentence",
    "semicolon_density": "Semicolons per sentence",
    "question_density": "Question marks per sentence",
    "exclamation_density": "Exclamation marks per sentence",
    "avg_syllables_per_word": "Syllables per word",
    "long_word_ratio": "Words of more than six letters (share)",
    "function_word_ratio": "Function words (share)",
    "sentence_length_skewness": "Skewness of sentence lengths",
    "sentence_length_kurtosis": "Kurtosis of sentence lengths",
    "avg_word_length": "Letters per word",
    "global_coherence": "Similarity to the mean of all sentences",
    "local_coherence_3sent": "Similarity within three sentences",
    "coherence_variance": "Variance of neighbours' similarity",
}


GRADES = (*(name for _, name in LEVELS), "16+")
"""Reading levels, easiest first."""


def write_run_page(runs: Sequence[Run], folder: Path, name: str = FILE) -> Path:
    """Write the page ``name``, with `run_chart` and tables of averages, into ``folder``; return its
    path.

    The page contains no secrets from the environment and no absolute paths on this machine.

    Raises:
        StoreError: the file cannot be written.
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
        Fold("How were the runs made?", [Section(run.name, [_facts(run)], 3) for run in runs]),
    ]
    folds = [Fold(fold.question, map_texts(fold.sections, redact)) for fold in folds]
    html = html_page(
        TITLE,
        blocks_html([Paragraph(NOTE)]) + metric_chart_html(chart),
        folds,
        metric_chart_interactive(chart),
        {"standard.png": plot_standard(runs, 110)},
    )
    write_atomic(folder / name, html.encode(), private=False)
    return folder / name


def run_chart(runs: Sequence[Run]) -> MetricChart:
    """Return the chart of every metric, with a line per run and the known author figures."""
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
        band="Dashed: the author's own text of each run, if its files have it.",
        first=[panel.key for panel in PANELS],
    )


def _line(run: Run) -> Line:
    averages = run.averages
    points = {
        key: [_point(run.contexts[size], averages[size], key) for size in averages]
        for key in METRICS
    }
    return Line(run.name, list(averages), points, _settings_words(run))


def _point(result: ContextResult, average: Round, key: str) -> Point:
    rounds = [_value(figures, key) for figures in result.rounds]
    planned = average.get("num_rounds")
    n = len(rounds) or (int(planned) if isinstance(planned, int | float) else 0)
    words = count(n, "round") if n else "unknown number of rounds"
    mean = _value(average, key)
    return Point(mean, _interval(result, average, key, n), words, rounds if len(rounds) > 1 else ())


def _interval(result: ContextResult, average: Round, key: str, n: int) -> Interval | None:
    """Return the interval over rounds, or from SDs, which a CSV file has for two metrics."""
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
    figures = {key: _value(run.author, key) for key in METRICS}
    return {key: (value, None) for key, value in figures.items() if value is not None}


def _settings_words(run: Run) -> list[str]:
    settings: Mapping[str, Any] = run.metadata.get("generation_params") or {}
    text = run.metadata.get("source_text_name")
    sampling = [
        words.format(settings[key])
        for key, words in _SETTINGS.items()
        if settings.get(key) is not None
    ]
    return [*([f"text: {text}"] if text else []), *([", ".join(sampling)] if sampling else [])]


def _facts(run: Run) -> DataTable:
    fields = {key: run.metadata.get(key) for key in ("model_name", "model_id", "source_text_name")}
    rows: list[list[Cell]] = [
        [key.replace("_", " "), str(value)] for key, value in fields.items() if value is not None
    ]
    rows += [["sampling", words] for words in _settings_words(run)[-1:]]
    return DataTable(["what", "value"], rows, right=())


def _table(run: Run) -> Section:
    averages = run.averages
    rows: list[list[Cell]] = []
    for key in METRICS:
        values = [_value(figures, key) for figures in averages.values()]
        if any(value is not None for value in values):
            cells = [*values, _value(run.author, key)]
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
    """Options for a comparison; averages within ``tolerance`` of the author's figure are near.

    ``folder`` receives the files; ``dpi`` is pixels per inch of a picture 11.5 inches wide.
    """

    view: View = "standard"
    tolerance: float = 0.1
    dpi: int = 300
    folder: Path = Path("continuation-comparison")


@dataclass(frozen=True, slots=True)
class Compared:
    """The files written, pictures first, and the content of the JSON file."""

    files: tuple[Path, ...]
    result: dict[str, Any]


def compare_results(paths: Sequence[Path], options: CompareOptions) -> Compared:
    """Draw one to six runs, each a folder of results or a CSV file, and write their figures.

    Files of the same view in the folder are replaced.

    Raises:
        DataError: there are too many runs for the view, or a run lacks data for it.
        ScoreFileError: a run cannot be read.
        StoreError: the files cannot be written.
    """
    most = 1 if options.view == "enhanced" else MOST_RUNS
    if not 1 <= len(paths) <= most:
        wanted = "one run" if most == 1 else f"one to {most} runs"
        raise DataError(f"The {options.view} view takes {wanted}; {len(paths)} are given.")
    runs = _distinct_names([read_run(path) for path in paths], paths)
    for run, path in zip(runs, paths, strict=True):
        _require(run, path, options.view)
    result: dict[str, Any] = {"view": options.view, "runs": [run_summary(run) for run in runs]}
    files = []
    for name, content in _pictures(runs, options, result).items():
        write_atomic(options.folder / name, content, private=False)
        files.append(options.folder / name)
    name = FILE if options.view == "standard" else f"comparison-{options.view}.html"
    page = write_run_page(runs, options.folder, name)
    write_json(options.folder / f"{options.view}.json", result)
    return Compared((*files, page, options.folder / f"{options.view}.json"), result)


def _pictures(
    runs: Sequence[Run], options: CompareOptions, result: dict[str, Any]
) -> dict[str, bytes]:
    """Return the PNG files by name, and add the view's statistics to ``result``."""
    from contextcliff_dagster.extensions.continuation.figures import (
        plot_convergence,
        plot_enhanced,
        plot_rounds,
        plot_standard,
    )

    if options.view == "enhanced":
        statistics = degradation_statistics(runs[0].rounds)
        trend = ("trend_correlation", "trend_p_value")
        undefined = {key: None for key in trend if math.isnan(statistics[key])}
        result["statistics"] = statistics | undefined
        return {"enhanced.png": plot_enhanced(runs[0], statistics, options.dpi)}
    if options.view == "convergence":
        near = [convergence(run.averages, run.author, options.tolerance) for run in runs]
        for summary, match in zip(result["runs"], near, strict=True):
            firsts = {metric: match.first_size(metric) for metric in match.near}
            summary |= {"tolerance": match.tolerance, "near": match.near, "first_size": firsts}
            summary["groups"] = match.groups()
        names = [
            "convergence.png" if len(runs) == 1 else f"convergence-{k}-{file_name(run.name)}.png"
            for k, run in enumerate(runs, 1)
        ]
        return {
            name: plot_convergence(run, match, options.dpi)
            for name, run, match in zip(names, runs, near, strict=True)
        }
    plot = plot_rounds if options.view == "rounds" else plot_standard
    return {f"{options.view}.png": plot(runs, options.dpi)}


def _distinct_names(runs: Sequence[Run], paths: Sequence[Path]) -> list[Run]:
    """Return the runs; those that share a name get their paths as ids."""
    names = [run.name for run in runs]
    return [
        run
        if names.count(run.name) == 1
        else replace(run, metadata={**run.metadata, "model_id": str(path)})
        for run, path in zip(runs, paths, strict=True)
    ]


def _require(run: Run, path: Path, view: View) -> None:
    if view in ("rounds", "enhanced") and not run.rounds:
        raise DataError(
            f"{path} has only averages, but the {view} view needs each round; give the folder with "
            "its context_N_results.json files."
        )
    if view == "convergence" and not convergence(run.averages, run.author).near:
        raise DataError(
            f"{path} has no figures of the author's text, which the convergence view compares "
            "with; choose a folder whose metadata.json has ground_truth_analysis."
        )


def run_summary(run: Run) -> dict[str, Any]:
    """Return averages by context size, the author's figures, trends and degradation points."""
    averages = {
        size: {metric: figures[metric] for metric in METRICS if metric in figures}
        for size, figures in run.averages.items()
    }
    return {
        "name": run.name,
        "text": run.metadata.get("source_text_name"),
        "rounds": {size: len(rounds) for size, rounds in run.rounds.items()} or None,
        "author": {metric: run.author[metric] for metric in METRICS if metric in run.author},
        "averages": averages,
        **trend_analysis(run.averages),
    }
