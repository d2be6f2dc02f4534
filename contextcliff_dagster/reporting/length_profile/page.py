"""The length profile's page: the answer first, then everything that carries it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from contextcliff_dagster.contracts.results import Cliffs, to_json
from contextcliff_dagster.reporting.figures.confounds import plot_questions
from contextcliff_dagster.reporting.figures.sensitivity import plot_sensitivity
from contextcliff_dagster.reporting.length_profile.definitions import (
    definition_sections,
    rule_sections,
)
from contextcliff_dagster.reporting.length_profile.questions import question_sections, refused_tests
from contextcliff_dagster.reporting.length_profile.robustness import (
    confounds_sentence,
    more_data_sections,
    sensitivity_sections,
)
from contextcliff_dagster.reporting.length_profile.tables import (
    bin_sections,
    cap_sections,
    failure_sections,
    models_section,
    slowdown_sections,
    zone_sections,
)
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Code,
    Figure,
    Item,
    Lines,
    Paragraph,
    Section,
    Strong,
    Text,
)
from contextcliff_dagster.reporting.wording.latency import (
    joint_cap_sentence,
    latency_limit_sentence,
)
from contextcliff_dagster.reporting.wording.number_format import level, percent, tokens
from contextcliff_dagster.reporting.wording.sentences import (
    VERDICT_PHRASE,
    amount,
    assumption_sentence,
    baseline_phrase,
    certify_sentence,
    comparison,
    copies_sentence,
    half_drop_sentence,
    labels,
    looks_sentence,
    measured_range,
    score_name,
    sentence,
)

Results = Sequence[Cliffs]


class Picture(NamedTuple):
    """A picture next to the page: its file, what it shows, and the PNG of all results.

    ``draw`` returns None where no result has what it shows.
    """

    file: str
    alt: str
    draw: Callable[[Results], bytes | None]


class Part(NamedTuple):
    """Sections about one model; the first model that has any also shows the ``picture``."""

    sections: Callable[[Cliffs], list[Section]]
    picture: Picture | None = None


PARTS = (
    Part(zone_sections),
    Part(bin_sections),
    Part(failure_sections),
    Part(slowdown_sections),
    Part(cap_sections),
    Part(
        question_sections,
        Picture(
            "questions.png", "The score against other properties of the questions", plot_questions
        ),
    ),
    Part(rule_sections),
    Part(definition_sections),
    Part(
        sensitivity_sections,
        Picture(
            "sensitivity.png",
            "Safe cap and midpoint of the drop, one choice changed at a time",
            plot_sensitivity,
        ),
    ),
    Part(more_data_sections),
)


def all_pictures() -> list[Picture]:
    """The pictures of `PARTS`."""
    return [part.picture for part in PARTS if part.picture]


def report_sections(
    cliffs: Results, *, title: str, notes: Sequence[str] = (), pictures: Container[str] = ()
) -> list[Section]:
    """Return the page's sections, the first with its title.

    ``cliffs``: one result of the contract per model. ``notes``: sentences of the caller, shown with
    the warnings. ``pictures``: those files of `all_pictures` that are there.
    """
    names = labels(cliffs)
    main = Figure(Path("report.png"), "Score and SD against natural document length")
    head = [*_answers(cliffs, names), main]
    sections = [Section(title, head, 1), models_section(cliffs, names), _reading(cliffs)]
    shown: set[str] = set()
    for name, result in zip(names, cliffs, strict=True):
        sections += _answer_sections(name, result)
        for part in PARTS:
            made, picture = part.sections(result), part.picture
            if made and picture and picture.file in pictures and picture.file not in shown:
                shown.add(picture.file)
                figure = Figure(Path(picture.file), picture.alt)
                made[-1] = replace(made[-1], blocks=[*made[-1].blocks, figure])
            sections += made
    sections += [_unmeasured(cliffs, names), _provenance(cliffs, names)]
    if notes:
        sections.append(Section("Notes", [Bullets([sentence(note) for note in notes])]))
    return sections


def _answers(results: Results, names: Sequence[str]) -> list[Block]:
    if not results:
        return [Paragraph("No model has a result yet.")]
    blocks: list[Block] = [Bullets(list(map(_answer, names, results)))]
    if text := comparison(results):
        blocks.append(Paragraph(text))
    return blocks


def _answer(name: str, result: Cliffs) -> Text:
    """Verdict and cap of one model in one sentence."""
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
        f", measured with {amount(result)}.",
    ]


def _reading(results: Results) -> Section:
    confidence = level(results[0].confidence) if results else "the stated"
    tolerance = level(results[0].tolerance) if results else "the stated share"
    items: list[Text] = [
        "Lengths are tokens of the document alone, in the tokenizer named in the table. The "
        "method sends every document whole: nothing cut, padded or inserted.",
        [
            "The ",
            Strong("safe cap"),
            f" is the largest length up to which a drop of {tolerance} of the baseline is excluded "
            f"at {confidence} confidence. It is a limit for this task and this serving "
            "configuration, not a ranking of models.",
        ],
        f"Numbers in square brackets are {confidence} intervals. Where there is none, the reason "
        "is next to the number. The intervals of a drop from its location on, and of the group "
        "that differs most, do not account for the choice of that location or group: they are "
        "somewhat too short.",
        [
            Strong("Stable"),
            ", ",
            Strong("transition"),
            ", ",
            Strong("degraded"),
            ": where the score holds, where it falls, where it stays low.",
        ],
        "What happens inside the model is not observed: the report shows where the score drops, "
        "not why.",
    ]
    return Section("How to read this", [Bullets(items)])


def _answer_sections(name: str, result: Cliffs) -> list[Section]:
    cap = sentence(result.safe_cap_reason)
    answer = [
        cap,
        looks_sentence(result),
        assumption_sentence(result),
        copies_sentence(result),
        half_drop_sentence(result),
        certify_sentence(result),
    ]
    blocks: list[Block] = [Lines([text for text in answer if text])]
    further = (
        confounds_sentence(result),
        latency_limit_sentence(result),
        joint_cap_sentence(result),
    )
    blocks += [Paragraph(text) for text in further if text]
    warnings = [sentence(warning) for warning in result.warnings if warning]
    return [
        Section(Code(name), blocks),
        Section("Warnings", [Bullets(warnings) if warnings else Paragraph("None.")], 3),
    ]


def _unmeasured(results: Results, names: Sequence[str]) -> Section:
    items: list[Text] = []
    for name, result in zip(names, results, strict=True):
        items += [(Code(name), f": {gap[0].upper()}{gap[1:]}.") for gap in _gaps(result)]
    items += [
        "Standard deviations and failure rates have no interval: only the mean's is computed.",
        "Other tasks, corpora, prompts and serving configurations: a cap holds only for what was "
        "measured.",
    ]
    return Section("What was not measured", [Bullets(items)])


def _gaps(result: Cliffs) -> list[str]:
    missing = {tag: n for tag, n in to_json(result.missing).items() if n}
    tags = ", ".join(f"{n:,} {tag}" for tag, n in missing.items())
    share = f"{percent(result.missing_share)} of the planned calls"
    unanswered = f"calls without an answer, not part of any mean: {tags} ({share})"
    gaps = [unanswered if tags else "no call went unanswered"]
    reach, window = measured_range(result), result.window_tokens
    if reach is None:
        gaps.append("no answer was scored")
    elif window and window > reach[1]:
        gaps.append(
            f"nothing was measured between {tokens(reach[1])} tokens, the longest document, and "
            f"the window of {tokens(window)}"
        )
    elif not window:
        gaps.append("the context window is unknown, so no share of it is given")
    if result.baseline.mean is None:
        gaps.append("no baseline")
    if all(b.ttft_ms is None for b in result.bins):
        gaps.append("no time to first token")
    elif result.joint_cap is None:
        why = "too few times to first token, or answers in order of length"
        gaps.append(f"no joint cap of score and latency: {why}")
    if result.length_time_correlation is None:
        gaps.append(
            "whether the answers came in order of length, so that a change over time would look "
            "like one over length: their times are unknown"
        )
    if result.confounds.identified == "not_assessed":
        gaps.append("confounding of length with difficulty was not assessed")
    return [*gaps, *refused_tests(result)]


def _provenance(results: Results, names: Sequence[str]) -> Section:
    items = [Item(Code(n), _origin(r)) for n, r in zip(names, results, strict=True)]
    blocks = [Bullets(items)] if items else []
    machine = " next to this page has all of it for programs, with every bin's tokens."
    return Section("Provenance", [*blocks, Paragraph([Code("report.json"), machine])])


def _origin(result: Cliffs) -> list[Text]:
    keys = ("schema_version", "created_at", "study", "campaign", "task", "tokenizer", "identity")
    origin: list[Text] = [(f"{key}: ", Code(getattr(result, key))) for key in keys]
    for group, content in result.provenance.items():
        if isinstance(content, Mapping):
            origin += [(f"{group} {key}: ", Code(value)) for key, value in content.items()]
        elif content is not None:
            origin.append((f"{group}: ", Code(content)))
    return origin
