"""The terminal's FAILURE RISK REPORT: plain text per model, then one line of comparison."""

from __future__ import annotations

from collections.abc import Sequence

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.contracts.results.cliffs import Zone, ZoneName
from contextcliff_dagster.reporting import wording

_ZONES: tuple[tuple[ZoneName, str, str], ...] = (
    ("stable", "[OK]", "Stable Region:"),
    ("transition", "[!!]", "Transition Zone:"),
    ("degraded", "[XX]", "Degraded Region:"),
    ("not_shown", "[--]", "Not Shown:"),
)


def risk_report(cliffs: Cliffs) -> str:
    """Return the report of one model as text without a trailing newline.

    The layout is fixed: what was measured; window, cap and critical threshold; zones; and the
    recommendation, which ends with the drop's place in the window, or why there is none, and with
    where RoPE fails, if supported. Nulls of the contract become words; nothing is estimated here.
    """
    window = cliffs.window_tokens
    lines = [
        _measured_line(cliffs),
        *_missing_lines(cliffs),
        *([cliffs.score_doubt] if cliffs.score_doubt else []),
        "",
        "FAILURE RISK REPORT",
        "-------------------",
        f"Max Technical Context: {wording.tokens(window, 'unknown')}{' tokens' if window else ''}",
        f"Safe Cap:              {_safe_cap(cliffs)}",
        f"Critical Threshold:    {_threshold(cliffs)}",
        "",
        "ZONES:",
        *_zone_lines(cliffs),
        "",
        "RECOMMENDATION:",
        *_recommendation(cliffs),
        wording.half_drop_sentence(cliffs),
        *filter(None, [wording.rope_sentence(cliffs.attention)]),
        *_attention(cliffs),
    ]
    return wording.isolated("\n".join(lines))


def _safe_cap(cliffs: Cliffs) -> str:
    cap, joint = cliffs.safe_cap_tokens, cliffs.joint_cap
    if cap is None:
        return "none"
    if joint is None or joint.limited_by != "latency_limit":
        words = ", ".join(
            filter(None, [f"{wording.tokens(cap)} tokens", wording.usefulness(cliffs)])
        )
        octave = wording.last_octave_phrase(cliffs)
        return words + (f" (by {octave})" if octave else "")
    decides = "none" if joint.tokens is None else f"{wording.tokens(joint.tokens)} tokens"
    return (
        f"{decides} by the limit on the time to first token, {wording.tokens(cap)} tokens by the "
        "scores"
    )


def _attention(cliffs: Cliffs) -> list[str]:
    """Return the lines on attention; empty if it was not measured."""
    if (attention := cliffs.attention) is None:
        return []
    return [
        "",
        "ATTENTION (not used for the verdict or the cap):",
        *map(wording.sentence, attention.says),
    ]


def control_lines(cliffs: Cliffs) -> list[str]:
    """Return the results of the controls, one line each; empty without controls."""
    lines = [wording.sentence(text) for control in cliffs.controls for text in control.says]
    return ["CONTROLS:", *lines] if lines else []


def definition_lines(cliffs: Cliffs) -> list[str]:
    """Return effective lengths by published definitions, one line each; empty if none applies."""
    definitions = cliffs.definitions
    lines = []
    for words, length in (
        ("RULER:", definitions.ruler_85_6),
        ("NoLiMa:", definitions.nolima_0_85),
        ("MECW (5% drop):", definitions.mecw_5pct),
        ("30% drop:", definitions.drop_30pct),
    ):
        if length.threshold is None:  # nothing was scored
            continue
        at = {
            "<": "below the shortest measured",
            ">": f"at least {wording.tokens(length.tokens)} tokens",
            None: f"{wording.tokens(length.tokens, 'none')} tokens",
        }[length.censored]
        lines.append(f"{words:<23}{at} (score of at least {length.threshold:.3f})")
    if (mean := definitions.longscore.mean) is not None:
        lines.append(f"{'LongScore:':<23}{mean:+.3f}")
    return ["EFFECTIVE LENGTHS BY OTHER DEFINITIONS:", *lines] if lines else []


def comparison_line(cliffs: Sequence[Cliffs]) -> str:
    """Return all models in one line, in their order; empty for fewer than two."""
    line = wording.comparison(cliffs)
    return f"COMPARISON: {wording.isolated(line)}" if line else ""


