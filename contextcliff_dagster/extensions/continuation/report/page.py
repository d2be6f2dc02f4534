"""The continuation report as data: the answer first, then collapsible evidence by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.continuation.analysis.wording import NAMES, measured_span
from contextcliff_dagster.extensions.continuation.documents import section_of
from contextcliff_dagster.extensions.continuation.report.figures import plot_arms, plot_sizes
from contextcliff_dagster.extensions.continuation.report.run_page import (
    interval_of,
    metric_chart,
    metric_name,
    plot_metrics,
)
from contextcliff_dagster.extensions.continuation.results import (
    ArmDifference,
    ArmResult,
    ContinuationResult,
    Decline,
    Endpoint,
    LossLocation,
    Recitation,
)
from contextcliff_dagster.reporting.html.metric_chart import interval_words, number_words
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Fold,
    Page,
    Paragraph,
    Section,
    as_folds,
    filled,
    of_each,
    picture,
)
from contextcliff_dagster.reporting.wording import (
    count,
    difference,
    estimate,
    level,
    p_value,
    percent,
    score,
    tokens,
    with_limits,
)
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.studies import Study


def arms(result: ContinuationResult) -> DataTable:
    """Return a table of each arm's verdict and the location of its loss."""
    rows: list[list[Cell]] = [
        [
            Code(arm.arm),
            arm.verdict.replace("_", " "),
            measured_span(arm.intact),
            f"{arm.n:,} ({arm.n_passages:,} of {arm.n_texts:,})",
            Bracketed(_ends(arm.score)),
            Bracketed(_ends(arm.intact)),
            _place(arm.score.location),
            _place(arm.intact.location),
        ]
        for arm in result.arms
    ]
    columns = [
        "arm",
        "verdict",
        "tokens of context",
        "generations",
        "score",
        "intact",
        "score lost at",
        "intact lost at",
    ]
    caption = (
        "Generations (passages of texts); mean score "
        "and share without collapse (intact) at the smallest and the largest size measured; tokens "
        "by which half of the loss has occurred"
    )
    return DataTable(columns, rows, caption, right=())


def _ends(endpoint: Endpoint) -> str:
    means = [size.mean for size in endpoint.sizes if size.mean is not None]
    if not means:
        return "not measured"
    return score(means[0]) + (f" to {score(means[-1])}" if len(means) > 1 else "")


def _place(location: LossLocation | None) -> Cell:
    if location is None:
        return None
    at = tokens(location.tokens, "open")
    return Bracketed(f"{at} [{tokens(location.low_tokens)}, {tokens(location.high_tokens)}]")


def sizes(arm: ArmResult, result: ContinuationResult) -> list[DataTable]:
    """Return a table per endpoint with one arm's means and declines at each size."""
    tables = []
    for endpoint in (arm.score, arm.intact):
        rows: list[list[Cell]] = [
            [
                tokens(size.context_tokens),
                f"{size.n:,} ({size.n_passages:,})",
                Bracketed(estimate(size.mean, size.ci_low, size.ci_high)),
                _decline(size.decline),
                p_value(None if size.decline is None else size.decline.p_value),
                p_value(None if size.decline is None else size.decline.p_holm),
                None if size.decline is None else difference(size.decline.upper),
            ]
            for size in endpoint.sizes
        ]
        trend = endpoint.trend
        if trend is not None:
            slope = f"{difference(-trend.slope)} per doubling"
            rows.append(
                ["trend", None, None, slope, p_value(trend.p_value), p_value(trend.p_holm), None]
            )
        columns = [
            "tokens of context",
            "generations (passages)",
            NAMES[endpoint.name],
            "decline",
            "p",
            "p, Holm",
            "ruled out above",
        ]
        caption = (
            f"{NAMES[endpoint.name].capitalize()} by context size, {level(result.confidence)} "
            f"intervals; decline from the smallest size, one-sided tests; Holm over {arm.tests} "
            "tests"
        )
        tables.append(DataTable(columns, rows, caption, right=()))
    return tables


