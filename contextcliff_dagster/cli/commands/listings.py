"""`models`, `tokenizers` and `campaign`: lists of choices, and adding to them."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.dagster_home import is_home_used, open_instance
from contextcliff_dagster.cli.display.output import print_either, print_json, print_table
from contextcliff_dagster.cli.errors import DIFFERENT
from contextcliff_dagster.cli.options import DEFAULT_STUDY, common_options
from contextcliff_dagster.cli.setup.endpoint import EndpointOptions, endpoint_options
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.inference.execution.checks import Known


@click.group(invoke_without_command=True)
@common_options
@click.pass_context
def models(ctx: click.Context, as_json: bool) -> None:
    """List the models that can be measured, add one, or compare two of them."""
    if ctx.invoked_subcommand is None:
        _list_models(as_json)


def _list_models(as_json: bool) -> None:
    from contextcliff_dagster.inference.models.models_file import load_models, model_files
    from contextcliff_dagster.redaction import written_url

    entries = load_models()
    for name, entry in entries.items():
        if entry.base_url:  # as written, because the value of a ${VARIABLE} may be confidential
            entries[name] = entry.model_copy(update={"base_url": written_url(entry.base_url)})
    if as_json:
        print_json([entry.model_dump(mode="json", exclude_none=True) for entry in entries.values()])
        return
    rows = []
    for name, entry in entries.items():
        window, price = entry.window_tokens, "none"
        if entry.price:
            prices = entry.price.input_usd_per_mtok, entry.price.output_usd_per_mtok
            price = " / ".join(f"${usd:g}" for usd in prices)
        address = entry.base_url or entry.description
        rows.append((name, entry.engine, f"{window:,}" if window else "asked", price, address))
    print_table(
        ("MODEL", "ENGINE", "WINDOW", "PRICE IN/OUT PER MTOK", "ADDRESS OR DESCRIPTION"), rows
    )
    click.echo(f"\nFrom {', '.join(str(path) for path in model_files())}.")
    click.echo("Each has variants of its KV cache, as MODEL+snapkv@0.2 (docs/kv.md).")


@models.command("add", short_help="Add a model to models.yaml.")
@click.argument("name", required=False)
@endpoint_options
@common_options
def models_add(endpoint: EndpointOptions, name: str | None, as_json: bool) -> None:
    """Add a model as NAME (default: its id) to models.yaml, and check it with one small call."""
    from contextcliff_dagster.cli.setup.init import add_model

    add_model(endpoint, name, as_json=as_json)


@models.command("diff", short_help="Show how the serving identities of two models differ.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--study", metavar="NAME", help="Use what this study recorded (default: the newest).")
@click.option("--campaign", metavar="NAME", help="Use what this campaign recorded.")
@common_options
def models_diff(a: str, b: str, study: str | None, campaign: str | None, as_json: bool) -> None:
    """Show which fields of the serving identities of A and B differ, without starting either.

    Compares what entries and weights declare, and what engines reported in a campaign.
    Exit code 0 if they are the same, 3 if they differ.
    """
    from contextcliff_dagster.inference.execution.checks import known_identity, require_campaign
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.models.entry import differences
    from contextcliff_dagster.inference.models.models_file import load_models

    store = Store.default()
    entries = load_models()
    with Ledger.open(store.ledger) if store.has_ledger else nullcontext() as ledger:
        require_campaign(ledger, study, campaign)
        id_a, id_b = (known_identity(name, entries, ledger, study, campaign) for name in (a, b))
    differing = differences(id_a.fields, id_b.fields)
    if as_json:
        rows = [{"field": name, "a": value_a, "b": value_b} for name, value_a, value_b in differing]
        both = {"a": id_a.to_dict(), "b": id_b.to_dict()}
        print_json({"same": not differing, "differences": rows, **both})
    else:
        if differing:
            print_table(("FIELD", a, b), [(name, _shown(x), _shown(y)) for name, x, y in differing])
        else:
            click.echo(f"{a} and {b} have the same serving identity, as far as is known.")
        for identity in [id_a] if a == b else [id_a, id_b]:
            click.echo(f"\n{_where_from(identity)}")
    if differing or id_a.changed or id_b.changed:
        raise click.exceptions.Exit(DIFFERENT)


def _shown(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= 44 else f"{text[:12]}...{text[-4:]}"


def _where_from(known: Known) -> str:
    """Say where a model's fields come from, and whether they still match a campaign."""
    recorded = known.recorded
    if recorded is None:
        return f"{known.model}: as declared; it has not been measured yet."
    measured = f"campaign {recorded.campaign} of study {recorded.study!r}"
    if known.declared is None:
        return f"{known.model}: as recorded by {measured}; {known.why_not}"
    if known.changed:
        what = "; ".join(f"{name}: {_shown(x)} -> {_shown(y)}" for name, x, y in known.changed)
        return (
            f"{known.model}: as declared. It differs from {measured} ({what}): begin a "
            f"new campaign (`contextcliff campaign new {recorded.study}`), or give it a new name."
        )
    return f"{known.model}: as declared, and as recorded by {measured}."


