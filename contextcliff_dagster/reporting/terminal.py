"""The FAILURE RISK REPORT of the terminal: plain text per model, then one line that compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.reporting.wording.number_format import (
    NOT_MEASURED,
    level,
    percent,
    score,
    tokens,
)
from contextcliff_dagster.reporting.wording.sentences import (
    amount,
    certify_sentence,
    comparison,
    half_drop_sentence,
    labels,
    location_tokens,
    measured_range,
    score_name,
    sentence,
    window_share,
)

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.cliffs import Zone, ZoneName

_ZONES: tuple[tuple[ZoneName, str, str], ...] = (
    ("stable", "[OK]", "Stable Region:"),
    ("transition", "[!!]", "Transition Zone:"),
    ("degraded", "[XX]", "Degraded Region:"),
)


def risk_report(cliffs: Cliffs) -> str:
    """The report of one model as lines of text without a trailing newline.

    The layout is fixed: what was measured, then window and critical threshold, zones, and the
    recommendation, whose last line places the drop in the window or says why it cannot. A null of
    the contract becomes words; nothing is estimated here.
    """
    lines = [
        _measured(cliffs),
        "",
        "FAILURE RISK REPORT",
        "-------------------",
        f"Max Technical Context: {_window(cliffs)}",
        f"Critical Threshold:    {_threshold(cliffs)}",
        *_threshold_interval(cliffs),
        "",
        "ZONES:",
        *_zone_lines(cliffs),
        "",
        "RECOMMENDATION:",
        *_recommendation(cliffs),
        *_other_cause(cliffs),
        half_drop_sentence(cliffs),
    ]
    return "\n".join(lines)


def control_lines(cliffs: Cliffs) -> list[str]:
    """What the controls say, a line each; empty where none was asked."""
    said = [sentence(text) for control in cliffs.controls for text in control.says]
    return ["CONTROLS:", *said] if said else []


def definition_lines(cliffs: Cliffs) -> list[str]:
    """Other people's effective lengths, a line each; empty where none was evaluated."""
    definitions = cliffs.definitions
    lines = []
    for words, found in (
        ("RULER:", definitions.ruler_85_6),
        ("NoLiMa:", definitions.nolima_0_85),
        ("MECW (5% drop):", definitions.mecw_5pct),
        ("30% drop:", definitions.drop_30pct),
    ):
        if found.threshold is None:  # nothing was scored
            continue
        at = {
            "<": "below the shortest measured",
            ">": f"at least {tokens(found.tokens)} tokens",
            None: f"{tokens(found.tokens, 'none')} tokens",
        }[found.censored]
        lines.append(f"{words:<23}{at} (score of at least {found.threshold:.3f})")
    mean = definitions.longscore.mean
    if mean is not None:
        lines.append(f"{'LongScore:':<23}{mean:+.3f}")
    return ["EFFECTIVE LENGTHS BY OTHER DEFINITIONS:", *lines] if lines else []


def comparison_line(cliffs: Sequence[Cliffs]) -> str:
    """All models in one line, the longest cap first; an empty string for fewer than two."""
    line = comparison(cliffs)
    return f"COMPARISON: {line}" if line else ""


def _measured(cliffs: Cliffs) -> str:
    said = [labels([cliffs])[0]]
    if task := cliffs.task:
        said.append(f"task {task}")
    reach = measured_range(cliffs)
    span = f" of {tokens(reach[0])} to {tokens(reach[1])} tokens" if reach else ""
    said.append(f"{amount(cliffs)}{span}")
    if campaign := cliffs.campaign:
        said.append(f"campaign {campaign}")
    return " ".join(" | ".join(said).split())


def _window(cliffs: Cliffs) -> str:
    window = cliffs.window_tokens
    return "unknown" if window is None else f"{tokens(window)} tokens"


def _confidence(cliffs: Cliffs) -> str:
    return f"[{level(cliffs.confidence)} CONFIDENCE]"


def _threshold(cliffs: Cliffs) -> str:
    if cliffs.verdict is Verdict.INSUFFICIENT_DATA:
        return "not supported by the data [INSUFFICIENT DATA]"
    if cliffs.verdict is Verdict.FLOOR:
        return "undefined, the score starts at the floor [FLOOR]"
    location = location_tokens(cliffs)
    if location is None:
        reach = measured_range(cliffs)
        up_to = f" up to {tokens(reach[1])} tokens" if reach else ""
        return f"none found{up_to} {_confidence(cliffs)}"
    share = window_share(cliffs)
    of_max = "share of max unknown" if share is None else f"{percent(share)} of max"
    return f"{tokens(location)} tokens ({of_max}) {_confidence(cliffs)}"


