"""The report as a Markdown page: the answer first, then everything that carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextcliff_dagster.contracts.results import Cliffs, to_json
from contextcliff_dagster.reporting.markdown.confounds import question_lines, refused_lines
from contextcliff_dagster.reporting.markdown.definitions import definitions_table, rules_table
from contextcliff_dagster.reporting.markdown.escaping import code, plain
from contextcliff_dagster.reporting.markdown.robustness import (
    confounds_line,
    detector_lines,
    joint_cap_line,
    more_data_lines,
    sensitivity_lines,
    variance_line,
)
from contextcliff_dagster.reporting.markdown.tables import (
    bins_table,
    caps_table,
    failures_table,
    models_table,
    zones_table,
)
from contextcliff_dagster.reporting.markdown.token_ratio import token_lines
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


def markdown_report(
    cliffs: Results,
    *,
    title: str,
    notes: Sequence[str] = (),
    picture: str | None = "report.png",
    sensitivity_picture: str | None = None,
    questions_picture: str | None = None,
) -> str:
    """The page's text (GitHub-flavoured Markdown, ends with a newline).

    ``cliffs``: one result of the contract per model. ``notes``: sentences of the caller, shown with
    the warnings. ``picture``: the picture's path relative to the page, None for a page without;
    ``sensitivity_picture`` and ``questions_picture``: the same for those of the sensitivity and of
    the questions, each shown with the first model that has one.
    Names and sentences from outside are escaped.
    """
    names = labels(cliffs)
    lines = [f"# {plain(title)}", "", *_answers(cliffs, names)]
    if picture:
        lines += ["", f"![Score and SD against natural document length]({picture})"]
    lines += ["", *models_table(cliffs, names), "", *_reading(cliffs)]
    for name, result in zip(names, cliffs, strict=True):
        about = question_lines(result, questions_picture)
        lines += ["", *_model_section(name, result, sensitivity_picture, about)]
        if result.sensitivity:
            sensitivity_picture = None  # it shows all models
        if about:
            questions_picture = None
    lines += ["", *_unmeasured(cliffs, names), "", *_provenance(cliffs, names)]
    if notes:
        lines += ["", "## Notes", "", *(f"- {plain(sentence(note))}" for note in notes)]
    return "\n".join(lines) + "\n"


def _answers(results: Results, names: Sequence[str]) -> list[str]:
    if not results:
        return ["No model has a result yet."]
    lines = [
        f"- {answer_sentence(name, result)}" for name, result in zip(names, results, strict=True)
    ]
    if text := comparison(results):
        lines += ["", plain(text)]
    return lines


def answer_sentence(name: str, result: Cliffs) -> str:
    """Verdict and cap of one model in one sentence, as markup."""
    head = f"{code(name)}: **{plain(VERDICT_PHRASE[result.verdict])}**"
    cap = result.safe_cap_tokens
    if cap is None:
        reason = plain(sentence(result.safe_cap_reason)) or "the analysis gives no reason."
        return f"{head}; **no safe cap** is supported by {amount(result)}: {reason}"
    prompt = result.cap_prompt_tokens
    as_prompt = f" ({tokens(prompt)} tokens as a prompt of the model)" if prompt is not None else ""
    return (
        f"{head}; keep documents at or below **{tokens(cap)} tokens**{as_prompt}: up to there the "
        f"{plain(score_name(result))} is, with {level(result.confidence)} confidence, "
        f"within {level(result.tolerance)} of its baseline "
        f"{baseline_phrase(result)}, measured with {amount(result)}."
    )


def _reading(results: Results) -> list[str]:
    confidence = level(results[0].confidence) if results else "the stated"
    tolerance = level(results[0].tolerance) if results else "the stated share"
    return [
        "## How to read this",
        "",
        "- Lengths are tokens of the document alone, in the tokenizer named in the table. The "
        "method sends every document whole: nothing cut, padded or inserted.",
        f"- The **safe cap** is the largest length up to which a loss of {tolerance} of the "
        f"baseline is excluded at {confidence} confidence. It is a limit for this task and this "
        "serving configuration, not a ranking of models.",
        f"- Numbers in square brackets are {confidence} intervals. Where there is none, the reason "
        "stands beside the number. Those of a drop from the place of the loss on, and of the group "
        "that differs most, do not allow for the choice of that place or group: they are somewhat "
        "too short.",
        "- **Stable**, **transition**, **degraded**: where the score holds, where it falls, where "
        "it stays low.",
        "- What happens inside the model is not observed: the report says where the score drops, "
        "not why.",
    ]


def _model_section(
    name: str, result: Cliffs, sensitivity_picture: str | None, questions: list[str]
) -> list[str]:
    lines = [f"## {code(name)}", "", plain(half_drop_sentence(result))]
    if reason := sentence(result.safe_cap_reason):
        lines.append(f"{plain(reason)}")
    if more := certify_sentence(result):
        lines.append(plain(more))
    if checked := confounds_line(result):
        lines += ["", plain(checked)]
    if joint := joint_cap_line(result):
        lines += ["", plain(joint)]
    warnings = [sentence(w) for w in result.warnings if w]
    lines += ["", "### Warnings", "", *([f"- {plain(w)}" for w in warnings] or ["None."])]
    lines += ["", "### Zones", "", *zones_table(result)]
    lines += ["", "### Bins", "", *bins_table(result), *token_lines(result)]
    lines += ["", "### Failures by tag", "", *failures_table(result)]
    lines += ["", "### Caps by tolerance", "", *caps_table(result)]
    lines += questions
    lines += ["", "### Threshold rules", "", *rules_table(result)]
    if scatter := variance_line(result):
        lines += ["", plain(scatter)]
    lines += ["", "### Effective lengths by other definitions", "", *definitions_table(result)]
    lines += detector_lines(result)
    lines += sensitivity_lines(result, sensitivity_picture)
    return lines + more_data_lines(result)


def _unmeasured(results: Results, names: Sequence[str]) -> list[str]:
    lines = ["## What was not measured", ""]
    for name, result in zip(names, results, strict=True):
        missing = {tag: n for tag, n in to_json(result.missing).items() if n}
        said = ", ".join(f"{n:,} {plain(tag)}" for tag, n in missing.items()) or "none"
        share = percent(result.missing_share)
        lines.append(
            f"- {code(name)}: calls without an answer, outside every mean: {said} "
            f"({share} of the planned calls)."
        )
        reach, window = measured_range(result), result.window_tokens
        if reach is None:
            lines.append(f"- {code(name)}: no answer was scored.")
        elif window and window > reach[1]:
            lines.append(
                f"- {code(name)}: nothing is known between {tokens(reach[1])} tokens, the longest "
                f"document, and the window of {tokens(window)}."
            )
        elif not window:
            lines.append(
                f"- {code(name)}: the model's window is not stated, so no share of it is given."
            )
        if result.baseline.mean is None:
            lines.append(f"- {code(name)}: no baseline.")
        if all(b.ttft_ms is None for b in result.bins):
            lines.append(f"- {code(name)}: no time to first token.")
        if result.confounds.identified == "not_assessed":
            lines.append(
                f"- {code(name)}: whether length is confounded with difficulty was not assessed."
            )
        lines += refused_lines(name, result)
        if result.joint_cap is None:
            lines.append(
                f"- {code(name)}: no joint cap of score and latency: too few times to first token."
            )
    lines += [
        "- Standard deviations and shares of failures carry no interval: only the mean's is "
        "computed.",
        "- Other tasks, corpora, prompts and serving configurations: a cap holds for what was "
        "measured.",
    ]
    return lines


def _provenance(results: Results, names: Sequence[str]) -> list[str]:
    lines = ["## Provenance", ""]
    for name, result in zip(names, results, strict=True):
        lines.append(f"- {code(name)}")
        for key, value in (
            ("schema_version", result.schema_version),
            ("created_at", result.created_at),
            ("study", result.study),
            ("campaign", result.campaign),
            ("task", result.task),
            ("tokenizer", result.tokenizer),
            ("identity", result.identity),
        ):
            lines.append(f"    - {key}: {code(value)}")
        for group, content in result.provenance.items():
            if isinstance(content, Mapping):
                lines += [
                    f"    - {plain(group)} {plain(key)}: {code(value)}"
                    for key, value in content.items()
                ]
            elif content is not None:
                lines.append(f"    - {plain(group)}: {code(content)}")
    lines += [
        "",
        "`report.json` beside this page holds all of it for machines, with every bin's tokens.",
    ]
    return lines