def _measured_line(cliffs: Cliffs) -> str:
    reach = wording.measured_range(cliffs)
    span = f" of {wording.tokens(reach[0])} to {wording.tokens(reach[1])} tokens" if reach else ""
    parts = (
        wording.labels([cliffs])[0],
        f"task {cliffs.task}" if cliffs.task else "",
        f"{wording.amount(cliffs)}{span}",
        f"campaign {cliffs.campaign}" if cliffs.campaign else "",
    )
    return " ".join(" | ".join(filter(None, parts)).split())


def _missing_lines(cliffs: Cliffs) -> list[str]:
    missing = cliffs.missing.total
    planned = max(missing, round(missing / max(cliffs.missing_share, 1e-9)))
    return [*filter(None, [wording.unanswered_sentence(cliffs.missing, planned - missing)])]


def _threshold(cliffs: Cliffs) -> str:
    """Return the critical threshold: its length, meaning and, if there is one, its interval."""
    if cliffs.verdict is Verdict.INSUFFICIENT_DATA:
        return "not supported by the data [INSUFFICIENT DATA]"
    if cliffs.verdict is Verdict.FLOOR:
        return "undefined, the score starts at the floor [FLOOR]"
    if (cliff := cliffs.cliff) is None:  # what was not found has no confidence
        reach = wording.measured_range(cliffs)
        words = wording.VERDICT_PHRASE[cliffs.verdict]
        return f"{words} up to {wording.tokens(reach[1])} tokens" if reach else words
    share = wording.window_share(cliffs)
    of_max = "share of max unknown" if share is None else f"{wording.percent(share)} of max"
    landmark = "start of the dip" if cliffs.verdict is Verdict.DIP else "midpoint of the drop"
    at = f"{wording.tokens(cliff.location_tokens)} tokens ({of_max})"
    if cliff.ci_low is None or cliff.ci_high is None:
        return f"{at} or less: the {landmark} may lie within the shortest documents"
    at += f", the {landmark}"
    return (
        f"{at} [{wording.level(cliffs.confidence)} interval {wording.tokens(cliff.ci_low)} to "
        f"{wording.tokens(cliff.ci_high)}]"
    )


def _zone_lines(cliffs: Cliffs) -> list[str]:
    zones = cliffs.zones
    if not zones:
        return ["none: the data do not support a division into zones"]
    head = {name: f"{mark} {title:<20}" for name, mark, title in _ZONES}
    unseen = f"[??] {'Transition Zone:':<20}"
    lines = []
    for zone in zones:
        # Zones are half-open; people read "0 - 313" and "> 313" as one shared, inclusive border.
        low, high = max(zone.from_tokens - (zone is not zones[0]), 0), zone.to_tokens - 1
        last = zone.name == "degraded" and zone is zones[-1]
        span = f"{wording.tokens(low)} - {wording.tokens(high)}"
        if last:
            span = f"> {wording.tokens(low)}"
        start = unseen if zone.name == "transition" and not _fell(cliffs, zone) else head[zone.name]
        lines.append(f"{start}{span} tokens ({_zone_note(cliffs, zone)})")
    present = {zone.name for zone in zones}
    absent = [name for name in head if name not in {*present, "not_shown"}]
    return lines + [f"{head[name]}none found" for name in absent]


def _zone_note(cliffs: Cliffs, zone: Zone) -> str:
    base = cliffs.baseline
    mean = f"Mean {wording.score_name(cliffs, short=True)}: {wording.score(zone.mean)}"
    mean += " of the answered calls" if cliffs.missing_by_length else ""
    if zone.name == "degraded":
        floor = cliffs.verdict is Verdict.FLOOR
        return mean if floor else f"Score down {_drop(cliffs, zone)}"
    unseen = f"a drop is not ruled out; {mean}"
    if zone.name == "not_shown":
        return f"beyond the dip; {mean}" if cliffs.verdict is Verdict.DIP else unseen
    if zone.name == "transition":
        if not _fell(cliffs, zone):
            return unseen
        return f"High Variance detected; {mean}" if _variance_rose_in(cliffs, zone) else mean
    if base.ci_low is None or base.ci_high is None or zone is not cliffs.zones[0]:
        return mean
    interval = f"{wording.score(base.ci_low)} to {wording.score(base.ci_high)}"
    measured = f"baseline {wording.score(base.mean)}, {interval}, n = {base.n:,}"
    fitted = base.mean if base.fitted is None else base.fitted
    is_equal = wording.score(fitted) == wording.score(base.mean)
    by_curve = "" if is_equal else f", {wording.score(fitted)} by the fitted curve"
    return f"{mean}; {measured}{by_curve}"


