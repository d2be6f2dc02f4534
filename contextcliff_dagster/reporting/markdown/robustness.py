"""How far the result depends on how one looks: other detectors, other choices, more data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextcliff_dagster.reporting.markdown.escaping import plain, table
from contextcliff_dagster.reporting.wording.number_format import count, level, number, tokens
from contextcliff_dagster.reporting.wording.sentences import VERDICT_PHRASE, part, parts, sentence

Result = Mapping[str, Any]


def confounds_line(result: Result) -> str | None:
    """Whether a changing mix of questions explains the loss; ``None`` where nobody looked."""
    confounds = part(result, "confounds")
    if confounds.get("identified") == "no":
        return "That length is the cause is not shown: see the warnings."
    reasons = confounds.get("reasons")
    if confounds.get("identified") != "yes" or not isinstance(reasons, list):
        return None
    return " ".join(["Is it length, or other questions?", *map(sentence, reasons)])


def detector_lines(result: Result) -> list[str]:
    """Other detectors with the place each sees; nothing where none was asked."""
    detectors = parts(result, "detectors")
    if not detectors:
        return []
    rows = [
        [
            plain(d.get("name")),
            tokens(d.get("location_tokens"), "nothing found"),
            "cannot be told" if d.get("agrees") is None else "yes" if d.get("agrees") else "no",
        ]
        for d in detectors
    ]
    return [
        "",
        "### Other detectors",
        "",
        *table(["detector", "drop at, tokens", "agrees"], rows, right=(1,)),
        "",
        "Rules of thumb on the same data, without error rates: one agrees where its place lies in "
        "the interval of the half drop, or where neither finds one. Agreement raises no "
        "confidence.",
    ]


def sensitivity_lines(result: Result, picture: str | None) -> list[str]:
    """Cap and verdict with one choice made otherwise; nothing where none was varied."""
    rows = parts(result, "sensitivity")
    if not rows:
        return []
    cells = [
        [
            plain(r.get("factor")),
            plain(r.get("value")) + (" (reported)" if r.get("reported") and r.get("value") else ""),
            plain(VERDICT_PHRASE.get(str(r.get("verdict")), r.get("verdict"))),
            tokens(r.get("safe_cap_tokens"), "none supported"),
            tokens(r.get("location_tokens"), "none found"),
            tokens(r.get("n"), "unknown"),
        ]
        for r in rows
    ]
    head = ["choice", "made as", "verdict", "safe cap, tokens", "half of the drop at", "examples"]
    lines = [
        "",
        "### Sensitivity of the cap",
        "",
        *table(head, cells, right=(3, 4, 5)),
        "",
        "One choice at a time is made otherwise, with fewer permutations. No row is a better "
        "answer than the first, and the largest cap among them has no stated confidence.",
    ]
    if picture:
        lines += ["", f"![Safe cap and half drop with one choice made otherwise]({picture})"]
    return lines


def more_data_lines(result: Result) -> list[str]:
    """What more examples are expected to buy; nothing where it was not reckoned."""
    more = parts(part(result, "certify"), "more")
    if not more:
        return []
    rows = [
        [
            _budget(m),
            f"{count(m.get('examples'), 'example')}, about {tokens(m.get('per_bin'), '?')} a bin",
            tokens(m.get("expected_cap_now"), "none"),
            tokens(m.get("expected_cap_tokens"), "none"),
            _gain(m),
        ]
        for m in more
    ]
    head = ["another", "buys", "cap to expect now", "then", "gain, tokens"]
    assumes = part(result, "certify").get("assumes")
    curve = "flat, as these data allow" if assumes == "flat" else "as it was fitted"
    return [
        "",
        "### What more data would buy",
        "",
        *table(head, rows, right=(2, 3, 4)),
        "",
        f"Simulated, if the curve is {curve}, the examples are spread evenly over the bins and the "
        "corpus has as many: the median cap of eight data sets each, of the size of this one and "
        "of the larger one. This data set's own cap is one such draw.",
    ]


def _budget(more: Mapping[str, Any]) -> str:
    spent = f"{tokens(more.get('tokens'))} tokens"
    usd = number(more.get("usd"))
    return spent if usd is None else f"{spent}, {usd:,.2f} USD"


def _gain(more: Mapping[str, Any]) -> str:
    now = number(more.get("expected_cap_now")) or 0.0
    then = number(more.get("expected_cap_tokens")) or 0.0
    return f"{round(then - now):+,}" if then != now else "0"


def joint_cap_line(result: Result) -> str | None:
    """The cap that scores and times respect, as a sentence; None where no time was tested."""
    joint = part(result, "joint_cap")
    if not joint:
        return None
    cap = number(joint.get("tokens"))
    if cap is None:
        return "Joint cap of score and latency: none, because the score supports none."
    if joint.get("limited_by") == "latency":
        return (
            f"Joint cap of score and latency: {tokens(cap)} tokens, limited by latency: beyond it "
            "the first token comes later than the length explains."
        )
    return (
        f"Joint cap of score and latency: {tokens(cap)} tokens, limited by accuracy: up to there "
        "no slowdown beyond what the length explains was found."
    )


def variance_line(result: Result) -> str | None:
    """Whether scores scatter beyond what their mean explains; None where it was not tested."""
    signal = part(result, "variance_signal")
    if not signal:
        return None
    head = "Scatter of the scores beyond what their mean explains"
    p = number(signal.get("p_value"))
    if p is None:
        return f"{head}: not tested; {signal.get('refused_because')}."
    window = f"{tokens(signal.get('from_tokens'))} to {tokens(signal.get('to_tokens'))} tokens"
    found = "found" if p <= 0.05 else "none found"
    return f"{head}: {found} (the most at {window}, p = {p:.3f}, level {level(0.05)})."