@click.command()
@common_options
def tokenizers(as_json: bool) -> None:
    """List the tokenizers that can count lengths in studies and in `analyze --tokenizer`."""
    from contextcliff_dagster.inference.models.tokenizers import served_models
    from contextcliff_dagster.sampling.tokenizers.tokenizers import known_tokenizers

    known, served = known_tokenizers(), served_models()
    if as_json:
        print_json([*map(asdict, known), *({"name": f"server:{model}"} for model in served)])
        return
    print_table(
        ("TOKENIZER", "COUNTS", "NEEDS"), [(t.name, t.counts, t.needs or "nothing") for t in known]
    )
    if served:
        click.echo(f"\nModels of models.yaml behind servers: {', '.join(served)}.")


@click.group()
def campaign() -> None:
    """Start another dated measurement of a study, or list them."""


@campaign.command("new", short_help="Start a campaign: `profile` then measures everything again.")
@click.argument("study", default=DEFAULT_STUDY)
@click.option("--name", metavar="NAME", help="Name of the campaign (default: today's date).")
@common_options
def campaign_new(study: str, name: str | None, as_json: bool) -> None:
    """Start a campaign: the next `profile` of STUDY measures everything again."""
    from contextcliff_dagster.experiments.common.study_run import begin_campaign
    from contextcliff_dagster.studies import find_study

    store, found = Store.default(), find_study(study)
    chosen, name = found.name, begin_campaign(store, found.name, name)
    if is_home_used(store):
        from contextcliff_dagster.defs.partitions import add_campaign

        with suppress(StoreError):  # else a sensor does it
            add_campaign(open_instance(store), found, name)
    text = f"Campaign {name} of study {chosen} begins with `contextcliff profile {chosen}`."
    print_either({"study": chosen, "campaign": name}, text, as_json=as_json)


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
        cells = []
        for r in rows:
            begun, spent = r["begun"][:16], f"${r['spent_usd']:.2f}"
            cells.append((r["study"], r["campaign"], begun, f"{r['answered']:,}", spent))
        print_table(("STUDY", "CAMPAIGN", "BEGUN", "CALLS ANSWERED", "SPENT"), cells)


def _campaign_rows(store: Store, study: str | None) -> list[dict[str, Any]]:
    from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.ledger.schema import either, joined

    if not store.has_ledger:
        return []
    with Ledger.open(store.ledger) as ledger:
        answered = {
            (row[0], row[1]): int(row[2])
            for row in ledger.read(
                f"SELECT c.study, c.campaign, count({either('attempts')}) FROM study_calls c"
                f"{joined()} WHERE {either('no_answer')} IS NULL GROUP BY 1, 2"
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
