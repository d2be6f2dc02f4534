"""The report on continuations as data: the answer first, what carries it folded by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.continuation.analysis.wording import NAMES
from contextcliff_dagster.extensions.continuation.documents import section_of
from contextcliff_dagster.extensions.continuation.report.figures import plot_arms, plot_sizes
from contextcliff_dagster.extensions.continuation.report.run_page import (
    metric_chart,
    metric_name,
    plot_metrics,
)
from contextcliff_dagster.extensions.continuation.results import ArmResult, ContinuationResult
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
    from contextcliff_dagster.extensions.continuation.results import (
        ArmDifference,
        Decline,
        Endpoint,
        LossLocation,
        MetricSize,
        Recitation,
    )
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.studies import Study


def arms(result: ContinuationResult) -> DataTable:
    """Verdict and location of each arm."""
    rows: list[list[Cell]] = [
        [
            Code(arm.arm),
            arm.verdict.replace("_", " "),
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
        "generations",
        "score",
        "intact",
        "score lost at",
        "intact lost at",
    ]
    caption = (
        f"Each arm from {tokens(result.sizes[0])} to {tokens(result.sizes[-1])} tokens of context; "
        "generations (passages of texts); mean score and share without collapse (intact) at the "
        "smallest and at the largest size; tokens at which half of either is lost"
    )
    return DataTable(columns, rows, caption, right=())


def _ends(endpoint: Endpoint) -> str:
    known = [one.mean for one in endpoint.sizes if one.mean is not None]
    return f"{score(known[0])} to {score(known[-1])}" if known else "not measured"


def _place(found: LossLocation | None) -> Cell:
    if found is None:
        return None
    at = tokens(found.tokens, "open")
    return Bracketed(f"{at} [{tokens(found.low_tokens)}, {tokens(found.high_tokens)}]")


def sizes(arm: ArmResult, result: ContinuationResult) -> list[DataTable]:
    """Means and declines of one arm at each size, a table an endpoint."""
    found = []
    for endpoint in (arm.score, arm.intact):
        rows: list[list[Cell]] = [
            [
                tokens(one.context_tokens),
                f"{one.n:,} ({one.n_passages:,})",
                Bracketed(estimate(one.mean, one.ci_low, one.ci_high)),
                _decline(one.decline),
                p_value(None if one.decline is None else one.decline.p_value),
                p_value(None if one.decline is None else one.decline.p_holm),
                None if one.decline is None else difference(one.decline.upper),
            ]
            for one in endpoint.sizes
        ]
        trend = endpoint.trend
        if trend is not None:
            slope = f"{difference(-trend.slope)} a doubling"
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
            "excluded above",
        ]
        caption = (
            f"{NAMES[endpoint.name].capitalize()} by context size, {level(result.confidence)} "
            f"intervals; decline from the smallest size, one-sided tests; Holm over {arm.tests} "
            "tests"
        )
        found.append(DataTable(columns, rows, caption, right=()))
    return found


def _decline(found: Decline | None) -> Cell:
    if found is None or found.decline is None:
        return None
    return Bracketed(with_limits(found.decline, found.ci_low, found.ci_high))


def collapses(arm: ArmResult, result: ContinuationResult) -> DataTable | None:
    """Collapsed generations by kind and size; None without any."""
    kinds = sorted({kind for one in arm.collapses for kind in one})
    if not kinds:
        return None
    rows: list[list[Cell]] = [
        [tokens(size), *(found.get(kind, 0) for kind in kinds), one.n]
        for size, found, one in zip(result.sizes, arm.collapses, arm.intact.sizes, strict=True)
    ]
    return DataTable(
        ["tokens of context", *kinds, "generations"], rows, "Collapsed generations by kind"
    )


def differences(result: ContinuationResult) -> DataTable | None:
    """Each arm less the reference: means over sizes and extra declines; None with one arm."""
    rows: list[list[Cell]] = []
    for compared in result.comparisons:
        rows += [[Code(compared.arm), *_difference(row)] for row in compared.overall]
    if not rows:
        return None
    columns = ["arm", "of", "passages", "difference", "p", "p, Holm"]
    caption = (
        f"Each arm less {result.reference}, passages paired; two-sided tests, Holm over all rows"
    )
    return DataTable(columns, rows, caption, right=())


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
    """Passages that a decline needs; None where the variance is not known."""
    if not arm.plan:
        return None
    rows: list[list[Cell]] = [
        [f"{row.decline:g}", f"{row.power:g}", row.rounds, row.n_passages] for row in arm.plan
    ]
    return DataTable(
        ["decline of the score", "power", "rounds", "passages"],
        rows,
        "Passages that show a decline at one context size, from this study's variance",
    )


def metrics(arm: ArmResult, result: ContinuationResult) -> DataTable | None:
    """Means of every metric of one arm at each size; None without any metric."""
    rows: list[list[Cell]] = []
    for metric in result.metrics:
        own = next((one for one in metric.arms if one.arm == arm.arm), None)
        if own is None:
            continue
        author = metric.author
        spread = "" if author is None or author.sd is None else f" ± {number_words(author.sd)}"
        rows.append(
            [
                metric_name(metric.name),
                *(Bracketed(interval_words(one.mean, _interval(one))) for one in own.sizes),
                "not measured" if author is None else f"{number_words(author.mean)}{spread}",
            ]
        )
    if not rows:
        return None
    columns = ["metric", *(f"{tokens(size)} tokens" for size in result.sizes), "authors"]
    caption = (
        f"Means over passages with {level(result.confidence)} intervals; of the authors, with the "
        "SD between passages. No test rests on them"
    )
    return DataTable(columns, rows, caption, right=())


def _interval(one: MetricSize) -> tuple[float, float] | None:
    return None if one.ci_low is None or one.ci_high is None else (one.ci_low, one.ci_high)


def recitation(found: Recitation) -> DataTable:
    """Recited continuations of each arm by size."""
    sizes = [one.context_tokens for one in found.arms[0].sizes]
    rows: list[list[Cell]] = [
        [Code(arm.arm), *(f"{one.recited:,} of {one.n:,}" for one in arm.sizes)]
        for arm in found.arms
    ]
    caption = "Recited continuations, of those long enough to be compared"
    return DataTable(
        ["arm", *(f"{tokens(size)} tokens" for size in sizes)], rows, caption, right=()
    )


def overview(result: ContinuationResult) -> dict[str, Any]:
    """Return the result as one row: verdict, and score and share without collapse at each end."""
    reference = result.arms[0]
    row: dict[str, Any] = {
        "model": result.model,
        "verdict": result.verdict.replace("_", " "),
        "of": reference.arm,
        "arms": len(result.arms),
    }
    for what, endpoint in (("score", reference.score), ("intact", reference.intact)):
        for one in (endpoint.sizes[0], endpoint.sizes[-1]):
            row[f"{what} at {one.context_tokens:,} tokens"] = one.mean
        place = endpoint.location
        row[f"half of the loss of {what} at (tokens)"] = place and place.tokens
    return {**row, "continuations": result.n, "without a text": result.missing}


MEASURED = (
    "The model continues texts from fixed points, with more and more of the text before them as "
    "context. Its score is the share of pairs of human passages that are at least as far apart in "
    "their prose as the continuation is from the author's own next passage: human prose scores 0.5 "
    "on average. Whether it uses the context is not asked; the length profile measures that."
)


def continuation_page(
    results: Sequence[ContinuationResult],
    *,
    title: str,
    pictures: Mapping[str, bytes] | None = None,
) -> Page:
    """Return the page over one result a model; figures only of those in ``pictures``."""
    there = pictures or {}
    head = [Section(title, [Paragraph(MEASURED)], 1)]
    for result in results:
        name = [Code(result.model)] if len(results) > 1 else "Result"
        head.append(Section(name, _answer(result, there)))
    folds = [
        Fold("At which size is what lost?", of_each(results, _sizes)),
        Fold(
            "What did each metric of the prose do?", of_each(results, lambda r: _metrics(r, there))
        ),
        Fold("Do the arms differ?", of_each(results, lambda one: _arms(one, there))),
        Fold("Does the model recite the text?", of_each(results, _recitation)),
        Fold("How sure is it?", of_each(results, _certainty)),
        Fold("How was it measured?", of_each(results, _method)),
    ]
    return Page(head, [fold for fold in folds if fold.sections])


def draw_pictures(results: Sequence[ContinuationResult]) -> dict[str, bytes]:
    """Return the pictures of each result as PNG, by the name of their file."""
    drawn: dict[str, bytes] = {}
    for result in results:
        drawn[picture_file(result, "sizes")] = plot_sizes(result)
        metrics = plot_metrics(result)
        if metrics is not None:
            drawn[picture_file(result, "metrics")] = metrics
        compared = plot_arms(result)
        if compared is not None:
            drawn[picture_file(result, "arms")] = compared
    return drawn


def picture_file(result: ContinuationResult, what: str) -> str:
    """The file of a result's picture: ``sizes``, ``metrics`` or ``arms``."""
    return f"continuation-{what}-{slug(result.model)}.png"


