"""Tables of the length profile's page; each gives the reason for a missing number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from contextcliff_dagster.analysis.latency import KINDS, KNOWN_WITHIN, WORTH_A_WARNING, WORTH_MS
from contextcliff_dagster.contracts import UNSCORED_TAGS, Verdict
from contextcliff_dagster.contracts.results import Cliffs
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
from contextcliff_dagster.reporting.wording import (
    NOT_MEASURED,
    VERDICT_PHRASE,
    estimate,
    instability_sentence,
    level,
    located,
    milliseconds,
    percent,
    score,
    score_name,
    tokens,
    usefulness,
    window_share,
)

_ALIKE = 0.01
"""Relative spread of the bins' medians up to which one number replaces the table."""


def models_section(results: Sequence[Cliffs], names: Sequence[str]) -> Section:
    """Return a table, one row per model: verdict, caps, drop, baseline, window and counts."""
    short = caps_table(results, [Code(name) for name in names])
    columns = [*short.columns, "documents", "share of window", "window", "tokenizer"]
    rows: list[list[Cell]] = [
        [
            *row,
            tokens(r.n_documents, "unknown"),
            percent(window_share(r), "none"),
            tokens(r.window_tokens, "unknown"),
            Code(r.tokenizer or None),
        ]
        for row, r in zip(short.rows, results, strict=True)
    ]
    return Section("Models", [DataTable(columns, rows, right=(2, 3, 7, 8, 9, 10))], 3)


def caps_table(results: Sequence[Cliffs], names: Sequence[Text]) -> DataTable:
    """Return verdict, cap, midpoint, drop and baseline with intervals, one row per model."""
    head = ["model", "verdict", "safe cap, tokens", "score up to it", "as prompt tokens"]
    head += ["midpoint of the drop, tokens", "drop", "baseline", "examples"]
    rows: list[list[Cell]] = []
    for name, r in zip(names, results, strict=True):
        location: Cell = "no large drop"
        drop: Cell = "no large drop"
        if (cliff := r.cliff) is not None:
            start = "start of the dip: " if r.verdict is Verdict.DIP else ""
            at = located(cliff.location_tokens, cliff.ci_low, cliff.ci_high)
            location = Bracketed(f"{start}{at}")
            span = f"[{percent(cliff.drop_ci_low)}, {percent(cliff.drop_ci_high)}]"
            drop = Bracketed(f"{percent(cliff.drop)} {span}")
        base = r.baseline
        mean = estimate(base.mean, base.ci_low, base.ci_high)
        rows.append(
            [
                name,
                VERDICT_PHRASE[r.verdict],
                tokens(r.safe_cap_tokens, "none supported"),
                usefulness(r) or "–",
                tokens(r.cap_prompt_tokens, "unknown"),
                location,
                drop,
                Bracketed(f"{mean}, n = {tokens(base.n)}"),
                tokens(r.n),
            ]
        )
    return DataTable(head, rows, right=(2, 4, 8))


def zone_sections(result: Cliffs) -> list[Section]:
    """Return the zones as half-open token ranges with the mean score of their answers."""
    if not result.zones:
        reason = "None: the data do not support a division into zones."
        return [Section("Zones", [Paragraph(reason)], 3)]
    rows = []
    for zone in result.zones:
        name, n = zone.name.replace("_", " "), tokens(zone.n, "unknown")
        rows.append([name, tokens(zone.from_tokens), tokens(zone.to_tokens), score(zone.mean), n])
    mean = f"mean {score_name(result)}"
    head = ["zone", "from token", "to below token", mean, "examples"]
    note = (
        "The zones are derived from the data, so their means have no interval of their own; the "
        "bins' means do. The reported drop is the fitted curve's at the longest lengths, or the "
        "dip's, and no ratio of these means."
    )
    return [Section("Zones", [DataTable(head, rows, right=(1, 2, 3, 4)), Paragraph(note)], 3)]


def bin_sections(result: Cliffs) -> list[Section]:
    """Return a table by bin: tokens, counts, mean and interval, spread, failures, latency.

    If known, the server's tokens per token of the study follow: one number for all bins, or a
    section with a row for each.
    """
    bins = result.bins
    if not bins:
        return [Section("Bins", [Paragraph("No bins.")], 3)]
    head: list[Text] = [
        "bin",
        "edges",
        "tokens: min / median / max",
        "n",
        "documents",
        "mean",
        "SD",
        "variance",
        "failure rate",
        "missing",
        "time to first token p50, p95",
    ]
    lost = any(b.delivered_mean is not None for b in bins)
    if lost:
        head.insert(6, "mean, missing as 0")
    rows: list[list[Cell]] = []
    for b in bins:
        delivered: list[Cell] = [score(b.mean if b.delivered_mean is None else b.delivered_mean)]
        scored = b.mean is not None
        no_spread = "needs n of 2" if b.n == 1 or not scored else "unknown"
        spread = (tokens(n, "?") for n in (b.min_tokens, b.median_tokens, b.max_tokens))
        time = NOT_MEASURED
        if b.ttft_ms is not None:
            time = f"{milliseconds(b.ttft_ms.p50)}, {milliseconds(b.ttft_ms.p95)}"
        rows.append(
            [
                Code(b.bin),
                f"{tokens(b.edge_low)} to {tokens(b.edge_high)}",
                " / ".join(spread),
                "unknown" if scored and not b.n else tokens(b.n),
                tokens(b.n_documents, "unknown"),
                Bracketed(estimate(b.mean, b.ci_low, b.ci_high) if scored else "no answers"),
                *(delivered if lost else []),
                score(b.sd, no_spread),
                score(b.variance, no_spread),
                percent(b.failure_rate, "unknown"),
                tokens(b.missing),
                time,
            ]
        )
    table = DataTable(head, rows, right=[*(3, 4, 6, 7, 8, 9), *([10] if lost else [])])
    wordings = [Paragraph(text)] if (text := instability_sentence(result)) else []
    return token_sections(Section("Bins", [table, *wordings], 3), result)


