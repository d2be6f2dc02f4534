"""The FAILURE RISK REPORT of the terminal: plain text per model, then one line that compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextcliff_dagster.reporting.wording.number_format import (
    NOT_MEASURED,
    level,
    number,
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
    part,
    parts,
    score_name,
    sentence,
    window_share,
    word,
)

_ZONES = (
    ("stable", "[OK]", "Stable Region:"),
    ("transition", "[!!]", "Transition Zone:"),
    ("degraded", "[XX]", "Degraded Region:"),
)


def risk_report(cliffs: Mapping[str, Any]) -> str:
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


def control_lines(cliffs: Mapping[str, Any]) -> list[str]:
    """What the controls say, a line each; empty where none was asked."""
    said = [
        sentence(text)
        for control in parts(cliffs, "controls")
        for text in control.get("says") or ()
    ]
    return ["CONTROLS:", *said] if said else []


def definition_lines(cliffs: Mapping[str, Any]) -> list[str]:
    """Other people's effective lengths, a line each; empty where none was evaluated."""
    found = part(cliffs, "definitions")
    lines = []
    for name, words in _DEFINITIONS:
        value = part(found, name)
        if not value:
            continue
        at = number(value.get("tokens"))
        said = {
            "<": "below the shortest measured",
            ">": f"at least {tokens(at)} tokens",
        }.get(str(value.get("censored")), f"{tokens(at, 'none')} tokens")
        lines.append(f"{words:<23}{said} (score of at least {number(value.get('threshold')):.3f})")
    mean = number(part(found, "longscore").get("mean"))
    if mean is not None:
        lines.append(f"{'LongScore:':<23}{mean:+.3f}")
    return ["EFFECTIVE LENGTHS BY OTHER DEFINITIONS:", *lines] if lines else []


_DEFINITIONS = (
    ("ruler_85_6", "RULER:"),
    ("nolima_0_85", "NoLiMa:"),
    ("mecw_5pct", "MECW (5% loss):"),
    ("drop_30pct", "30% loss:"),
)


def comparison_line(cliffs: Sequence[Mapping[str, Any]]) -> str:
    """All models in one line, the longest cap first; an empty string for fewer than two."""
    line = comparison(cliffs)
    return f"COMPARISON: {line}" if line else ""


def _measured(cliffs: Mapping[str, Any]) -> str:
    said = [labels([cliffs])[0]]
    if task := word(cliffs, "task"):
        said.append(f"task {task}")
    reach = measured_range(cliffs)
    span = f" of {tokens(reach[0])} to {tokens(reach[1])} tokens" if reach else ""
    said.append(f"{amount(cliffs)}{span}")
    if campaign := word(cliffs, "campaign"):
        said.append(f"campaign {campaign}")
    return " ".join(" | ".join(said).split())


def _window(cliffs: Mapping[str, Any]) -> str:
    window = number(cliffs.get("window_tokens"))
    return "not stated" if window is None else f"{tokens(window)} tokens"


def _confidence(cliffs: Mapping[str, Any]) -> str:
    return f"[{level(cliffs.get('confidence'), 'UNSTATED')} CONFIDENCE]"


def _threshold(cliffs: Mapping[str, Any]) -> str:
    verdict = cliffs.get("verdict")
    if verdict == "insufficient_data":
        return "not supported by the data [INSUFFICIENT DATA]"
    if verdict == "floor":
        return "undefined, the score starts at the floor [FLOOR]"
    location = location_tokens(cliffs)
    if location is None:
        reach = measured_range(cliffs)
        up_to = f" up to {tokens(reach[1])} tokens" if reach else ""
        return f"none found{up_to} {_confidence(cliffs)}"
    share = window_share(cliffs)
    of_max = "share of max unknown" if share is None else f"{percent(share)} of max"
    return f"{tokens(location)} tokens ({of_max}) {_confidence(cliffs)}"


def _threshold_interval(cliffs: Mapping[str, Any]) -> list[str]:
    if cliffs.get("verdict") in ("insufficient_data", "floor") or location_tokens(cliffs) is None:
        return []
    cliff = part(cliffs, "cliff")
    low, high = number(cliff.get("ci_low")), number(cliff.get("ci_high"))
    if low is None or high is None:
        return [" " * 23 + "without an interval: these data do not support one"]
    return [" " * 23 + f"between {tokens(low)} and {tokens(high)} tokens"]


