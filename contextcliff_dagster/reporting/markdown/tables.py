"""The tables of the Markdown page; each says in words why a number is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from contextcliff_dagster.reporting.markdown.escaping import code, plain, table
from contextcliff_dagster.reporting.wording.number_format import (
    NOT_MEASURED,
    estimate,
    level,
    milliseconds,
    number,
    percent,
    score,
    tokens,
)
from contextcliff_dagster.reporting.wording.sentences import (
    VERDICT_PHRASE,
    location_tokens,
    part,
    parts,
    score_name,
    window_share,
)

Result = Mapping[str, Any]

_SPREAD = ("min", "median", "max")
_TAKEN_OUT = ("context_overflow", "transport_error", "invalid_truncated")


def models_table(results: Sequence[Result], names: Sequence[str]) -> list[str]:
    """One row per model: verdict, caps, place and size of the drop, baseline, window, amounts."""
    head = [
        "model",
        "verdict",
        "safe cap, tokens",
        "as prompt tokens",
        "half of the drop at, tokens",
        "share of window",
        "drop",
        "baseline",
        "window",
        "examples",
        "documents",
        "tokenizer",
    ]
    rows = []
    for name, r in zip(names, results, strict=True):
        cliff, base = part(r, "cliff"), part(r, "baseline")
        rows.append(
            [
                code(name),
                plain(VERDICT_PHRASE.get(str(r.get("verdict")), r.get("verdict"))),
                tokens(r.get("safe_cap_tokens"), "none supported"),
                tokens(r.get("cap_prompt_tokens"), "unknown"),
                _with_span(
                    location_tokens(r),
                    cliff.get("ci_low"),
                    cliff.get("ci_high"),
                    tokens,
                    "none found",
                ),
                percent(window_share(r), "none"),
                _with_span(
                    cliff.get("drop"),
                    cliff.get("drop_ci_low"),
                    cliff.get("drop_ci_high"),
                    percent,
                    "none found",
                ),
                f"{estimate(base.get('mean'), base.get('ci_low'), base.get('ci_high'))}, "
                f"n = {tokens(base.get('n'), 'unknown')}",
                tokens(r.get("window_tokens"), "not stated"),
                tokens(r.get("n"), "unknown"),
                tokens(r.get("n_documents"), "unknown"),
                code(r["tokenizer"]) if r.get("tokenizer") else "not stated",
            ]
        )
    return ["## Models", "", *table(head, rows, right=(2, 3, 8, 9, 10))]


def _with_span(value: Any, low: Any, high: Any, spell: Any, missing: str) -> str:
    if number(value) is None:
        return missing
    if number(low) is None or number(high) is None:
        return f"{spell(value)} (no interval)"
    return f"{spell(value)} [{spell(low)}, {spell(high)}]"


def zones_table(result: Result) -> list[str]:
    """Zones as half-open token ranges with the mean score of the answers inside."""
    zones = parts(result, "zones")
    if not zones:
        return ["None: the data do not support a division into zones."]
    rows = [
        [
            plain(z.get("name")),
            tokens(z.get("from_tokens"), "0"),
            tokens(z.get("to_tokens"), "open"),
            score(z.get("mean")),
            _zone_n(result, z),
        ]
        for z in zones
    ]
    lines = table(
        [
            "zone",
            "from token",
            "to below token",
            f"mean {plain(score_name(result))}",
            "examples in its bins",
        ],
        rows,
        right=(1, 2, 3, 4),
    )
    return [
        *lines,
        "",
        "The zones are cut by the data, so their means carry no interval of their own; the bins' "
        "means do.",
    ]


def _zone_n(result: Result, zone: Mapping[str, Any]) -> str:
    """Answers of the bins whose median document lies in the zone: the contract counts by bin."""
    low, high = number(zone.get("from_tokens")) or 0.0, number(zone.get("to_tokens"))
    total = sum(
        number(b.get("n")) or 0
        for b in parts(result, "bins")
        if (at := number(b.get("median_tokens"))) is not None
        and at >= low
        and (high is None or at < high)
    )
    return f"about {round(total):,}"


def bins_table(result: Result) -> list[str]:
    """Per bin: tokens, amounts, mean with interval, spread, failures, time to first token."""
    bins = parts(result, "bins")
    if not bins:
        return ["No bins."]
    head = [
        "bin",
        "edges",
        "tokens [min, median, max]",
        "n",
        "documents",
        "mean",
        "SD",
        "variance",
        "failure rate",
        "missing",
        "first token p50, p95",
    ]
    rows = []
    for b in bins:
        first = part(b, "ttft_ms")
        has = number(b.get("mean")) is not None
        no_spread = "needs n of 2" if number(b.get("n")) == 1 or not has else "unknown"
        rows.append(
            [
                code(b.get("bin")),
                f"{tokens(b.get('edge_low'), '?')} to {tokens(b.get('edge_high'), '?')}",
                f"[{', '.join(tokens(b.get(f'{k}_tokens'), '?') for k in _SPREAD)}]",
                "unknown" if has and not b.get("n") else tokens(b.get("n"), "unknown"),
                tokens(b.get("n_documents"), "unknown"),
                estimate(b.get("mean"), b.get("ci_low"), b.get("ci_high")) if has else "no answers",
                score(b.get("sd"), no_spread),
                score(b.get("variance"), no_spread),
                percent(b.get("failure_rate"), "unknown"),
                tokens(b.get("missing"), "unknown"),
                NOT_MEASURED
                if number(first.get("p50")) is None
                else f"{milliseconds(first.get('p50'))}, {milliseconds(first.get('p95'))}",
            ]
        )
    return table(head, rows, right=(3, 4, 6, 7, 8, 9))


def failures_table(result: Result) -> list[str]:
    """Counts of failure tags per bin; the three that are no answers are marked."""
    bins = parts(result, "bins")
    known = [b for b in bins if isinstance(b.get("failures"), Mapping)]
    if not known:
        return ["Not measured: the records carry no failure tags."]
    tags = sorted({str(tag) for b in known for tag in b["failures"]})
    if not tags:
        return ["No failures."]
    head = [
        "bin",
        "examples",
        *(f"calls: {plain(tag)}{' (no answer)' if tag in _TAKEN_OUT else ''}" for tag in tags),
    ]
    rows = [
        [
            code(b.get("bin")),
            tokens(b.get("n"), "?"),
            *(tokens(b["failures"].get(tag), "0") for tag in tags),
        ]
        for b in known
    ]
    sums = [sum(number(b["failures"].get(tag)) or 0 for b in known) for tag in tags]
    total = sum(number(b.get("n")) or 0 for b in known)
    rows.append(["all", tokens(total), *(tokens(s) for s in sums)])
    return table(head, rows, right=range(1, len(head)))


def caps_table(result: Result) -> list[str]:
    """The safe cap for several tolerated losses at the same confidence."""
    caps = parts(result, "caps_by_tolerance")
    if not caps:
        return ["Not measured."]
    barred = result.get("verdict") in ("insufficient_data", "floor")
    why = "" if barred else ": a loss right after the baseline is not excluded"
    rows = [
        [level(c.get("tolerance")), tokens(c.get("safe_cap_tokens"), f"none supported{why}")]
        for c in caps
    ]
    lines = table(
        [f"tolerated loss, at {level(result.get('confidence'))} confidence", "safe cap, tokens"],
        rows,
        right=(1,),
    )
    ordered = sorted(caps, key=lambda c: number(c.get("tolerance")) or 0.0)
    found = [number(c.get("safe_cap_tokens")) or 0.0 for c in ordered]
    if any(wide < tight for tight, wide in pairwise(found)):
        lines += [
            "",
            "Each cap comes from losses laid around its own tolerance, so that a larger one may "
            "come out a little lower; a length that is safe at the smaller is safe at the larger.",
        ]
    return lines