def _decline(decline: Decline | None) -> Cell:
    if decline is None or decline.decline is None:
        return None
    return Bracketed(with_limits(decline.decline, decline.ci_low, decline.ci_high))


def collapses(arm: ArmResult, result: ContinuationResult) -> DataTable | None:
    """Return a table of collapses by kind and size, or None if there are none."""
    kinds = sorted({kind for size in arm.collapses for kind in size})
    if not kinds:
        return None
    rows: list[list[Cell]] = [
        [tokens(size), *(counts.get(kind, 0) for kind in kinds), outcome.n]
        for size, counts, outcome in zip(result.sizes, arm.collapses, arm.intact.sizes, strict=True)
    ]
    return DataTable(
        ["tokens of context", *kinds, "generations"], rows, "Collapsed generations by kind"
    )


def differences(result: ContinuationResult) -> DataTable | None:
    """Return the table of differences from the reference arm, or None with one arm."""
    rows: list[list[Cell]] = []
    for compared in result.comparisons:
        rows += [[Code(compared.arm), *_difference(row)] for row in compared.overall]
    columns = ["arm", "of", "passages", "difference", "p", "p, Holm"]
    caption = (
        f"Each arm less {result.reference}, passages paired; two-sided tests, Holm over all rows"
    )
    return filled(DataTable(columns, rows, caption, right=()))


def _difference(row: ArmDifference) -> Sequence[Cell]:
    what = f"{NAMES[row.endpoint]}, mean over sizes"
    if row.extra_decline:
        what = f"decline of the {NAMES[row.endpoint]} up to {tokens(row.context_tokens)} tokens"
    return (
        what,
        row.n_passages,
        Bracketed(with_limits(row.difference, row.ci_low, row.ci_high)),
        p_value(row.p_value),
        p_value(row.p_holm),
    )


def plan(arm: ArmResult) -> DataTable | None:
    """Return a table of passages needed to detect a decline, or None if the variance is unknown."""
    rows: list[list[Cell]] = [
        [f"{row.decline:g}", f"{row.power:g}", row.rounds, row.n_passages] for row in arm.plan
    ]
    columns = ["decline of the score", "power", "rounds", "passages"]
    caption = "Passages needed to show a decline at one context size, given this study's variance"
    return filled(DataTable(columns, rows, caption))


def metrics(arm: ArmResult, result: ContinuationResult) -> DataTable | None:
    """Return a table of one arm's metrics at each size, or None if there are no metrics."""
    rows: list[list[Cell]] = []
    for metric in result.metrics:
        series = next((item for item in metric.arms if item.arm == arm.arm), None)
        if series is None:
            continue
        author = metric.author
        spread = "" if author is None or author.sd is None else f" ± {number_words(author.sd)}"
        rows.append(
            [
                metric_name(metric.name),
                *(Bracketed(interval_words(row.mean, interval_of(row))) for row in series.sizes),
                "not measured" if author is None else f"{number_words(author.mean)}{spread}",
            ]
        )
    columns = ["metric", *(f"{tokens(size)} tokens" for size in result.sizes), "authors"]
    caption = (
        f"Means over passages with {level(result.confidence)} intervals; for the authors, with "
        "the SD between passages. They are not tested"
    )
    return filled(DataTable(columns, rows, caption, right=()))


def recitation(result: Recitation) -> DataTable:
    """Return the table of recited continuations by arm and size."""
    sizes = [size.context_tokens for size in result.arms[0].sizes]
    rows: list[list[Cell]] = [
        [Code(arm.arm), *(f"{size.recited:,} of {size.n:,}" for size in arm.sizes)]
        for arm in result.arms
    ]
    caption = "Recited continuations among those long enough to compare"
    return DataTable(
        ["arm", *(f"{tokens(size)} tokens" for size in sizes)], rows, caption, right=()
    )


