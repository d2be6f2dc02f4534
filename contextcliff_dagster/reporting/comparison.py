"""A comparison as files to read: Markdown, JSON and the picture of the shifted cliff."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.reporting.wording.number_format import level, score, tokens
from contextcliff_dagster.store import write_atomic, write_result

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs, Comparison
    from contextcliff_dagster.contracts.results.comparison import Differing, DifferingBin, LossShift


class ComparisonFiles(NamedTuple):
    """Where a comparison was written."""

    md: Path
    json: Path
    png: Path


def write_comparison(
    comparison: Comparison, folder: Path, cliffs: Sequence[Cliffs | None]
) -> ComparisonFiles:
    """Write ``comparison.md``, ``.json`` and ``.png`` into ``folder``, each all at once.

    Raises:
        StoreError: they cannot be written.
    """
    from contextcliff_dagster.reporting.figures.comparison import plot_shift

    files = ComparisonFiles(*(folder / f"comparison.{kind}" for kind in ("md", "json", "png")))
    write_atomic(files.png, plot_shift(comparison, cliffs))
    write_result(files.json, comparison)
    write_atomic(files.md, comparison_markdown(comparison).encode())
    return files


def comparison_markdown(comparison: Comparison) -> str:
    """The comparison as Markdown; the picture is expected next to it."""
    a, b, caps, overall = comparison.a, comparison.b, comparison.caps, comparison.overall
    same = "the same" if comparison.paired else "different ones"
    ratio = "" if caps.ratio is None else f"x {caps.ratio:.2f}"
    lines = [
        f"# {_plain(b.name)} vs. {_plain(a.name)}",
        "",
        comparison.sentence,
        "",
        "![The shifted cliff](comparison.png)",
        "",
        "| | A | B | B vs. A |",
        "|---|---|---|---|",
        f"| | {_plain(a.name)} | {_plain(b.name)} | |",
        f"| examples (documents) | {a.n:,} ({a.n_documents:,}) | {b.n:,} "
        f"({b.n_documents:,}) | {same} |",
        f"| verdict | {a.verdict or 'none'} | {b.verdict or 'none'} | |",
        f"| mean score | {score(overall.mean_a)} | {score(overall.mean_b)} | "
        f"{_difference(overall)}, p = {_p(overall.p_value)} |",
        f"| safe cap, tokens | {tokens(caps.a_tokens, 'none')} | {tokens(caps.b_tokens, 'none')} | "
        f"{ratio} |",
        f"| {level(comparison.tolerance)} drop from the baseline at, tokens | "
        f"{_shift(comparison.loss_shift)} |",
        "",
        "| bin | tokens | n | mean A | mean B | difference | p (adjusted) |",
        "|---|---|---|---|---|---|---|",
    ]
    for bin in comparison.bins:
        n = f"{bin.n_a}" if bin.n_a == bin.n_b else f"{bin.n_a} / {bin.n_b}"
        lines.append(
            f"| {bin.bin} | {bin.edge_low:,} to {bin.edge_high:,} | {n} | {score(bin.mean_a)} | "
            f"{score(bin.mean_b)} | {_difference(bin)} | {_p(bin.p_value)} |"
        )
    lines += [
        "",
        f"Intervals at {level(comparison.confidence)}, by bootstrap over documents. The "
        "p-values are adjusted for all bins and the overall difference together; the intervals are "
        "not. A safe cap is a confidence bound and moves with n, so its ratio has no interval; "
        "the length at which the drop is reached has one.",
    ]
    if comparison.warnings:
        lines += ["", *(f"- {warning}" for warning in comparison.warnings)]
    return "\n".join(lines) + "\n"


def _difference(row: Differing | DifferingBin) -> str:
    if row.difference is None:
        return "not measured"
    return f"{row.difference:+.2f} [{row.ci_low:+.2f}, {row.ci_high:+.2f}]"


def _shift(shift: LossShift) -> str:
    a, b = (tokens(at, "not within the range") for at in (shift.a_tokens, shift.b_tokens))
    low, high = (f"{end:.2f}" if end else "open" for end in (shift.ci_low, shift.ci_high))
    return f"{a} | {b} | x {score(shift.ratio, '?')} [{low}, {high}]"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _plain(text: str) -> str:
    return text.replace("|", "\\|")
