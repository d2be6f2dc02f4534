"""Scope of a report: the basis of its figures, its gaps, and its sensitivity to the method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextcliff_dagster.contracts.results import Cliffs, to_json
from contextcliff_dagster.contracts.results.cliffs import Rule
from contextcliff_dagster.reporting import wording
from contextcliff_dagster.reporting.length_profile.tables import refused_tests
from contextcliff_dagster.reporting.methods import methods
from contextcliff_dagster.reporting.sections import (
    Block,
    Bullets,
    Cell,
    Code,
    DataTable,
    Item,
    Paragraph,
    Section,
    Span,
    Text,
)


def unmeasured_section(results: Sequence[Cliffs], names: Sequence[str]) -> Section:
    """Return the section on what was not measured, per model and in general."""
    return Section("What was not measured", [Bullets(gap_items(results, names))], 3)


def gap_items(results: Sequence[Cliffs], names: Sequence[str]) -> list[Text]:
    """Return the gaps as bullets; models share a bullet if they share a gap."""
    gaps = [[f"{gap[0].upper()}{gap[1:]}." for gap in _gaps(result)] for result in results]
    return [
        *shared_items(gaps, names),
        "Standard deviations and failure rates have no interval: only the mean's is computed.",
        "Other tasks, corpora, prompts and serving configurations: a cap holds only for what was "
        "measured.",
    ]


_MOST_NAMED = 6


def shared_items(texts: Sequence[Sequence[str]], names: Sequence[str]) -> list[Text]:
    """Return each distinct text once, after the names of the models it applies to.

    ``texts``: one list for each of ``names``. A single model is not named.
    """
    whose: dict[str, list[str]] = {}
    for name, of_model in zip(names, texts, strict=True):
        for text in of_model:
            whose.setdefault(text, []).append(name)
    if len(names) == 1:
        return [*whose]
    items: list[Text] = []
    for text, owners in whose.items():
        if len(owners) == len(names) > 3:
            items.append(("All models: ", text))
            continue
        listed: list[Span] = [Code(owners[0])]
        for owner in owners[1:_MOST_NAMED]:
            listed += [", ", Code(owner)]
        if len(owners) > _MOST_NAMED:
            listed.append(f" and {len(owners) - _MOST_NAMED} more")
        items.append((*listed, ": ", text))
    return items


def _gaps(result: Cliffs) -> list[str]:
    missing = {tag: n for tag, n in to_json(result.missing).items() if n}
    tags = ", ".join(f"{n:,} {tag}" for tag, n in missing.items())
    share = f"{wording.percent(result.missing_share)} of the planned calls"
    unanswered = f"calls without an answer, counted in a mean only where noted: {tags} ({share})"
    gaps = [unanswered if tags else "every call was answered"]
    reach, window = wording.measured_range(result), result.window_tokens
    if reach is None:
        gaps.append("no answer was scored")
    elif window and window > reach[1]:
        gaps.append(
            f"nothing was measured between {wording.tokens(reach[1])} tokens, the longest "
            f"document, and the window of {wording.tokens(window)}"
        )
    elif not window:
        gaps.append("the context window is unknown, so no share of it is given")
    if result.baseline.mean is None:
        gaps.append("no baseline")
    if all(b.ttft_ms is None for b in result.bins):
        gaps.append(f"time to first token: {wording.no_times(result)}")
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


def rebuild_section(results: Sequence[Cliffs], level: int = 2) -> Section:
    """Return the commands that rebuild this report, and the hashes of their inputs."""
    first = results[0]
    study, campaign = first.study, first.campaign
    items: list[Text] = []
    if study and campaign:
        items += [
            (
                Code(f"contextcliff report {study} --campaign {campaign}"),
                " rebuilds this report from the stored answers, without a call.",
            ),
            (
                Code(f"contextcliff campaign new {study}"),
                " and ",
                Code(f"contextcliff profile {study}"),
                " measure it again.",
            ),
            (
                "To share it: ",
                Code(f"contextcliff export {study} FILE"),
                " writes one file with the sample and every answer.",
            ),
        ]
    else:
        rebuilds = ", with the options used here, rebuilds this report."
        items.append((Code("contextcliff analyze FILE"), rebuilds))
    facts: list[Span] = []
    for words, group, key in _FACTS:
        values = dict.fromkeys(_fact(result, group, key) for result in results)
        if stated := [value for value in values if value is not None]:
            facts.append(f"; {words} " if facts else f"{words[0].upper()}{words[1:]} ")
            for value in stated[:3]:
                facts += [Code(value), ", "]
            facts[-1] = ", ..." if len(stated) > 3 else ""
    if facts:
        items.append([*facts, "."])
    paragraph = Paragraph(["For a methods section: ", methods(results)])
    return Section("How to reproduce it", [Bullets(items), paragraph], level)


_FACTS = (
    ("sample", "hashes", "manifest"),
    ("request", "hashes", "recipe"),
    ("seed of the sample", "seeds", "sampling"),
    ("seed of the analysis", "seeds", "analysis"),
    ("version", "versions", "contextcliff-dagster"),
)


def _fact(result: Cliffs, group: str, key: str) -> str | None:
    values = result.provenance.get(group)
    value = values.get(key) if isinstance(values, Mapping) else None
    return None if value is None or value != value else str(value)[:12]


def provenance_section(results: Sequence[Cliffs], names: Sequence[str]) -> Section:
    """Return the hashes, versions, seeds and times of every model."""
    items = [Item(Code(n), _origin(r)) for n, r in zip(names, results, strict=True)]
    blocks = [Bullets(items)] if items else []
    machine = " next to this page has all of it for programs, with every bin's tokens."
    return Section("The measurement", [*blocks, Paragraph([Code("report.json"), machine])], 3)


def _origin(result: Cliffs) -> list[Text]:
    keys = ("schema_version", "created_at", "study", "campaign", "task", "tokenizer", "identity")
    origin: list[Text] = [(f"{key}: ", Code(getattr(result, key))) for key in keys]
    for group, content in result.provenance.items():
        if isinstance(content, Mapping):
            origin += [(f"{group} {key}: ", Code(value)) for key, value in content.items()]
        elif content is not None:
            origin.append((f"{group}: ", Code(content)))
    return origin


def confounds_sentence(result: Cliffs) -> str | None:
    """Return a sentence on whether the question mix explains the loss; None if not assessed."""
    confounds = result.confounds
    if confounds.identified == "no":
        return "Length is not shown to be the cause: see the warnings."
    if confounds.identified != "yes":
        return None
    return " ".join(
        ["Is length the cause, or other questions?", *map(wording.sentence, confounds.reasons)]
    )


def sensitivity_sections(result: Cliffs) -> list[Section]:
    """Return cap and verdict with one setting changed at a time; empty if none was varied."""
    if not result.sensitivity:
        return []
    rows = [
        [
            r.factor,
            f"{r.value}{' (reported)' if r.reported and r.value else ''}",
            wording.VERDICT_PHRASE[r.verdict],
            wording.tokens(r.safe_cap_tokens, "none supported"),
            wording.tokens(r.location_tokens, "none found"),
            wording.tokens(r.n),
        ]
        for r in result.sensitivity
    ]
    head = ["choice", "value", "verdict", "safe cap, tokens", "midpoint of the drop", "examples"]
    note = (
        "One choice is changed at a time, with fewer permutations. No row is a better answer than "
        "the first, and the largest cap among them has no stated confidence."
    )
    table = DataTable(head, rows, right=(3, 4, 5))
    return [Section("Sensitivity of the cap", [table, Paragraph(note)], 3)]


def more_data_sections(result: Cliffs) -> list[Section]:
    """Return the cap to expect from more examples; empty if not computed."""
    rows = []
    for step in result.certify.more:
        usd = "" if step.usd is None else f", {step.usd:,.2f} USD"
        rows.append(
            [
                f"{wording.tokens(step.tokens)} tokens{usd}",
                f"{wording.count(step.examples, 'example')}, about "
                f"{wording.tokens(step.per_bin)} per bin",
                wording.tokens(step.expected_cap_tokens, "none"),
            ]
        )
    if not rows:
        return []
    head = ["extra tokens", "extra examples", "expected cap, tokens"]
    curve = "flat" if result.certify.assumes == "flat" else "as fitted"
    note = (
        f"Simulated, assuming that the curve is {curve}, examples are spread evenly over the bins "
        "and the corpus has enough of them: the median cap of eleven such data sets, which half "
        "of them do not reach."
    )
    table = DataTable(head, rows, right=(2,))
    return [Section("Expected cap with more data", [table, Paragraph(note)], 3)]


def scatter_sentence(result: Cliffs) -> str | None:
    """Return a sentence on whether scores vary more than their mean explains; None if untested."""
    signal = result.variance_signal
    if signal is None:
        return None
    head = "Scatter of the scores beyond what their mean explains"
    p = signal.p_value
    if p is None:
        return f"{head}: not tested; {signal.refused_because}."
    window = f"{wording.tokens(signal.from_tokens)} to {wording.tokens(signal.to_tokens)} tokens"
    outcome = "found" if p <= 0.05 else "none found"
    return f"{head}: {outcome} (the most at {window}, p = {p:.3f}, level {wording.level(0.05)})."


RULE_WORDS = {
    "transition_sd": "transition: SD at least 2 x the first bin's",
    "variance": "transition: variance more than 2 x the first bin's",
    "mean_drop": "cliff: mean more than 30% below the first bin's",
    "failure_rate_spike": "failure rate at least 2 x the first bin's and .10 above it",
    "first_failing_edge": "cap by these rules: lower edge of the first failing bin, tokens",
    "critical_threshold": "that edge as a share of the window",
}


def rule_sections(result: Cliffs) -> list[Section]:
    """Return the threshold rules with their values and whether each fired or cannot fire."""
    blocks: list[Block] = [Paragraph("Not evaluated.")]
    if result.rules:
        rows: list[list[Cell]] = [
            [
                RULE_WORDS.get(r.name, r.name),
                ("yes" if r.fired else "no") if r.reachable else "cannot fire on these data",
                Code(r.at_bin) if r.at_bin is not None else "none",
                _rule_value(r, r.value),
                _rule_value(r, r.threshold),
            ]
            for r in result.rules
        ]
        head = ["rule", "fired", "at bin", "value", "threshold"]
        note = (
            "The rules compare single bins with the first one and ignore chance; the verdict does "
            "not depend on them."
        )
        blocks = [DataTable(head, rows, right=(3, 4)), Paragraph(note)]
    if scatter := scatter_sentence(result):
        blocks.append(Paragraph(scatter))
    return [Section("Threshold rules", blocks, 3)]


def _rule_value(rule: Rule, value: float | None) -> str:
    if value is None:
        return "none"
    if rule.name == "first_failing_edge":
        return wording.tokens(value)
    if rule.name in ("mean_drop", "critical_threshold", "failure_rate_spike"):
        return wording.percent(value)
    return f"{value:.3f}"


def definition_sections(result: Cliffs) -> list[Section]:
    """Return effective lengths by published definitions on the same bins, and LongScore."""
    limits, long_score = result.definitions, result.definitions.longscore
    definitions = {
        "RULER (arXiv 2404.06654): longest length with a score of at least the threshold": (
            limits.ruler_85_6
        ),
        "NoLiMa (arXiv 2502.05167): longest length with at least .85 x the base score": (
            limits.nolima_0_85
        ),
        "MECW (arXiv 2509.21361): longest length before a drop of more than 5% of the base score": (
            limits.mecw_5pct
        ),
        "longest length before a drop of more than 30% of the measured baseline": limits.drop_30pct,
    }
    rows = []
    for words, length in definitions.items():
        at = {
            "<": "below the shortest measured",
            ">": f"at least {wording.tokens(length.tokens)}",
            None: wording.tokens(length.tokens, "none"),
        }[length.censored]
        rows.append([words, at, "none" if length.threshold is None else f"{length.threshold:.3f}"])
    base_lengths = ", ".join(map(wording.tokens, long_score.base_tokens)) or "unknown"
    values = ", ".join(
        f"{wording.tokens(v.tokens)}: {wording.score(v.value)}" for v in long_score.by_length
    )
    relative = (
        f"LongScore (arXiv 2505.19293), relative change against {wording.score(long_score.base)} "
        f"at {base_lengths} tokens: mean {wording.score(long_score.mean)}"
        f"{f' (by tokens {values})' if values else ''}."
    )
    note = "Read from the bins' means at their median lengths; these definitions have no intervals."
    table = DataTable(["definition", "tokens", "threshold"], rows, right=(1, 2))
    title = "Effective lengths by other definitions"
    return [Section(title, [table, Paragraph(relative), Paragraph(note)], 3)]