def _answer(result: ContinuationResult, there: Mapping[str, bytes]) -> list[Block]:
    alt = "Score and share without collapse over context size"
    return [
        Bullets(list(result.headline)),
        *picture(picture_file(result, "sizes"), alt, there),
        arms(result),
        *([Bullets(list(result.warnings))] if result.warnings else []),
    ]


def _sizes(result: ContinuationResult) -> list[Section]:
    return [_of_arm(arm, result) for arm in result.arms]


def _of_arm(arm: ArmResult, result: ContinuationResult) -> Section:
    said = [arm.reason, *arm.sentences]
    collapsed = collapses(arm, result)
    blocks: list[Block] = [Bullets(said), *sizes(arm, result)]
    return Section([Code(arm.arm)], [*blocks, *([collapsed] if collapsed else [])], 3)


def _arms(result: ContinuationResult, there: Mapping[str, bytes]) -> list[Section]:
    table = differences(result)
    if table is None:
        return []
    said = [one.sentence for one in result.comparisons]
    alt = "Difference of each arm from the reference"
    figure = picture(picture_file(result, "arms"), alt, there)
    return [Section("Arms", [Bullets(said), *figure, table], 3)]


def _metrics(result: ContinuationResult, there: Mapping[str, bytes]) -> list[Section]:
    found = [
        Section([Code(arm.arm)], [table], 3)
        for arm in result.arms
        if (table := metrics(arm, result)) is not None
    ]
    alt = "Each metric of the prose over context size"
    figure = picture(picture_file(result, "metrics"), alt, there)
    return [Section("", figure, 3), *found] if figure else found


