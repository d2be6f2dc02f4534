"""The tables of the Markdown page; each says in words why a number is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextcliff_dagster.reporting.markup import code, plain, table
from contextcliff_dagster.reporting.numerals import (
    NOT_MEASURED,
    estimate,
    level,
    milliseconds,
    number,
    percent,
    score,
    tokens,
)
from contextcliff_dagster.reporting.sentences import (
    VERDICT_PHRASE,
    location_tokens,
    part,
    parts,
    score_name,
    window_share,
)

Result = Mapping[str, Any]

RULE_WORDS = {
    "transition_sd": "transition: SD at least 2 x the first bin's",
    "variance": "transition: variance more than 2 x the first bin's",
    "mean_drop": "cliff: mean more than 30% below the first bin's",
    "failure_rate_spike": "failure rate at least 2 x the first bin's and .10 above it",
    "first_failing_edge": "cap by these rules: lower edge of the first failing bin, tokens",
    "critical_threshold": "that edge as a share of the window",
}
DEFINITION_WORDS = {
    "ruler_85_6": "RULER (arXiv 2404.06654): longest length with a score of at least .856",
    "nolima_0_85": "NoLiMa (arXiv 2502.05167): longest length with at least .85 x the base score",
    "mecw_5pct": "MECW (arXiv 2509.21361): longest length before a loss of more than 5%",
    "drop_30pct": "longest length before a loss of more than 30% of the baseline",
}
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
        "answers",
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
                f"{estimate(base.get('mean'), base.get('ci_low'), base.get('ci_high'))}, n = {tokens(base.get('n'), 'unknown')}",
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
            "answers in its bins",
        ],
        rows,
        right=(1, 2, 3, 4),
    )
    return [
        *lines,
        "",
        "The zones are cut by the data, so their means carry no interval of their own; the bins below do.",
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
        has = number(b.get("n")) not in (None, 0.0)
        rows.append(
            [
                code(b.get("bin")),
                f"{tokens(b.get('edge_low'), '?')} to {tokens(b.get('edge_high'), '?')}",
                f"[{', '.join(tokens(b.get(k), '?') for k in ('min_tokens', 'median_tokens', 'max_tokens'))}]",
                tokens(b.get("n"), "unknown"),
                tokens(b.get("n_documents"), "unknown"),
                estimate(b.get("mean"), b.get("ci_low"), b.get("ci_high")) if has else "no answers",
                score(b.get("sd"), "needs n of 2"),
                score(b.get("variance"), "needs n of 2"),
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
        "n",
        *(f"{plain(tag)}{' (no answer)' if tag in _TAKEN_OUT else ''}" for tag in tags),
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
    rows = [
        [level(c.get("tolerance")), tokens(c.get("safe_cap_tokens"), "none supported")]
        for c in caps
    ]
    return table(
        [f"tolerated loss, at {level(result.get('confidence'))} confidence", "safe cap, tokens"],
        rows,
        right=(1,),
    )


def rules_table(result: Result) -> list[str]:
    """The plain rules with what they saw; a rule that cannot fire says so."""
    rules = parts(result, "rules")
    if not rules:
        return ["Not evaluated."]
    rows = [
        [
            plain(RULE_WORDS.get(str(r.get("name")), r.get("name"))),
            ("yes" if r.get("fired") else "no")
            if r.get("reachable")
            else "cannot fire on these data",
            code(r["at_bin"]) if r.get("at_bin") is not None else "none",
            _rule_value(r, r.get("value")),
            _rule_value(r, r.get("threshold")),
        ]
        for r in rules
    ]
    lines = table(["rule", "fired", "at bin", "value", "threshold"], rows, right=(3, 4))
    return [
        *lines,
        "",
        "The rules compare single bins with the first one and know nothing of chance; the verdict does not rest on them.",
    ]


def _rule_value(rule: Mapping[str, Any], value: Any) -> str:
    found = number(value)
    if found is None:
        return "none"
    if rule.get("name") == "first_failing_edge":
        return tokens(found)
    if rule.get("name") in ("mean_drop", "critical_threshold", "failure_rate_spike"):
        return percent(found)
    return f"{found:.3f}"


def definitions_table(result: Result) -> list[str]:
    """Other people's effective lengths on the same bins, and LongScore."""
    definitions = part(result, "definitions")
    rows = []
    for name, words in DEFINITION_WORDS.items():
        found = definitions.get(name)
        if isinstance(found, Mapping):
            rows.append([plain(words), _censored(found), _threshold(found.get("threshold"))])
    lines = (
        table(["definition", "tokens", "threshold"], rows, right=(1, 2))
        if rows
        else ["Not evaluated."]
    )
    long_score = definitions.get("longscore")
    if isinstance(long_score, Mapping):
        values = ", ".join(
            f"{tokens(v.get('tokens'), '?')}: {score(v.get('value'))}"
            for v in parts(long_score, "by_length")
        )
        lines += [
            "",
            f"LongScore (arXiv 2505.19293), relative change against {score(long_score.get('base'))} at up to "
            f"{tokens(long_score.get('base_tokens'))} tokens: mean {score(long_score.get('mean'))}"
            + (f" (by tokens {values})." if values else "."),
        ]
    return [
        *lines,
        "",
        "Read off the means of the bins at their median lengths; these definitions give no intervals.",
    ]


def _censored(found: Mapping[str, Any]) -> str:
    mark = found.get("censored")
    if mark == ">":
        return f"at least {tokens(found.get('tokens'))}"
    if mark == "<":
        return "below the shortest measured"
    return tokens(found.get("tokens"), "none")


def detector_lines(result: Result) -> list[str]:
    """Second opinions, where the analysis gives any."""
    detectors, sensitivity = parts(result, "detectors"), parts(result, "sensitivity")
    lines: list[str] = []
    if detectors:
        rows = [
            [
                plain(d.get("name")),
                tokens(d.get("location_tokens"), "nothing found"),
                "yes" if d.get("agrees") else "no",
            ]
            for d in detectors
        ]
        lines += [
            "",
            "### Other detectors",
            "",
            *table(["detector", "drop at, tokens", "agrees"], rows, right=(1,)),
        ]
    if sensitivity:
        said = [
            "; ".join(
                f"{plain(k)} {plain(tokens(v) if k.endswith('tokens') else v)}"
                for k, v in s.items()
            )
            for s in sensitivity
        ]
        lines += ["", "### Sensitivity of the cap", "", *(f"- {text}" for text in said)]
    return lines


def _threshold(value: Any) -> str:
    found = number(value)
    return "none" if found is None else f"{found:.3f}"