def _threshold_interval(cliffs: Cliffs) -> list[str]:
    barred = (Verdict.INSUFFICIENT_DATA, Verdict.FLOOR)
    if cliffs.cliff is None or cliffs.verdict in barred:
        return []
    low, high = cliffs.cliff.ci_low, cliffs.cliff.ci_high
    return [" " * 23 + f"between {tokens(low)} and {tokens(high)} tokens"]


def _zone_lines(cliffs: Cliffs) -> list[str]:
    zones = cliffs.zones
    if not zones:
        return ["none: the data do not support a division into zones"]
    head = {name: f"{mark} {title:<20}" for name, mark, title in _ZONES}
    present = {z.name for z in zones}
    lines = [
        f"{head[z.name]}{_zone_span(zones, i)} {_zone_note(cliffs, z)}" for i, z in enumerate(zones)
    ]
    lines += [f"{head[name]}none found" for name, _, _ in _ZONES if name not in present]
    return lines


def _zone_span(zones: Sequence[Zone], index: int) -> str:
    # Zones are half-open; people read "0 - 313" and "> 313" as one shared, inclusive border.
    zone = zones[index]
    low, high = max(zone.from_tokens - 1, 0), zone.to_tokens - 1
    if zone.name == "degraded" and index == len(zones) - 1:
        return f"> {tokens(low)} tokens"
    return f"{tokens(low)} - {tokens(high)} tokens"


def _zone_note(cliffs: Cliffs, zone: Zone) -> str:
    mean = f"Mean {score_name(cliffs, short=True)}: {score(zone.mean)}"
    if zone.name == "degraded":
        return f"({_drop(cliffs, zone)})"
    if zone.name == "transition":
        risen = "High Variance detected; " if variance_rose_in(cliffs, zone) else ""
        return f"({risen}{mean})"
    base = cliffs.baseline
    low, high = base.ci_low, base.ci_high
    if low is None or high is None or zone.from_tokens:
        return f"({mean})"
    return f"({mean}; baseline {score(base.mean)}, {score(low)} to {score(high)}, n = {base.n:,})"


def variance_rose_in(cliffs: Cliffs, zone: Zone) -> bool:
    """True where a bin with its median in ``zone`` meets the transition rule (SD >= 2 x first)."""
    rule = next((r for r in cliffs.rules if r.name == "transition_sd"), None)
    if rule is None or rule.threshold is None or not rule.reachable:
        return False
    return any(
        b.sd > 0 and b.sd >= rule.threshold and zone.from_tokens <= b.median_tokens < zone.to_tokens
        for b in cliffs.bins
        if b.sd is not None and b.median_tokens is not None
    )


def _drop(cliffs: Cliffs, zone: Zone) -> str:
    cliff = cliffs.cliff
    if cliff is None:
        mean, base = zone.mean, cliffs.baseline.mean
        return (
            f"Performance drop: {NOT_MEASURED}"
            if mean is None or not base
            else f"Performance drop: {_signed(1 - mean / base)}, no interval"
        )
    low, high = _signed(cliff.drop_ci_low), _signed(cliff.drop_ci_high)
    return f"Performance drop: {_signed(cliff.drop)}, between {low} and {high}"


def _signed(drop: float) -> str:
    return f"{-100 * drop:.1f}%".replace("-0.0%", "0.0%")


def _recommendation(cliffs: Cliffs) -> list[str]:
    cap = cliffs.safe_cap_tokens
    if cap is None:
        reason = sentence(cliffs.safe_cap_reason) or "The analysis gives no reason."
        lines = [f"These data support no hard cap. {reason}"]
        return lines + ([more] if (more := certify_sentence(cliffs)) is not None else [])
    lines = [f"Hard cap inference context at {tokens(cap)} tokens."]
    prompt = cliffs.cap_prompt_tokens
    if prompt is not None:
        lines.append(
            f"That is the document alone; as a prompt of this model it is {tokens(prompt)} tokens."
        )
    joint = cliffs.joint_cap
    if joint is not None and joint.limited_by == "latency" and joint.tokens is not None:
        lines.append(
            f"Beyond {tokens(joint.tokens)} tokens, time to first token is higher than expected: "
            "cap there where latency matters."
        )
    if (more := certify_sentence(cliffs)) is not None:
        lines.append(more)
    return lines


def _other_cause(cliffs: Cliffs) -> list[str]:
    unknown = cliffs.confounds.identified == "no"
    if not unknown or location_tokens(cliffs) is None:
        return []
    return ["Length is not shown to be the cause: see the report for the reason."]