def _fell(cliffs: Cliffs, zone: Zone) -> bool:
    """Return whether the mean in ``zone`` is below the baseline; True if either is unknown."""
    mean, base = zone.mean, cliffs.baseline.mean
    return mean is None or base is None or round(mean, 2) < round(base, 2)


def _variance_rose_in(cliffs: Cliffs, zone: Zone) -> bool:
    """Return whether a bin with its median in ``zone`` meets the transition rule (SD >= 2 x first).

    Always False for scores of 0 or 1, whose SD follows from their mean.
    """
    rule = next((r for r in cliffs.rules if r.name == "transition_sd"), None)
    if rule is None or not rule.reachable or wording.is_all_or_nothing(cliffs):
        return False
    least, low, high = rule.threshold, zone.from_tokens, zone.to_tokens
    known = [(b.sd or 0.0, b.median_tokens) for b in cliffs.bins if b.median_tokens is not None]
    spreads = [sd for sd, median in known if low <= median < high]
    return least is not None and any(sd > 0 and sd >= least for sd in spreads)


def _drop(cliffs: Cliffs, zone: Zone) -> str:
    """Return the drop in ``zone`` with its interval; a gain counts as 0."""
    cliff, mean, base = cliffs.cliff, zone.mean, cliffs.baseline.mean
    if cliff is None:
        if mean is None or not base:
            return wording.NOT_MEASURED
        return f"{wording.percent(max(1 - mean / base, 0.0))}, no interval"
    low, high = (wording.percent(max(end, 0.0)) for end in (cliff.drop_ci_low, cliff.drop_ci_high))
    return f"{wording.percent(max(cliff.drop, 0.0))} [{low} to {high}]"


def _recommendation(cliffs: Cliffs) -> list[str]:
    cap, prompt, joint = cliffs.safe_cap_tokens, cliffs.cap_prompt_tokens, cliffs.joint_cap
    limited_by = joint.limited_by if joint else None
    alone = f"the scores alone allow {wording.tokens(cap)} tokens."
    if cap is None:
        reason = wording.sentence(cliffs.safe_cap_reason) or "The analysis gives no reason."
        lines = [f"These data support no hard cap. {reason}"]
    elif joint is not None and limited_by == "latency_limit" and joint.tokens is None:
        lines = [f"The limit on the time to first token supports no hard cap; {alone}"]
    else:
        if joint is not None and limited_by == "latency_limit":
            cap, prompt = joint.tokens, joint.prompt_tokens
        lines = [f"Hard cap inference context at {wording.tokens(cap)} tokens."]
        if wording.is_useless(cliffs):
            lines = [f"Use this model at no length: {wording.usefulness(cliffs)}."]
        missing = cliffs.missing_by_length
        if missing is not None and missing.cap_tokens == cap:
            lines.append(wording.sentence(cliffs.safe_cap_reason))
        if prompt is not None:
            as_prompt = f"as a prompt of this model it is {wording.tokens(prompt)} tokens."
            if cliffs.length_unit == "document":
                as_prompt = f"That is the document alone; {as_prompt}"
            lines.append(as_prompt[:1].upper() + as_prompt[1:])
        if limited_by == "latency_limit":
            lines.append(f"The limit on the time to first token decides: {alone}")
        if joint is not None and limited_by == "latency":
            lines.append(
                f"Beyond {wording.tokens(joint.tokens)} tokens, time to first token is higher than "
                "expected: cap there where latency matters."
            )
    limit = wording.latency_limit_sentence(cliffs)
    sentences = (
        limit,
        "The score decides the cap." if limit and limited_by == "accuracy" else None,
        wording.looks_sentence(cliffs),
        wording.assumption_sentence(cliffs),
        wording.copies_sentence(cliffs),
        wording.certify_sentence(cliffs),
    )
    lines += [text for text in sentences if text]
    if cliffs.confounds.identified == "no" and cliffs.cliff is not None:
        reason = next(iter(cliffs.confounds.reasons), "see the report")
        reason = reason[:1].upper() + reason[1:]
        lines.append(f"Length is not shown to be the cause. {wording.sentence(reason)}")
    return lines