def token_sections(bins: Section, result: Cliffs) -> list[Section]:
    """Return ``bins`` with the server's tokens per token of the study, if known.

    A single number for all bins is added to that section; numbers by bin get their own section.
    """
    ratio = result.token_ratio
    rows = [(row, row.median) for row in ratio.bins if row.median is not None] if ratio else []
    if ratio is None or not rows:
        return [bins]
    medians = sorted(median for _, median in rows)
    tokenizer = Code(result.tokenizer or "the study's tokenizer")
    template = f"{tokens(ratio.template_tokens)} tokens for the chat template"
    off = f"without the prompt around the document and {template}"
    if medians[-1] <= (1 + _ALIKE) * medians[0]:
        middle = f"The server counts {score(medians[len(medians) // 2])} tokens for one of "
        summary = Paragraph([middle, tokenizer, f" in every bin ({off})."])
        return [replace(bins, blocks=[*bins.blocks, summary])]
    cells: list[list[Cell]] = [
        [
            Code(row.bin),
            tokens(row.n),
            score(median),
            f"{score(row.low, '?')} to {score(row.high, '?')}",
        ]
        for row, median in rows
    ]
    head = ["bin", "calls", "server's tokens for one of the study's, median", "range"]
    differ = "Too few calls to compare bins."
    if ratio.spread is not None:
        spread = percent(ratio.spread)
        differ = f"Medians differ by {spread} at most, in bins of three calls or more."
    prompt = "Prompt tokens counted by the server per token of the document in "
    note = Paragraph([prompt, tokenizer, f", {off}. {differ}"])
    table = DataTable(head, cells, right=(1, 2, 3))
    return [bins, Section("Tokens of the study and of the model", [table, note], 3)]


def failure_sections(result: Cliffs) -> list[Section]:
    """Return counts of failure tags per bin; tags that stand for no answer are marked."""
    title = "Failures by tag"
    tagged = [(b, b.failures) for b in result.bins if b.failures is not None]
    tags = sorted({tag for _, failures in tagged for tag in failures})
    if not tags:
        absent = "Not measured: the records carry no failure tags."
        return [Section(title, [Paragraph("No reply has a failure tag." if tagged else absent)], 3)]
    marked = (f"{tag} (no answer)" if tag in UNSCORED_TAGS else tag for tag in tags)
    head = ["bin", "examples", *(f"calls: {tag}" for tag in marked)]
    rows: list[list[Cell]] = [
        [Code(b.bin), tokens(b.n), *(tokens(failures.get(tag, 0)) for tag in tags)]
        for b, failures in tagged
    ]
    sums = [sum(failures.get(tag, 0) for _, failures in tagged) for tag in tags]
    rows.append(["all", tokens(sum(b.n for b, _ in tagged)), *map(tokens, sums)])
    return [Section(title, [DataTable(head, rows, right=range(1, len(head)))], 3)]


def slowdown_sections(result: Cliffs) -> list[Section]:
    """Return the slowdowns beyond a length, noticeable or not; empty if there are none."""
    rows: list[list[Cell]] = []
    for kind, words in KINDS.items():
        test = getattr(result.slowdown, kind) if result.slowdown else None
        if test is None or (slow := test.slowdown) is None:
            continue
        at = located(slow.last_normal_tokens, slow.earliest_tokens, slow.latest_tokens)
        share = f"{slow.excess:+.0%} [{slow.excess_low:+.0%}, {slow.excess_high:+.0%}]"
        late = "unknown" if slow.excess_ms is None else f"{slow.excess_ms:+,.0f} ms"
        rows.append([words, Bracketed(at), Bracketed(share), late, tokens(slow.calls)])
    if not rows:
        return []
    note = (
        f"Only an excess of at least {WORTH_A_WARNING:.0%} and {WORTH_MS:.0f} ms, at a length known"
        f" within a factor of {KNOWN_WITHIN:g}, is a warning and limits the joint cap."
    )
    head = ["time", "higher beyond, tokens", "excess", "in ms", "documents beyond"]
    table = DataTable(head, rows, right=(3, 4))
    return [Section("Slower than expected", [table, Paragraph(note)], 3)]


def cap_sections(result: Cliffs) -> list[Section]:
    """Return the safe cap for several tolerances at the same confidence."""
    title, caps = "Caps by tolerance", result.caps_by_tolerance
    if not caps:
        return [Section(title, [Paragraph("Not measured.")], 3)]
    barred = result.verdict in (Verdict.INSUFFICIENT_DATA, Verdict.FLOOR)
    rows = [[level(c.tolerance), tokens(c.safe_cap_tokens, "none")] for c in caps]
    head = [f"tolerated drop, at {level(result.confidence)} confidence", "safe cap, tokens"]
    blocks: list[Block] = [DataTable(head, rows, right=(1,))]
    if not barred and any(c.safe_cap_tokens is None for c in caps):
        blocks.append(Paragraph("None: the score may drop right after the baseline."))
    return [Section(title, blocks, 3)]