def _zone_lines(cliffs: Mapping[str, Any]) -> list[str]:
    zones = [
        z for z in parts(cliffs, "zones") if word(z, "name") in {name for name, _, _ in _ZONES}
    ]
    if not zones:
        return ["none: the data do not support a division into zones"]
    head = {name: f"{mark} {title:<20}" for name, mark, title in _ZONES}
    present = {z["name"] for z in zones}
    lines = [
        f"{head[z['name']]}{_zone_span(zones, i)} {_zone_note(cliffs, z)}"
        for i, z in enumerate(zones)
    ]
    lines += [f"{head[name]}none found" for name, _, _ in _ZONES if name not in present]
    return lines


def _zone_span(zones: Sequence[Mapping[str, Any]], index: int) -> str:
    # Zones are half-open; people read "0 - 313" and "> 313" as one shared, inclusive border.
    low, high = (number(zones[index].get(k)) for k in ("from_tokens", "to_tokens"))
    low = low - 1 if low else low
    high = None if high is None else high - 1
    last = index == len(zones) - 1
    if high is None or (last and zones[index]["name"] == "degraded"):
        return f"> {tokens(low, '?')} tokens"
    return f"{tokens(low, '0')} - {tokens(high)} tokens"


def _zone_note(cliffs: Mapping[str, Any], zone: Mapping[str, Any]) -> str:
    mean = f"Mean {score_name(cliffs, short=True)}: {score(zone.get('mean'))}"
    if zone["name"] == "degraded":
        return f"({_drop(cliffs, zone)})"
    if zone["name"] == "transition":
        risen = "High Variance detected; " if variance_rose_in(cliffs, zone) else ""
        return f"({risen}{mean})"
    base = part(cliffs, "baseline")
    low, high = number(base.get("ci_low")), number(base.get("ci_high"))
    if low is None or high is None or number(zone.get("from_tokens")):
        return f"({mean})"
    n = number(base.get("n"))
    of = "" if n is None else f", n = {round(n):,}"
    return f"({mean}; baseline {score(base.get('mean'))}, {score(low)} to {score(high)}{of})"


def variance_rose_in(cliffs: Mapping[str, Any], zone: Mapping[str, Any]) -> bool:
    """True where a bin with its median in ``zone`` meets the transition rule (SD >= 2 x first)."""
    rule = next((r for r in parts(cliffs, "rules") if r.get("name") == "transition_sd"), {})
    least = number(rule.get("threshold"))
    if least is None or not rule.get("reachable"):
        return False
    low, high = number(zone.get("from_tokens")) or 0.0, number(zone.get("to_tokens"))
    return any(
        sd > 0 and sd >= least and low <= at and (high is None or at < high)
        for b in parts(cliffs, "bins")
        if (sd := number(b.get("sd"))) is not None
        and (at := number(b.get("median_tokens"))) is not None
    )


def _drop(cliffs: Mapping[str, Any], zone: Mapping[str, Any]) -> str:
    cliff = part(cliffs, "cliff")
    drop, low, high = (number(cliff.get(k)) for k in ("drop", "drop_ci_low", "drop_ci_high"))
    if drop is None:
        mean, base = number(zone.get("mean")), number(part(cliffs, "baseline").get("mean"))
        return (
            f"Performance drop: {NOT_MEASURED}"
            if mean is None or not base
            else f"Performance drop: {_signed(1 - mean / base)}, no interval"
        )
    span = (
        f", between {_signed(low)} and {_signed(high)}"
        if low is not None and high is not None
        else ", no interval"
    )
    return f"Performance drop: {_signed(drop)}{span}"


def _signed(drop: float) -> str:
    return f"{-100 * drop:.1f}%".replace("-0.0%", "0.0%")


def _recommendation(cliffs: Mapping[str, Any]) -> list[str]:
    cap = number(cliffs.get("safe_cap_tokens"))
    if cap is None:
        reason = sentence(cliffs.get("safe_cap_reason")) or "The analysis gives no reason."
        lines = [f"No hard cap can be supported by these data. {reason}"]
        return lines + ([more] if (more := certify_sentence(cliffs)) is not None else [])
    lines = [f"Hard cap inference context at {tokens(cap)} tokens."]
    prompt = number(cliffs.get("cap_prompt_tokens"))
    if prompt is not None:
        lines.append(
            f"That is the document; as a prompt of this model it is {tokens(prompt)} tokens."
        )
    joint = part(cliffs, "joint_cap")
    if joint.get("limited_by") == "latency" and number(joint.get("tokens")) is not None:
        lines.append(
            f"Beyond {tokens(joint.get('tokens'))} tokens the first token comes later than the "
            "length explains: cap there where latency counts."
        )
    if (more := certify_sentence(cliffs)) is not None:
        lines.append(more)
    return lines


def _other_cause(cliffs: Mapping[str, Any]) -> list[str]:
    unknown = part(cliffs, "confounds").get("identified") == "no"
    if not unknown or location_tokens(cliffs) is None:
        return []
    return ["That length is the cause is not shown: the report says why."]
