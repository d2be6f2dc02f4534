"""`ledger`: what the call ledger holds, whether it is sound, and taking things out of it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.errors import YOUR_TURN, say
from contextcliff_dagster.cli.options import common_options
from contextcliff_dagster.cli.output import print_json, print_table
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.ledger.prune import PrunePlan

_campaign = click.option(
    "--campaign", metavar="NAME", help="Only this campaign (default: all of them)."
)


@click.group()
def ledger() -> None:
    """Inspect, verify, export or prune the record of every call."""


@contextmanager
def _opened(store: Store) -> Iterator[Ledger]:
    """
    Raises:
        StoreError: there is no ledger yet, or it cannot be opened.
    """
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    if not store.has_ledger:
        raise StoreError(f"There is no call ledger at {store.ledger} yet; it begins with a call.")
    with Ledger.open(store.ledger) as opened:
        yield opened


@ledger.command()
@common_options
def stats(as_json: bool) -> None:
    """Calls, answers, attempts, money and disk use."""
    with _opened(Store.default()) as opened:
        found = {
            "ledger": opened.name,
            **opened.stats(),
            "by_campaign": opened.stats_by_campaign(),
        }
    if as_json:
        print_json(found)
        return
    click.echo(f"{found['ledger']}\n")
    rows = [
        ("documents", f"{found['documents']:,} ({_mb(found['document_bytes'])} as text)"),
        ("calls", f"{found['calls']:,}"),
        ("answers", f"{found['answers']:,}"),
        ("too long for the model", f"{found['context_overflow']:,}"),
        ("cut by the server", f"{found['invalid_truncated']:,}"),
        ("requests sent", f"{found['attempts']:,}"),
        ("failed requests", f"{found['failures']:,}"),
        (
            "  maybe paid",
            f"{found['maybe_paid']:,} (died after they were sent: charged, "
            f"${found['maybe_paid_usd']:.4f})",
        ),
        (
            "orphans, maybe paid",
            f"{found['orphans']:,} (process died before the answer was kept: charged, "
            f"${found['orphans_usd']:.4f})",
        ),
        ("spent", f"${found['spent_usd']:.4f}, {found['spent_tokens']:,} tokens"),
        ("on the disk", _mb(found["bytes"])),
    ]
    print_table(("WHAT", "HOW MUCH"), rows)
    click.echo()
    print_table(
        ("STUDY", "CAMPAIGN", "MODEL", "CALLS", "ANSWERS", "REQUESTS", "MAYBE PAID", "SPENT"),
        [
            (
                *(r["study"], r["campaign"], r["model"], f"{r['calls']:,}", f"{r['answers']:,}"),
                *(f"{r['attempts']:,}", _maybe_paid(r), f"${r['spent_usd']:.4f}"),
            )
            for r in found["by_campaign"]
        ],
    )
    click.echo()
    sizes = sorted(found["table_bytes"].items(), key=lambda item: -item[1])
    print_table(("TABLE", "ON THE DISK"), [(name, _mb(size)) for name, size in sizes])


def _maybe_paid(row: Mapping[str, Any]) -> str:
    return f"{row['maybe_paid']:,} (${row['maybe_paid_usd']:.4f})" if row["maybe_paid"] else "0"


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


@ledger.command()
@common_options
def verify(as_json: bool) -> None:
    """Rebuild every prompt, check every answer, the files and the sums; exit code 2 on a fault."""
    from contextcliff_dagster.inference.ledger.verify import verify as check

    with _opened(Store.default()) as opened:
        found, name = check(opened), opened.name
    if as_json:
        print_json({"ledger": name, "sound": not found.fault_count, **found.to_dict()})
    else:
        pruned = f", {found.pruned_prompts:,} are pruned" if found.pruned_prompts else ""
        click.echo(
            f"{name}: {found.prompts:,} prompts over {found.documents:,} documents rebuilt byte "
            f"for byte{pruned}; {found.fault_count:,} faults."
        )
    for fault in found.faults:
        say(f"contextcliff: {fault}")
    if found.fault_count:
        raise click.exceptions.Exit(YOUR_TURN)


@ledger.command("export")
@click.argument("study")
@click.argument("file", type=click.Path(path_type=Path))
@_campaign
@common_options
def export_(study: str, file: Path, campaign: str | None, as_json: bool) -> None:
    """Write every ended call of STUDY as a row of FILE (.jsonl or .parquet)."""
    from contextcliff_dagster.archive.results import export_results

    with _opened(Store.default()) as opened:
        rows = export_results(opened, study, campaign, file)
    if as_json:
        print_json({"file": str(file), "rows": rows, "bytes": file.stat().st_size})
    else:
        click.echo(f"{file} holds {rows:,} calls, {_mb(file.stat().st_size)}.")


@ledger.command()
@click.argument("study")
@_campaign
@click.option("--texts", is_flag=True, help="Only the texts: documents, questions, outputs.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
def prune(study: str, campaign: str | None, texts: bool, yes: bool, as_json: bool) -> None:
    """Remove STUDY, one campaign of it, or only its texts; lists what goes and asks first."""
    from contextcliff_dagster.archive.prune import prune_store
    from contextcliff_dagster.experiments.registry import experiment_tables
    from contextcliff_dagster.inference.ledger.prune import plan_prune

    store = Store.default()
    with _opened(store) as opened:
        plan = plan_prune(opened, study, campaign, texts=texts)
        _agree(plan, yes=yes)
        before = opened.stats()["bytes"]
        done = prune_store(store, opened, study, campaign, tables=experiment_tables(), texts=texts)
        freed = max(before - opened.stats()["bytes"], 0)
    if as_json:
        print_json({**done.to_dict(), "lost": done.losses(), "freed_bytes": freed})
        return
    what = "Texts removed from" if texts else "Removed:"
    click.echo(
        f"{what} study {study}, campaign(s) {', '.join(done.campaigns)}; {_mb(freed)} are free."
    )
    for sentence in (*done.losses(), *_elsewhere(store)):
        click.echo(f"- {sentence}")


def _elsewhere(store: Store) -> list[str]:
    said = ["Archives made by `contextcliff export`, and backups, still hold everything."]
    if not isinstance(store.ledger, Path):
        said.append("The server's write-ahead log forgets it with its next recycling.")
    return said


def _agree(plan: PrunePlan, *, yes: bool) -> None:
    """Ask before anything is removed; refuse where nobody can answer.

    Raises:
        StoreError: not confirmed, or nobody to confirm it.
    """
    if yes:
        return
    what = f"study {plan.study}, campaign(s) {', '.join(plan.campaigns)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise StoreError(
            f"This would remove {'the texts of ' if plan.texts else ''}{what} "
            f"({plan.calls:,} calls, {plan.documents:,} documents) for good, and there is no "
            "terminal to confirm it: add --yes."
        )
    for sentence in plan.losses():
        say(f"- {sentence}")
    if not click.confirm(f"Remove {'the texts of ' if plan.texts else ''}{what}?", err=True):
        raise StoreError("Not confirmed, so nothing was removed.")
