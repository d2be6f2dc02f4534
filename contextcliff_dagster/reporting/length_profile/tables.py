"""The tables of the length profile's page; each gives the reason where a number is missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import UNSCORED_TAGS, Verdict
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Cell,
    Code,
    DataTable,
    Paragraph,
    Section,
    Text,
)
from contextcliff_dagster.reporting.wording.number_format import (
    NOT_MEASURED,
    estimate,
    level,
    milliseconds,
    percent,
    score,
    tokens,
)
from contextcliff_dagster.reporting.wording.sentences import (
    VERDICT_PHRASE,
    score_name,
    window_share,
)

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.cliffs import Cliff, Zone


def models_section(results: Sequence[Cliffs], names: Sequence[str]) -> Section:
    """One row per model: verdict, caps, place and size of the drop, baseline, window, amounts."""
    head = [
        "model",
        "verdict",
        "safe cap, tokens",
        "as prompt tokens",
        "midpoint of the drop, tokens",
        "share of window",
        "drop",
        "baseline",
        "window",
        "examples",
        "documents",
        "tokenizer",
    ]
    rows: list[list[Cell]] = []
    for name, r in zip(names, results, strict=True):
        cliff, base = r.cliff, r.baseline
        rows.append(
            [
                Code(name),
                VERDICT_PHRASE[r.verdict],
                tokens(r.safe_cap_tokens, "none supported"),
                tokens(r.cap_prompt_tokens, "unknown"),
                "none found" if cliff is None else _location(cliff),
                percent(window_share(r), "none"),
                "none found" if cliff is None else _drop(cliff),
                Bracketed(
                    f"{estimate(base.mean, base.ci_low, base.ci_high)}, n = {tokens(base.n)}"
                ),
                tokens(r.window_tokens, "unknown"),
                tokens(r.n),
                tokens(r.n_documents, "unknown"),
                Code(r.tokenizer or None),
            ]
        )
    return Section("Models", [DataTable(head, rows, right=(2, 3, 8, 9, 10))])


def _location(cliff: Cliff) -> Bracketed:
    span = f"[{tokens(cliff.ci_low)}, {tokens(cliff.ci_high)}]"
    return Bracketed(f"{tokens(cliff.location_tokens)} {span}")


def _drop(cliff: Cliff) -> Bracketed:
    span = f"[{percent(cliff.drop_ci_low)}, {percent(cliff.drop_ci_high)}]"
    return Bracketed(f"{percent(cliff.drop)} {span}")


def zones_section(result: Cliffs) -> Section:
    """Zones as half-open token ranges with the mean score of the answers inside."""
    zones = result.zones
    if not zones:
        reason = "None: the data do not support a division into zones."
        return Section("Zones", [Paragraph(reason)], 3)
    rows = [
        [
            z.name,
            tokens(z.from_tokens),
            tokens(z.to_tokens),
            score(z.mean),
            _zone_n(result, z),
        ]
        for z in zones
    ]
    mean = f"mean {score_name(result)}"
    head = ["zone", "from token", "to below token", mean, "examples in its bins"]
    note = (
        "The zones are derived from the data, so their means have no interval of their own; the "
        "bins' means do."
    )
    return Section("Zones", [DataTable(head, rows, right=(1, 2, 3, 4)), Paragraph(note)], 3)


def _zone_n(result: Cliffs, zone: Zone) -> str:
    """Answers of the bins whose median document lies in the zone: the contract counts by bin."""
    total = sum(
        b.n
        for b in result.bins
        if b.median_tokens is not None and zone.from_tokens <= b.median_tokens < zone.to_tokens
    )
    return f"about {total:,}"


def bins_section(result: Cliffs) -> Section:
    """Per bin: tokens, amounts, mean with interval, spread, failures, time to first token."""
    bins = result.bins
    if not bins:
        return Section("Bins", [Paragraph("No bins.")], 3)
    head: list[Text] = [
        "bin",
        "edges",
        Bracketed("tokens [min, median, max]"),
        "n",
        "documents",
        "mean",
        "SD",
        "variance",
        "failure rate",
        "missing",
        "time to first token p50, p95",
    ]
    rows: list[list[Cell]] = []
    for b in bins:
        has = b.mean is not None
        no_spread = "needs n of 2" if b.n == 1 or not has else "unknown"
        spread = (b.min_tokens, b.median_tokens, b.max_tokens)
        rows.append(
            [
                Code(b.bin),
                f"{tokens(b.edge_low)} to {tokens(b.edge_high)}",
                Bracketed(f"[{', '.join(tokens(length, '?') for length in spread)}]"),
                "unknown" if has and not b.n else tokens(b.n),
                tokens(b.n_documents, "unknown"),
                Bracketed(estimate(b.mean, b.ci_low, b.ci_high) if has else "no answers"),
                score(b.sd, no_spread),
                score(b.variance, no_spread),
                percent(b.failure_rate, "unknown"),
                tokens(b.missing),
                NOT_MEASURED
                if b.ttft_ms is None
                else f"{milliseconds(b.ttft_ms.p50)}, {milliseconds(b.ttft_ms.p95)}",
            ]
        )
    return Section("Bins", [DataTable(head, rows, right=(3, 4, 6, 7, 8, 9))], 3)


def failures_section(result: Cliffs) -> Section:
    """Counts of failure tags per bin; the three that are no answers are marked."""
    return Section("Failures by tag", [_failures(result)], 3)


def _failures(result: Cliffs) -> Paragraph | DataTable:
    known = [(b, b.failures) for b in result.bins if b.failures is not None]
    if not known:
        return Paragraph("Not measured: the records carry no failure tags.")
    tags = sorted({tag for _, failures in known for tag in failures})
    if not tags:
        return Paragraph("No failures.")
    head = [
        "bin",
        "examples",
        *(f"calls: {tag}{' (no answer)' if tag in UNSCORED_TAGS else ''}" for tag in tags),
    ]
    rows: list[list[Cell]] = [
        [Code(b.bin), tokens(b.n), *(tokens(failures.get(tag, 0)) for tag in tags)]
        for b, failures in known
    ]
    sums = [sum(failures.get(tag, 0) for _, failures in known) for tag in tags]
    rows.append(["all", tokens(sum(b.n for b, _ in known)), *(tokens(s) for s in sums)])
    return DataTable(head, rows, right=range(1, len(head)))


def caps_section(result: Cliffs) -> Section:
    """The safe cap for several tolerated losses at the same confidence."""
    title, caps = "Caps by tolerance", result.caps_by_tolerance
    if not caps:
        return Section(title, [Paragraph("Not measured.")], 3)
    barred = result.verdict in (Verdict.INSUFFICIENT_DATA, Verdict.FLOOR)
    why = "" if barred else ": a drop right after the baseline is not excluded"
    rows = [[level(c.tolerance), tokens(c.safe_cap_tokens, f"none supported{why}")] for c in caps]
    head = [f"tolerated drop, at {level(result.confidence)} confidence", "safe cap, tokens"]
    blocks: list[Block] = [DataTable(head, rows, right=(1,))]
    ordered = sorted(caps, key=lambda c: c.tolerance)
    values = [c.safe_cap_tokens or 0 for c in ordered]
    if any(wide < tight for tight, wide in pairwise(values)):
        note = (
            "Each cap is computed around its own tolerance, so the cap of a larger tolerance may "
            "come out slightly lower; a length that is safe at the smaller is safe at the larger."
        )
        blocks.append(Paragraph(note))
    return Section(title, blocks, 3)