def overview(result: ContinuationResult) -> dict[str, Any]:
    """Return the result as one row: verdict, and both endpoints at the first and last size."""
    reference = result.arms[0]
    row: dict[str, Any] = {
        "model": result.model,
        "verdict": result.verdict.replace("_", " "),
        "of": reference.arm,
        "arms": len(result.arms),
    }
    for what, endpoint in (("score", reference.score), ("intact", reference.intact)):
        for size in (endpoint.sizes[0], endpoint.sizes[-1]):
            row[f"{what} at {size.context_tokens:,} tokens"] = size.mean
        place = endpoint.location
        row[f"half of the loss of {what} at (tokens)"] = place and place.tokens
    return {**row, "continuations": result.n, "without a text": result.missing}


MEASURED = (
    "The model continues texts from fixed points, with ever more of the preceding text as context. "
    "Its score is the share of pairs of human passages whose prose is at least as far apart as the "
    "continuation is from the author's own next passage; human prose averages 0.5. "
    "Use of the context is not measured here; the length profile does that."
)


def continuation_page(
    results: Sequence[ContinuationResult],
    *,
    title: str,
    pictures: Mapping[str, bytes] | None = None,
) -> Page:
    """Return the page for the results, one per model, showing only the figures in ``pictures``."""
    drawn = pictures or {}
    head = [Section(title, [Paragraph(MEASURED)], 1)]
    for result in results:
        name = [Code(result.model)] if len(results) > 1 else "Result"
        head.append(Section(name, _answer(result, drawn)))
    folds = [
        Fold("What is lost at which size?", of_each(results, _sizes)),
        Fold("How did each prose metric change?", of_each(results, lambda r: _metrics(r, drawn))),
        Fold("Do the arms differ?", of_each(results, lambda r: _arms(r, drawn))),
        Fold("Does the model recite the text?", of_each(results, _recitation)),
        Fold("How sure is it?", of_each(results, _certainty)),
        Fold("How was it measured?", of_each(results, _method)),
    ]
    return Page(head, [fold for fold in folds if fold.sections])


def draw_pictures(results: Sequence[ContinuationResult]) -> dict[str, bytes]:
    """Return the pictures of each result as PNG bytes by file name."""
    draws = {"sizes": plot_sizes, "metrics": plot_metrics, "arms": plot_arms}
    return {
        picture_file(result, what): picture
        for result in results
        for what, draw in draws.items()
        if (picture := draw(result)) is not None
    }


def picture_file(result: ContinuationResult, what: str) -> str:
    """Return the file name of a result's picture ``what``: sizes, metrics or arms."""
    return f"continuation-{what}-{slug(result.model)}.png"


def _answer(result: ContinuationResult, pictures: Mapping[str, bytes]) -> list[Block]:
    alt = "Score and share without collapse over context size"
    return [
        Bullets(list(result.headline)),
        *picture(picture_file(result, "sizes"), alt, pictures),
        arms(result),
        *([Bullets(list(result.warnings))] if result.warnings else []),
    ]


def _sizes(result: ContinuationResult) -> list[Section]:
    sections = []
    for arm in result.arms:
        table = collapses(arm, result)
        blocks: list[Block] = [Bullets([arm.reason, *arm.sentences]), *sizes(arm, result)]
        sections.append(Section([Code(arm.arm)], [*blocks, *([table] if table else [])], 3))
    return sections


def _arms(result: ContinuationResult, pictures: Mapping[str, bytes]) -> list[Section]:
    table = differences(result)
    if table is None:
        return []
    sentences = [comparison.sentence for comparison in result.comparisons]
    alt = "Difference of each arm from the reference"
    figure = picture(picture_file(result, "arms"), alt, pictures)
    return [Section("Arms", [Bullets(sentences), *figure, table], 3)]


