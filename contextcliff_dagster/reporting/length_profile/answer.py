"""The answer of a report: verdict and cap of each model, and the sentences that qualify them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.length_profile.questions import few_data_blocks
from contextcliff_dagster.reporting.length_profile.scope import confounds_sentence, shared_items
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Code,
    Lines,
    Paragraph,
    Section,
    Span,
    Strong,
    Text,
)
from contextcliff_dagster.reporting.wording import (
    VERDICT_PHRASE,
    amount,
    assumption_sentence,
    baseline_phrase,
    certify_sentence,
    comparison,
    copies_sentence,
    half_drop_sentence,
    joint_cap_sentence,
    last_octave_phrase,
    latency_limit_sentence,
    level,
    looks_sentence,
    score_name,
    sentence,
    tokens,
    tolerance_sentences,
)

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs


_WHOLE = Code("report.html")


def answer_blocks(results: Sequence[Cliffs], names: Sequence[str]) -> list[Block]:
    """Return verdict and cap of every model, their comparison, and the meaning of the tolerance."""
    if not results:
        return [Paragraph("No model has a result yet.")]
    doubts = [result.score_doubt.replace("`", "") for result in results if result.score_doubt]
    blocks: list[Block] = [*map(Paragraph, doubts), Bullets(list(map(_answer, names, results)))]
    blocks += [
        Paragraph(text)
        for text in (comparison(results), *tolerance_sentences(results, names))
        if text
    ]
    return [*blocks, *few_data_blocks(results, names)]


def _answer(name: str, result: Cliffs) -> Text:
    """Return verdict and cap of one model in one sentence."""
    head = (Code(name), ": ", Strong(VERDICT_PHRASE[result.verdict]))
    cap = result.safe_cap_tokens
    if cap is None:
        reason = sentence(result.safe_cap_reason) or "the analysis gives no reason."
        support = f" is supported by {amount(result)}: {reason}"
        return [*head, "; ", Strong("no safe cap"), support]
    prompt = result.cap_prompt_tokens
    as_prompt = f" ({tokens(prompt)} tokens as a prompt of the model)" if prompt is not None else ""
    return [
        *head,
        "; keep documents at or below ",
        Strong(f"{tokens(cap)} tokens"),
        f"{as_prompt}: up to there, with {level(result.confidence)} confidence, the "
        f"{score_name(result)} is within {level(result.tolerance)} of its baseline ",
        Bracketed(baseline_phrase(result)),
        f", measured with {amount(result)}",
        f"; the cap has {octave}." if (octave := last_octave_phrase(result)) else ".",
    ]


def warnings_section(
    results: Sequence[Cliffs],
    names: Sequence[str],
    notes: Sequence[str],
    *,
    most: int | None = None,
    rest: Span = _WHOLE,
) -> Section:
    """Return the warnings of all models, then the caller's ``notes``.

    ``most``: number shown; the others are counted, and ``rest`` names where they are.
    """
    by_model = [[sentence(text) for text in result.warnings if text] for result in results]
    warnings = shared_items(by_model, names)
    items = [*warnings, *map(sentence, notes)][:most]
    hidden = len(warnings) + len(notes) - len(items)
    blocks: list[Block] = [] if warnings else [Paragraph("None." if not notes else "No warnings.")]
    if items:
        blocks.append(Bullets(items))
    if hidden:
        blocks.append(Paragraph([f"{hidden:,} more are in ", rest, "."]))
    return Section("Warnings and notes" if notes else "Warnings", blocks)


def reading_section(results: Sequence[Cliffs]) -> Section:
    """Return the section that explains lengths, intervals, zones and the cap."""
    confidence = level(results[0].confidence) if results else "the stated"
    tolerance = level(results[0].tolerance) if results else "the stated share"
    items: list[Text] = [
        "Lengths are tokens of the document alone, in the tokenizer named in the table. The "
        "method sends every document whole: nothing cut, padded or inserted.",
        [
            "The ",
            Strong("safe cap"),
            f" is the largest length up to which the score stays within {tolerance} of its "
            f"baseline, at {confidence} confidence. It is a limit for this task and this serving "
            "configuration, not a ranking of models.",
        ],
        f"Numbers in square brackets are {confidence} intervals. Where there is none, the reason "
        "is next to the number. The data themselves chose the place of a drop, and the group that "
        "differs most: the intervals of their sizes are somewhat too short.",
        [
            Strong("Stable"),
            ", ",
            Strong("transition"),
            ", ",
            Strong("degraded"),
            ", ",
            Strong("not shown"),
            ": where the score is shown to stay within the tolerance, where it falls or may fall, "
            "where it stays low, and where none of this is shown.",
        ],
        [
            "A ",
            Strong("cliff"),
            " is a score that falls at one length, a ",
            Strong("gradual decline"),
            " one that falls along a line; a ",
            Strong("decline"),
            " may be either. None of them says how deep the score falls.",
        ],
        "What happens inside the model is not observed: the report shows where the score drops, "
        "not why.",
    ]
    return Section("How to read this", [Bullets(items)], 3)


def support_sections(result: Cliffs) -> list[Section]:
    """Return the section on the cap: reason, assumptions, and the midpoint of the drop."""
    cap = sentence(result.safe_cap_reason)
    lines = (
        cap,
        looks_sentence(result),
        assumption_sentence(result),
        half_drop_sentence(result),
    )
    return _section("The cap", Lines([text for text in lines if text]))


def cause_sections(result: Cliffs) -> list[Section]:
    """Return the section on whether other questions explain the drop; empty if not assessed."""
    return _section("Length or other questions", *_paragraphs(confounds_sentence(result)))


def work_sections(result: Cliffs) -> list[Section]:
    """Return the section on the kind of work; empty unless the cap applies only to copying."""
    return _section("Kind of work", *_paragraphs(copies_sentence(result)))


def need_sections(result: Cliffs) -> list[Section]:
    """Return the section on the examples a verdict or longer cap needs; empty if not computed."""
    return _section("Examples needed", *_paragraphs(certify_sentence(result)))


def latency_sections(result: Cliffs) -> list[Section]:
    """Return the section on latency limits; empty if no latency was tested."""
    limits = _paragraphs(latency_limit_sentence(result), joint_cap_sentence(result))
    return _section("Limits by latency", *limits)


def _paragraphs(*texts: str | None) -> list[Paragraph]:
    return [Paragraph(text) for text in texts if text]


def _section(title: str, *blocks: Block) -> list[Section]:
    return [Section(title, blocks, 3)] if blocks else []