def _recitation(result: ContinuationResult) -> list[Section]:
    found = result.recitation
    if found is None:
        return []
    said = (
        "Recited is a continuation that shares more with the author's own next text than any of "
        f"{count(found.chance_pairs, 'pair')} of human passages from different places of a text "
        f"do: these share runs of up to {count(found.chance_run, 'word')}, and at most "
        f"{percent(found.chance_share)} of their runs of eight words. Where few continuations are "
        "recited nothing follows: a model may know a text without reciting it."
    )
    return [Section("Recitation", [Paragraph(said), recitation(found)], 3)]


def _certainty(result: ContinuationResult) -> list[Section]:
    found = []
    for arm in result.arms:
        parts = arm.components
        blocks: list[Block] = []
        if parts is not None:
            blocks.append(
                Bullets(
                    [
                        f"SD of the score between passages: {score(parts.passage)}.",
                        "SD of what sizes do to passages differently: "
                        f"{score(parts.size_within_passage)}.",
                        f"SD between rounds: {score(parts.round, 'not known, single rounds')}.",
                    ]
                )
            )
        planned = plan(arm)
        blocks += [planned] if planned else []
        if blocks:
            found.append(Section([Code(arm.arm)], blocks, 3))
    return found


def _method(result: ContinuationResult) -> list[Section]:
    facts = [
        f"{result.n:,} generations ({result.missing:,} more have no text); a passage counts as "
        "one unit, whatever its rounds, and is compared with itself at other sizes.",
        f"Tests are one-sided permutations; the error rate of {level(1.0 - result.confidence)} is "
        "over the score, the share without collapse and all sizes of an arm (Holm).",
        f"A decline, or a difference of arms, of {result.margin:g} counts as one that matters; "
        f"intervals are at {level(result.confidence)}; resampling seed {result.seed}.",
        f"Tokens are counted by {result.tokenizer or 'an unnamed tokenizer'}.",
        f"Coherence in the records is by {result.embedder}; it is no part of the score."
        if result.embedder
        else "Coherence was not measured (`continuation.embeddings`); no score depends on it.",
    ]
    return [Section("Method", [Bullets(facts)], 3)]


def write_continuation_report(
    run: StudyRun, results: Sequence[ContinuationResult], others: Sequence[Section]
) -> ReportFiles:
    """Write the page of a study without a length profile, with ``others`` at its end.

    Raises:
        StoreError: it cannot be written.
    """
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
    """Arm -> how its continuations were sampled."""
    section = section_of(study)
    found = {}
    for arm in (arm.arm for result in results for arm in result.arms):
        heat = next(
            (t for t in section.temperature if arm.endswith(f"temperature {t:g}")),
            section.temperature[0],
        )
        found[arm] = [
            f"temperature {heat:g}, top-k {section.top_k or 'all'}, top-p {section.top_p:g}",
            f"{count(section.rounds, 'round')} from seed {section.seed}, up to "
            f"{tokens(section.max_tokens)} tokens each",
        ]
    return found
