"""`card`: a measured model's safe context for its model card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.cli.display.output import print_json
from contextcliff_dagster.cli.options import (
    DEFAULT_STUDY,
    common_options,
    folder_option,
    profiled_campaign_option,
)
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import Store, write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.cli.commands.compare import Ref


@click.command()
@click.argument("model")
@click.option("--study", metavar="NAME", help="Its study, where several have measured the model.")
@profiled_campaign_option
@folder_option("--out", "Folder of the files.", default=Path("model-card"), show_default=True)
@common_options
def card(model: str, study: str | None, campaign: str | None, out: Path, as_json: bool) -> None:
    """Write MODEL's safe context as a block for its model card, JSON-LD and a badge; makes no call.

    card.md, card.jsonld and badge.svg, of the newest profiled campaign. For a model without a
    cap they give the reason.
    """
    from contextcliff_dagster.contracts.results import Cliffs, from_json, to_json
    from contextcliff_dagster.reporting.local_paths import for_readers
    from contextcliff_dagster.reporting.model_card import (
        BADGE,
        badge_svg,
        card_json_ld,
        card_markdown,
        headline,
        json_ld_text,
    )

    store = Store.default()
    ref = _measured_as(model, store, study, campaign)
    found = ref.measured(store, model).cliffs
    cliffs = from_json(Cliffs, for_readers()(to_json(found)))
    files = {
        "card.md": card_markdown(cliffs),
        "card.jsonld": json_ld_text(cliffs) + "\n",
        BADGE: badge_svg(cliffs),
    }
    for name, text in files.items():
        write_atomic(out / name, text.encode(), private=False)  # made to be published
    if as_json:
        print_json(card_json_ld(cliffs))
        return
    click.echo(f"{cliffs.model}: {headline(cliffs)}")
    for name in files:
        click.echo(f"Written: {out / name}")


def _measured_as(model: str, store: Store, study: str | None, campaign: str | None) -> Ref:
    """The measurement of ``model``: in ``study``, or in the only one that has it.

    Raises:
        StudyError: none has it, or several have.
    """
    from contextcliff_dagster.cli.campaign_lookup import profiled_campaigns
    from contextcliff_dagster.cli.commands.compare import resolve
    from contextcliff_dagster.studies import read_studies

    if study is not None:
        return resolve(model, store, study, campaign)
    measured = {name: profiled_campaigns(store, name) for name in read_studies()[0]}
    found = sorted(
        name
        for name, campaigns in measured.items()
        if any(
            (store.profile_dir(name, one, model) / "cliffs.json").is_file()
            for one in campaigns
            if campaign in (None, one)
        )
    )
    if len(found) > 1:
        raise StudyError(
            f"{model!r} is measured in {len(found)} studies ({', '.join(found)}); choose one with "
            "--study NAME."
        )
    if found or {":", "@"} & set(model):
        return resolve(model, store, found[0] if found else DEFAULT_STUDY, campaign)
    there = sorted(name for name, campaigns in measured.items() if campaigns)
    studies = f"studies with one: {', '.join(there) or 'none'}"
    of = f" in campaign {campaign!r}" if campaign else ""
    raise StudyError(
        f"No study of {store.root} has a length profile of {model!r}{of} ({studies}); see "
        "`contextcliff report STUDY`, or measure it with `contextcliff profile`."
    )
