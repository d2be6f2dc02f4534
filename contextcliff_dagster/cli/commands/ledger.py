"""`ledger`: inspect, verify, export, restore and prune the call ledger."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.display.output import print_either, print_json, print_table
from contextcliff_dagster.cli.errors import USER_ERROR, say
from contextcliff_dagster.cli.options import common_options, kept_campaign_option
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.reporting.wording import count, named
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.restore import Restored
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.ledger.prune import PrunePlan


@click.group()
def ledger() -> None:
    """Inspect, verify, export or prune the record of every call."""


@contextmanager
def _opened(store: Store, *, read_only: bool = False) -> Iterator[Ledger]:
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    if not store.has_ledger:
        raise StoreError(f"There is no call ledger at {store.ledger} yet; it begins with a call.")
    with (Ledger.open_to_read if read_only else Ledger.open)(store.ledger) as opened:
        yield opened


@ledger.command()
@common_options
def stats(as_json: bool) -> None:
    """Show calls, answers, attempts, money and disk use."""
    with _opened(Store.default(), read_only=True) as opened:
        sums, by_campaign = opened.stats(), opened.stats_by_campaign()
        name = opened.name
    if as_json:
        print_json({"ledger": name, **sums, "by_campaign": by_campaign})
        return
    click.echo(f"{name}\n")
    died = f"died after they were sent: charged, ${sums['maybe_paid_usd']:.4f}"
    lost = f"process died before the answer was kept: charged, ${sums['orphans_usd']:.4f}"
    rows = [
        ("documents", f"{sums['documents']:,} ({_mb(sums['document_bytes'])} as text)"),
        ("calls", f"{sums['calls']:,}"),
        ("answers", f"{sums['answers']:,}"),
        ("  imported, not measured here", f"{sums['imported']:,}"),
        ("too long for the model", f"{sums['context_overflow']:,}"),
        ("cut by the server", f"{sums['invalid_truncated']:,}"),
        ("requests sent", f"{sums['attempts']:,}"),
        ("failed requests", f"{sums['failures']:,}"),
        ("  maybe paid", f"{sums['maybe_paid']:,} ({died})"),
        ("orphans, maybe paid", f"{sums['orphans']:,} ({lost})"),
        ("spent", f"${sums['spent_usd']:.4f}, {sums['spent_tokens']:,} tokens"),
        ("on the disk", _mb(sums["bytes"])),
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
            for r in by_campaign
        ],
    )
    click.echo()
    sizes = sorted(sums["table_bytes"].items(), key=lambda item: -item[1])
    print_table(("TABLE", "ON THE DISK"), [(name, _mb(size)) for name, size in sizes])


def _maybe_paid(row: Mapping[str, Any]) -> str:
    return f"{row['maybe_paid']:,} (${row['maybe_paid_usd']:.4f})" if row["maybe_paid"] else "0"


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


@ledger.command(short_help="Check every prompt, answer, file and sum.")
@common_options
def verify(as_json: bool) -> None:
    """Rebuild every prompt and check all answers, files and sums; exit code 2 on an error."""
    from contextcliff_dagster.inference.ledger.verify import verify as check

    with _opened(Store.default(), read_only=True) as opened:
        checked, name, waits = check(opened), opened.name, opened.spool.sentence()
    pruned = f", {checked.pruned_prompts:,} are pruned" if checked.pruned_prompts else ""
    text = (
        f"{name}: {count(checked.prompts, 'prompt')} over {count(checked.documents, 'document')} "
        f"rebuilt byte for byte{pruned}; {count(checked.fault_count, 'error')}."
    )
    result = {"ledger": name, "sound": not checked.fault_count, **checked.to_dict()}
    print_either({**result, "waiting": waits or None}, text, as_json=as_json)
    for error in (*checked.faults, *([waits] if waits else [])):
        say(f"contextcliff: {error}")
    if checked.fault_count:
        raise click.exceptions.Exit(USER_ERROR)


@ledger.command("export", short_help="Write every finished call of a study to a file.")
@click.argument("study")
@click.argument("file", type=click.Path(path_type=Path))
@kept_campaign_option
@click.option("--no-prompts", is_flag=True, help="Leave out the prompts, including the documents.")
@common_options
def export_(study: str, file: Path, campaign: str | None, no_prompts: bool, as_json: bool) -> None:
    """Write every finished call of STUDY as a row of FILE (.jsonl or .parquet).

    Each row has the call's prompt, accepted answers and score.
    """
    from contextcliff_dagster.archive.results import export_results
    from contextcliff_dagster.experiments.study_report import JudgedCalls

    store, study = Store.default(), _name_of(study)
    with _opened(store, read_only=True) as opened:
        judge = JudgedCalls(store, opened, study).add
        done = export_results(opened, study, campaign, file, judge=judge, prompts=not no_prompts)
    size = file.stat().st_size
    text = f"{file} holds {count(done.rows, 'call')}, {_mb(size)}."
    print_either({"file": str(file), **done._asdict(), "bytes": size}, text, as_json=as_json)
    for missing, what in (
        (0 if no_prompts else done.rows - done.prompts, "no prompt: their texts were removed"),
        (done.rows - done.accepted, "no accepted answers: the sample is no longer in the store"),
        (
            done.rows - done.scores,
            "no score: without an answer, or not scored yet (`contextcliff report` scores them)",
        ),
    ):
        if missing:
            say(f"Note: {count(missing, 'call')} {'has' if missing == 1 else 'have'} {what}.")


@ledger.command()
@click.argument("file", type=click.Path(path_type=Path))
@common_options
def backup(file: Path, as_json: bool) -> None:
    """Copy the whole ledger to FILE; runs may continue meanwhile."""
    with _opened(Store.default(), read_only=True) as opened:
        opened.backend.backup(file)
        name = opened.name
    size = file.stat().st_size
    text = f"{file} holds {name} as it is now, {_mb(size)}."
    print_either({"ledger": name, "file": str(file), "bytes": size}, text, as_json=as_json)


@ledger.command(short_help="Restore answers that only the tables have.")
@click.argument("study", required=False)
@common_options
def restore(study: str | None, as_json: bool) -> None:
    """Restore the answers of STUDY (default: all) that only its tables have; makes no call."""
    from contextcliff_dagster.cli.display.output import dagster_log
    from contextcliff_dagster.experiments.restore import restore_study
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.studies import find_study, load_studies

    store = Store.default()
    known = {study: find_study(study)} if study else load_studies()
    stored = [s for s in known.values() if store.study_dir(s.name).is_dir()]
    done = []
    with dagster_log(False), Ledger.open(store.ledger) as opened:
        done = [restore_study(s, store, opened) for s in stored]
    lines = [_restored(r) for r in done if r.campaigns] or ["The ledger has lost no answer."]
    print_either({"restored": [asdict(r) for r in done]}, "\n".join(lines), as_json=as_json)
    for lost in done:
        if lost.not_restored:
            say(
                f"contextcliff: {count(lost.not_restored, 'answer')} of {lost.study!r} cannot be "
                "restored, because the sample or prompt has changed since; to discard them, "
                f"delete their campaign folders in {store.study_dir(lost.study) / 'predictions'}."
            )
    if any(r.not_restored for r in done):
        raise click.exceptions.Exit(USER_ERROR)


def _restored(done: Restored) -> str:
    text = (
        f"Study {done.study}, {named('campaign', done.campaigns)}: "
        f"{count(done.answers, 'answer')}, ${done.usd:.4f}, taken back."
    )
    if done.unidentified:
        models = ", ".join(done.unidentified)
        text += f" What serves {models} is noted again by the next `contextcliff profile`."
    return text


@ledger.command(short_help="Remove a study, one campaign of it, or only its texts.")
@click.argument("study")
@kept_campaign_option
@click.option("--texts", is_flag=True, help="Remove only the texts: documents, questions, outputs.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common_options
def prune(study: str, campaign: str | None, texts: bool, yes: bool, as_json: bool) -> None:
    """Remove STUDY, one of its campaigns, or only its texts; lists the losses and asks first.

    This also clears the kvpress engine's cache of documents (_kv_reads) for all studies.
    """
    from contextcliff_dagster.archive.rename import prune_store
    from contextcliff_dagster.experiments.lookup import experiment_tables
    from contextcliff_dagster.inference.ledger.prune import plan_prune

    store, study = Store.default(), _name_of(study)
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
    campaigns = named("campaign", done.campaigns)
    click.echo(f"{what} study {study}, {campaigns}; {_mb(freed)} are free.")
    for sentence in done.losses():
        click.echo(f"- {sentence}")
    click.echo("- Archives made by `contextcliff export`, and backups, still hold everything.")
    if not isinstance(store.ledger, Path):
        click.echo("- The server's write-ahead log forgets it with its next recycling.")


def _name_of(study: str) -> str:
    """Return the ledger name of a study given by name or file; a name needs no study file."""
    from contextcliff_dagster.studies import load_study

    return load_study(Path(study)).name if study.endswith((".yaml", ".yml")) else study


def _agree(plan: PrunePlan, *, yes: bool) -> None:
    """Ask for confirmation before removing anything."""
    if yes:
        return
    what = f"study {plan.study}, {named('campaign', plan.campaigns)}"
    what = f"the texts of {what}" if plan.texts else what
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise StoreError(
            f"This would remove {what} ({count(plan.calls, 'call')}, "
            f"{count(plan.documents, 'document')}) for good, and there is no terminal to "
            "confirm it: add --yes."
        )
    for sentence in plan.losses():
        say(f"- {sentence}")
    if not click.confirm(f"Remove {what}?", err=True):
        raise StoreError("Not confirmed, so nothing was removed.")