def _metrics(result: ContinuationResult, pictures: Mapping[str, bytes]) -> list[Section]:
    sections = [
        Section([Code(arm.arm)], [table], 3)
        for arm in result.arms
        if (table := metrics(arm, result)) is not None
    ]
    alt = "Each prose metric over context size"
    figure = picture(picture_file(result, "metrics"), alt, pictures)
    return [Section("", figure, 3), *sections] if figure else sections


def _recitation(result: ContinuationResult) -> list[Section]:
    rates = result.recitation
    if rates is None:
        return []
    text = (
        "A continuation is recited if it shares more with the author's next text than any of "
        f"{count(rates.chance_pairs, 'pair')} of human passages from different places of a text "
        f"do: these share runs of up to {count(rates.chance_run, 'word')}, and at most "
        f"{percent(rates.chance_share)} of their eight-word runs. Few recited continuations "
        "prove nothing: a model may know a text without reciting it."
    )
    return [Section("Recitation", [Paragraph(text), recitation(rates)], 3)]


def _certainty(result: ContinuationResult) -> list[Section]:
    sections = []
    for arm in result.arms:
        parts = arm.components
        blocks: list[Block] = []
        if parts is not None:
            blocks.append(
                Bullets(
                    [
                        f"SD of the score between passages: {score(parts.passage)}.",
                        "SD between passages in the effect of size: "
                        f"{score(parts.size_within_passage)}.",
                        f"SD between rounds: {score(parts.round, 'unknown with single rounds')}.",
                    ]
                )
            )
        table = plan(arm)
        blocks += [table] if table else []
        if blocks:
            sections.append(Section([Code(arm.arm)], blocks, 3))
    return sections


def _method(result: ContinuationResult) -> list[Section]:
    facts = [
        f"{result.n:,} generations ({result.missing:,} more have no text); a passage is "
        "one unit, however many rounds it has, and is compared with itself at other sizes.",
        f"Tests are one-sided permutations; the error rate of {level(1.0 - result.confidence)} is "
        "over the score, the share without collapse and all sizes of an arm (Holm).",
        f"A decline, or a difference between arms, matters from {result.margin:g} on; "
        f"intervals are at {level(result.confidence)}; resampling seed {result.seed}.",
        f"Tokens are counted by {result.tokenizer or 'an unnamed tokenizer'}.",
        f"Coherence in the records is measured by {result.embedder}; the score does not use it."
        if result.embedder
        else "Coherence was not measured (`continuation.embeddings`); no score depends on it.",
    ]
    return [Section("Method", [Bullets(facts)], 3)]


def write_continuation_report(
    run: StudyRun, results: Sequence[ContinuationResult], others: Sequence[Section]
) -> ReportFiles:
    """Write the page of a study without a length profile, then ``others``; raise StoreError."""
    from contextcliff_dagster.reporting.report_files import write_page

    pictures = draw_pictures(results)
    about = _sampling(run.study, results)
    title = (run.study.description or run.study.name).removesuffix(".")
    page = continuation_page(results, title=title, pictures=pictures)
    return write_page(
        Page(page.head, [*page.folds, *as_folds(others)]),
        run.store.report_dir(run.study.name, run.campaign),
        pictures=pictures,
        results=[to_json(result) for result in results],
        chart=metric_chart(results[0], about) if results and results[0].arms else None,
    )


def _sampling(study: Study, results: Sequence[ContinuationResult]) -> dict[str, list[str]]:
    """Return short statements on the sampling of each arm."""
    section = section_of(study)
    sampling = {}
    for arm in (arm.arm for result in results for arm in result.arms):
        heat = next(
            (t for t in section.temperature if arm.endswith(f"temperature {t:g}")),
            section.temperature[0],
        )
        sampling[arm] = [
            f"temperature {heat:g}, top-k {section.top_k or 'all'}, top-p {section.top_p:g}",
            f"{count(section.rounds, 'round')} from seed {section.seed}, up to "
            f"{tokens(section.max_tokens)} tokens each",
        ]
    return sampling
