"""What stands beside the verdict: plain rules and other people's definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextcliff_dagster.reporting.markdown.escaping import code, plain, table
from contextcliff_dagster.reporting.wording.number_format import number, percent, score, tokens
from contextcliff_dagster.reporting.wording.sentences import part, parts

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
    "ruler_85_6": "RULER (arXiv 2404.06654): longest length with a score of at least the threshold",
    "nolima_0_85": "NoLiMa (arXiv 2502.05167): longest length with at least .85 x the base score",
    "mecw_5pct": "MECW (arXiv 2509.21361): longest length before a loss of more than 5%",
    "drop_30pct": "longest length before a loss of more than 30% of the baseline",
}


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
        "The rules compare single bins with the first one and know nothing of chance; the verdict "
        "does not rest on them.",
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
    long_score = part(definitions, "longscore")
    if long_score:
        base = score(long_score.get("base"))
        values = ", ".join(
            f"{tokens(v.get('tokens'), '?')}: {score(v.get('value'))}"
            for v in parts(long_score, "by_length")
        )
        lines += [
            "",
            f"LongScore (arXiv 2505.19293), relative change against {base} "
            f"at {_lengths(long_score.get('base_tokens'))} tokens: "
            f"mean {score(long_score.get('mean'))}"
            + (f" (by tokens {values})." if values else "."),
        ]
    return [
        *lines,
        "",
        "Read off the bins' means at their median lengths; these definitions give no intervals.",
    ]


def _censored(found: Mapping[str, Any]) -> str:
    mark = found.get("censored")
    if mark == ">":
        return f"at least {tokens(found.get('tokens'))}"
    if mark == "<":
        return "below the shortest measured"
    return tokens(found.get("tokens"), "none")


def _threshold(value: Any) -> str:
    found = number(value)
    return "none" if found is None else f"{found:.3f}"


def _lengths(value: Any) -> str:
    """One length or several."""
    lengths = value if isinstance(value, list | tuple) else [value]
    return ", ".join(tokens(v, "unknown") for v in lengths) or "unknown"
