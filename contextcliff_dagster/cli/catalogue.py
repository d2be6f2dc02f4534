"""What there is to choose from: `models`, `studies`, `campaign`."""

from __future__ import annotations

from typing import Any

import click

from contextcliff_dagster.cli.options import DEFAULT_STUDY, common_options
from contextcliff_dagster.cli.output import print_json, print_table
from contextcliff_dagster.store import Store


@click.command()
@common_options
def models(as_json: bool) -> None:
    """List the models that can be measured."""
    from contextcliff_dagster.inference.models import load_models, model_files

    entries = load_models()
    if as_json:
        # base_url as written: what its ${VARIABLE} holds may be nobody's business.
        print_json([entry.model_dump(mode="json", exclude_none=True) for entry in entries.values()])
        return
    print_table(
        ("MODEL", "ENGINE", "WINDOW", "PRICE IN/OUT PER MTOK", "ADDRESS OR DESCRIPTION"),
        [
            (
                name,
                entry.engine,
                f"{entry.window_tokens:,}" if entry.window_tokens else "asked",
                f"${entry.price.input_usd_per_mtok:g} / ${entry.price.output_usd_per_mtok:g}"
                if entry.price
                else "none",
                entry.base_url or entry.description,
            )
            for name, entry in entries.items()
        ],
    )
    click.echo(f"\nFrom {', '.join(str(path) for path in model_files())}.")


@click.command()
@common_options
def studies(as_json: bool) -> None:
    """List the studies that can be profiled."""
    from contextcliff_dagster.studies import load_studies

    known = load_studies()
    if as_json:
        print_json([study.model_dump(mode="json", exclude_none=True) for study in known.values()])
        return
    print_table(
        ("STUDY", "CORPUS", "TASK", "BINS x SAMPLES", "MODELS", "DESCRIPTION"),
        [
            (
                name,
                study.corpus.kind,
                study.task or "any",
                f"{study.bins.count} x {study.sampling.samples_per_bin}",
                ", ".join(study.models),
                study.description,
            )
            for name, study in known.items()
        ],
    )


@click.group()
def campaign() -> None:
    """Dated measurements of a study: begin another, or list them."""


@campaign.command("new")
@click.argument("study", default=DEFAULT_STUDY)
@click.option("--name", metavar="NAME", help="Its name (default: today's date).")
@common_options
def campaign_new(study: str, name: str | None, as_json: bool) -> None:
    """Begin a campaign: the next `profile` of STUDY measures everything again."""
    from contextcliff_dagster.contracts import StudyError
    from contextcliff_dagster.inference.campaigns import (
        ensure_campaign,
        list_campaigns,
        new_campaign,
    )
    from contextcliff_dagster.inference.ledger import Ledger
    from contextcliff_dagster.studies import find_study

    store = Store.default()
    chosen = find_study(study).name
    with Ledger.open(store.ledger) as ledger:
        if name is not None:
            if name in [c.name for c in list_campaigns(ledger, chosen)]:
                raise StudyError(
                    f"Study {chosen!r} has a campaign {name!r} already; go on with it by "
                    f"`contextcliff profile {chosen} --campaign {name}`, or choose another name."
                )
            ensure_campaign(ledger, chosen, name)
        else:
            name = new_campaign(ledger, chosen)
    if as_json:
        print_json({"study": chosen, "campaign": name})
    else:
        click.echo(
            f"Campaign {name} of study {chosen} begins with `contextcliff profile {chosen}`."
        )


@campaign.command("list")
@click.argument("study", required=False)
@common_options
def campaign_list(study: str | None, as_json: bool) -> None:
    """List the campaigns of STUDY, or of all studies, oldest first."""
    from contextcliff_dagster.studies import find_study

    store = Store.default()
    chosen = find_study(study).name if study else None
    rows = _campaign_rows(store, chosen)
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo(f"Nothing is measured yet in {store.root}; begin with `contextcliff profile`.")
    else:
        print_table(
            ("STUDY", "CAMPAIGN", "BEGUN", "CALLS ANSWERED", "SPENT"),
            [
                (
                    r["study"],
                    r["campaign"],
                    r["begun"][:16],
                    f"{r['answered']:,}",
                    f"${r['spent_usd']:.2f}",
                )
                for r in rows
            ],
        )


def _campaign_rows(store: Store, study: str | None) -> list[dict[str, Any]]:
    from contextcliff_dagster.inference.campaigns import list_campaigns
    from contextcliff_dagster.inference.ledger import Ledger

    if not store.has_ledger:
        return []
    with Ledger.open(store.ledger) as ledger:
        answered = {
            (row[0], row[1]): int(row[2])
            for row in ledger.read(
                "SELECT c.study, c.campaign, count(*) FROM calls c JOIN results r USING (call_key)"
                " WHERE r.no_answer IS NULL GROUP BY 1, 2"
            )
        }
        return [
            {
                "study": c.study,
                "campaign": c.name,
                "begun": c.created_at.isoformat(timespec="seconds"),
                "answered": answered.get((c.study, c.name), 0),
                "spent_usd": ledger.spent(c.study, c.name).usd,
            }
            for c in list_campaigns(ledger, study)
        ]
