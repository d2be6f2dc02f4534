"""How a prepared study is printed: its sample bin by bin, and what measuring it would take."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.output import print_json, print_table
from contextcliff_dagster.cli.progress import duration, money
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.defs.run import Prepared
    from contextcliff_dagster.sampling.manifest import Manifest

_SOURCES_SHOWN, _MOST_SOURCES = 3, 12


def print_prepared(prepared: Prepared, store: Store, *, as_json: bool) -> None:
    """The frozen sample bin by bin, and what measuring it would take."""
    from contextcliff_dagster.experiments.common.file_list import file_list

    if prepared.manifest is None:
        _print_estimate(prepared, as_json=as_json)
        return
    folder = store.manifest_dir(prepared.study.name)
    if as_json:
        print_json(
            {
                "study": prepared.study.name,
                "manifest": str(folder / "manifest.json") if prepared.kept else None,
                "sha256": prepared.manifest.sha256,
                "bins": [_bin(b) for b in prepared.manifest.bins],
                "corpus": prepared.manifest.header["corpus"],
                "audit": prepared.audit,
                "estimate": prepared.estimate.to_dict(),
            }
        )
        return
    sources = _sources(prepared.manifest)
    print_table(
        ("BIN", "TOKENS", "MEDIAN", "IN SAMPLE", "EXAMPLES", "DOCUMENTS")
        + (("SOURCES",) if sources else ()),
        [
            (
                b.bin,
                f"{b.edge_low:,} to {b.edge_high:,}" if b.merged_into is None else "",
                f"{b.median_tokens:,}" if b.median_tokens is not None else "",
                _drawn(prepared.manifest, b.bin),
                f"{b.n:,}" if b.merged_into is None else f"merged into {b.merged_into}",
                f"{b.n_documents:,}" if b.merged_into is None else "",
                *([sources.get(b.bin, "")] if sources else []),
            )
            for b in prepared.manifest.bins
        ],
    )
    account = prepared.manifest.header["corpus"].get("account", {})
    if said := account.get("summary"):
        click.echo(f"\nCorpus: {said}")
    for model, calls in _too_long(prepared).items():
        click.echo(
            f"Too long for {model}, so not sent: {calls:,} calls, by the study's token count."
        )
    if prepared.kept and (files := file_list(prepared.study, store, account)):
        click.echo(f"Outcome of each file: {files}")
    if few := _few_sentence(prepared.manifest, prepared.study.sampling.samples_per_bin):
        click.echo(f"\n{few}")
    click.echo(f"\n{estimate_sentence(prepared)}")
    digest = f"sha256 {prepared.manifest.sha256[:16]}..."
    if prepared.kept:
        click.echo(f"Manifest: {folder / 'manifest.json'} ({digest})")
    else:
        click.echo(f"This sample ({digest}) is not kept: `prepare` and `profile` freeze it.")


def _print_estimate(prepared: Prepared, *, as_json: bool) -> None:
    """Print what measuring would take, for experiments that make their own documents."""
    if as_json:
        print_json({"study": prepared.study.name, "estimate": prepared.estimate.to_dict()})
    else:
        click.echo(estimate_sentence(prepared))


def _bin(b: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(b)


def _drawn(manifest: Manifest, key: str) -> int:
    return int(manifest.examples.column("bin").to_pylist().count(key))


def _sources(manifest: Manifest) -> dict[str, str]:
    """Shares of the sources in each bin's sample, the largest first; empty where there is one, or
    where each is hardly more than a document."""
    examples = manifest.examples
    if "source" not in examples.column_names:
        return {}
    by_bin: dict[str, Counter[str]] = {}
    for key, source in zip(
        examples.column("bin").to_pylist(), examples.column("source").to_pylist(), strict=True
    ):
        by_bin.setdefault(key, Counter())[source or "unnamed"] += 1
    if not 2 <= len({source for counts in by_bin.values() for source in counts}) <= _MOST_SOURCES:
        return {}
    return {key: _shares(counts) for key, counts in by_bin.items()}


def _shares(counts: Counter[str]) -> str:
    total = counts.total()
    first = [f"{name} {n / total:.0%}" for name, n in counts.most_common(_SOURCES_SHOWN)]
    rest = len(counts) - _SOURCES_SHOWN
    return ", ".join([*first, f"and {rest} more"] if rest > 0 else first)


def _too_long(prepared: Prepared) -> Counter[str]:
    """Calls of each model that do not fit its window, the controls' included."""
    calls: Counter[str] = Counter()
    for line in prepared.estimate.lines:
        calls[line.model] += line.too_long
    return +calls


def _few_sentence(manifest: Manifest, asked: int) -> str | None:
    """Where bins hold fewer examples than asked for: how many do."""
    bins = [b.bin for b in manifest.bins if b.merged_into is None]
    few = sum(_drawn(manifest, name) < asked for name in bins)
    if not few:
        return None
    return (
        f"{few:,} of {len(bins):,} bins have fewer than the {asked:,} examples asked for; "
        "IN SAMPLE is all they hold."
    )


def estimate_sentence(prepared: Prepared) -> str:
    """What measuring would take: calls, tokens, money, time."""
    e = prepared.estimate
    if not e.calls:
        return "Nothing new to measure: every call has its outcome in the ledger."
    parts = [f"{e.calls:,} calls", f"about {e.tokens:,} tokens"]
    if e.usd:
        parts.append(f"about {money(e.usd)}")
    if e.price_unknown:
        parts.append(f"price unknown ({', '.join(e.price_unknown)})")
    if e.seconds is not None:
        parts.append(f"about {duration(e.seconds)}")
    return " ".join([f"To measure: {', '.join(parts)}.", *_of_parts(prepared)])


def _of_parts(prepared: Prepared) -> list[str]:
    """What of it the controls and other named parts take, a sentence each."""
    lines, sentences = prepared.estimate.lines, []
    controls = prepared.study.sections.get("controls", ())
    for name in dict.fromkeys(line.control for line in lines if line.control):
        own = [line for line in lines if line.control == name]
        left = sum(line.calls - line.cached - line.overflow for line in own)
        cost = f", about {money(usd)}" if (usd := sum(line.usd or 0.0 for line in own)) else ""
        part = f"the control {name}" if name in controls else name
        if part == "the control oracle" and not any(line.calls for line in own):
            sentences.append(
                "The control oracle has no example: none gives the position of its evidence."
            )
        else:
            sentences.append(f"Of these {part}: {left:,} calls{cost}.")
    return sentences
