"""The length profile's page: the answer first, then everything that carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from contextcliff_dagster.contracts.results import Cliffs, to_json
from contextcliff_dagster.reporting.length_profile.definitions import (
    definitions_section,
    rules_section,
)
from contextcliff_dagster.reporting.length_profile.questions import (
    question_sections,
    refused_tests,
)
from contextcliff_dagster.reporting.length_profile.robustness import (
    confounds_sentence,
    detector_sections,
    joint_cap_sentence,
    more_data_sections,
    sensitivity_sections,
)
from contextcliff_dagster.reporting.length_profile.tables import (
    bins_section,
    caps_section,
    failures_section,
    models_section,
    zones_section,
)
from contextcliff_dagster.reporting.length_profile.token_ratio import token_sections
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
from contextcliff_dagster.reporting.wording.number_format import level, percent, tokens
from contextcliff_dagster.reporting.wording.sentences import (
    VERDICT_PHRASE,
    amount,
    baseline_phrase,
    certify_sentence,
    comparison,
    half_drop_sentence,
    labels,
    measured_range,
    score_name,
    sentence,
)

Results = Sequence[Cliffs]


def report_sections(
    cliffs: Results,
    *,
    title: str,
    notes: Sequence[str] = (),
    picture: str | None = "report.png",
    sensitivity_picture: str | None = None,
    questions_picture: str | None = None,
) -> list[Section]:
    """Return the page's sections, the first with its title.

    ``cliffs``: one result of the contract per model. ``notes``: sentences of the caller, shown with
    the warnings. ``picture``: the picture's path relative to the page, None for a page without;
    ``sensitivity_picture`` and ``questions_picture``: the same for those of the sensitivity and of
    the questions, each shown with the first model that has one.
    """
    names = labels(cliffs)
    head = _answers(cliffs, names)
    if picture:
        head.append(Figure(Path(picture), "Score and SD against natural document length"))
    sections = [Section(title, head, 1), models_section(cliffs, names), _reading(cliffs)]
    for name, result in zip(names, cliffs, strict=True):
        questions = question_sections(result, questions_picture)
        sections += _model_sections(name, result, sensitivity_picture, questions)
        if result.sensitivity:
            sensitivity_picture = None  # it shows all models
        if questions:
            questions_picture = None
    sections += [_unmeasured(cliffs, names), _provenance(cliffs, names)]
    if notes:
        sections.append(Section("Notes", [Bullets([sentence(note) for note in notes])]))
    return sections


def _answers(results: Results, names: Sequence[str]) -> list[Block]:
    if not results:
        return [Paragraph("No model has a result yet.")]
    blocks: list[Block] = [Bullets(list(map(answer_sentence, names, results)))]
    if text := comparison(results):
        blocks.append(Paragraph(text))
    return blocks


def answer_sentence(name: str, result: Cliffs) -> Text:
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


def _model_sections(
    name: str, result: Cliffs, sensitivity_picture: str | None, questions: Sequence[Section]
) -> list[Section]:
    answer = [
        half_drop_sentence(result),
        sentence(result.safe_cap_reason),
        certify_sentence(result),
    ]
    blocks: list[Block] = [Lines([text for text in answer if text])]
    further = (confounds_sentence(result), joint_cap_sentence(result))
    blocks += [Paragraph(text) for text in further if text]
    warnings = [sentence(w) for w in result.warnings if w]
    return [
        Section(Code(name), blocks),
        Section("Warnings", [Bullets(warnings) if warnings else Paragraph("None.")], 3),
        zones_section(result),
        *token_sections(bins_section(result), result),
        failures_section(result),
        caps_section(result),
        *questions,
        rules_section(result),
        definitions_section(result),
        *detector_sections(result),
        *sensitivity_sections(result, sensitivity_picture),
        *more_data_sections(result),
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
    unanswered = (
        f"calls without an answer, not part of any mean: {tags} "
        f"({percent(result.missing_share)} of the planned calls)"
    )
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
    if result.confounds.identified == "not_assessed":
        gaps.append("confounding of length with difficulty was not assessed")
    gaps += refused_tests(result)
    if result.joint_cap is None:
        gaps.append("no joint cap of score and latency: too few times to first token")
    return gaps


def _provenance(results: Results, names: Sequence[str]) -> Section:
    blocks: list[Block] = []
    if results:
        blocks.append(
            Bullets([Item(Code(n), _origin(r)) for n, r in zip(names, results, strict=True)])
        )
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
