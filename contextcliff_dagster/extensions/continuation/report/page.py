"""The report on continuations as data: the answer first, what carries it folded by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.continuation.documents.making import section_of
from contextcliff_dagster.extensions.continuation.report import tables
from contextcliff_dagster.extensions.continuation.report.figures import plot_arms, plot_sizes
from contextcliff_dagster.extensions.continuation.report.metric_figures import (
    metric_chart,
    plot_metrics,
)
from contextcliff_dagster.extensions.continuation.results import ArmResult, ContinuationResult
from contextcliff_dagster.reporting.sections import (
    Block,
    Bullets,
    Code,
    Fold,
    Page,
    Paragraph,
    Section,
    as_folds,
    of_each,
    picture,
)
from contextcliff_dagster.reporting.wording.number_format import (
    count,
    level,
    percent,
    score,
    tokens,
)
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.studies import Study

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
        tables.arms(result),
        *([Bullets(list(result.warnings))] if result.warnings else []),
    ]


def _sizes(result: ContinuationResult) -> list[Section]:
    return [_of_arm(arm, result) for arm in result.arms]


def _of_arm(arm: ArmResult, result: ContinuationResult) -> Section:
    said = [arm.reason, *arm.sentences]
    collapsed = tables.collapses(arm, result)
    blocks: list[Block] = [Bullets(said), *tables.sizes(arm, result)]
    return Section([Code(arm.arm)], [*blocks, *([collapsed] if collapsed else [])], 3)


def _arms(result: ContinuationResult, there: Mapping[str, bytes]) -> list[Section]:
    table = tables.differences(result)
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
        if (table := tables.metrics(arm, result)) is not None
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
    return [Section("Recitation", [Paragraph(said), tables.recitation(found)], 3)]


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
        planned = tables.plan(arm)
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
