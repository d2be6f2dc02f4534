"""`atlas`: published results of others as tables and a static site."""

from __future__ import annotations

from pathlib import Path

import click

from contextcliff_dagster.cli.display.output import (
    ProgressBar,
    print_either,
    print_json,
    print_table,
)
from contextcliff_dagster.cli.options import common_options, folder_option
from contextcliff_dagster.contracts import StoreError, Verdict
from contextcliff_dagster.reporting.wording import VERDICT_PHRASE, count, estimate, located, tokens


@click.group()
def atlas() -> None:
    """Show what published results say about the safe context of models."""


@atlas.command()
@click.argument("sources", metavar="SOURCES", type=click.Path(path_type=Path))
@folder_option("--tables", "Folder with the tables of results (default: SOURCES).")
@folder_option("--output", "Folder for the site.", default=Path("atlas"), show_default=True)
@common_options
def build(sources: Path, tables: Path | None, output: Path, as_json: bool) -> None:
    """Build a static site from tables of results with one row per answer.

    SOURCES is a folder of YAML files that describe each table (docs/atlas.md). Results are kept in
    the site's folder, so that unchanged tables are not analysed again. Makes no call.
    """
    from contextcliff_dagster.atlas.results import Kept, pairs_of, result_of
    from contextcliff_dagster.atlas.series import series_of
    from contextcliff_dagster.atlas.site import MARK, entries_of, write_site
    from contextcliff_dagster.atlas.sources import load_sources, read_table
    from contextcliff_dagster.reporting.caps_site import check_folder

    check_folder(output, MARK, "atlas")
    known = load_sources(sources)
    series = [
        curve
        for name, source in known.items()
        for curve in series_of(name, source, read_table((tables or sources) / source.table))
    ]
    kept = Kept(output / ".results")
    results = {}
    with ProgressBar(transient=True) as bar:
        for curve in series:
            results[curve.key] = result_of(curve, kept)
            bar.show("series", len(results), len(series))
        pairs = []
        for pair in pairs_of(series, results, known, kept):
            pairs.append(pair)
            bar.show("pairs", len(pairs), None)
    kept.forget_others()
    entries = entries_of(series, results, known)
    few = [curve for curve in series if curve.few]
    if not entries:
        first = f" Of the first: {few[0].few} {' '.join(few[0].notes)}".rstrip() if few else ""
        raise StoreError(f"No series of {sources} has enough answers for a verdict.{first}")
    index = write_site(entries, pairs, few, known, output)
    models = len({entry.series.model for entry in entries})
    words = (
        f"{len(entries)} series of {count(models, 'model')}, {count(len(pairs), 'pair')} of "
        f"conditions, {len(few)} series more with too few answers: {index}"
    )
    counts = {"series": len(entries), "models": models, "pairs": len(pairs), "too_few": len(few)}
    print_either({"index": str(index), **counts}, words, as_json=as_json)


@atlas.command()
@click.argument("model", metavar="MODEL")
@common_options
def show(model: str, as_json: bool) -> None:
    """Show what published results say about MODEL, or all models whose names contain it."""
    from contextcliff_dagster.atlas.results import known_of
    from contextcliff_dagster.atlas.series import unit_words

    known = known_of(model)
    if as_json:
        print_json(known)
        return
    rows = []
    for entry in known["series"]:
        unit, midpoint = unit_words(entry["unit"]), entry["midpoint"]
        cap = "none" if entry["safe_cap"] is None else f"{tokens(entry['safe_cap'])} {unit}"
        task = f"{known['sources'][entry['source']][0]}: {entry['task'].replace('_', ' ')}"
        low, high = entry["lengths"]
        documents = f" on {entry['n_documents']:,} documents" if entry["natural"] else ""
        asked = f"{entry['n']:,}{documents}, {low:,} to {high:,} {unit}"
        asked += "" if entry["natural"] else ", made"
        verdict = VERDICT_PHRASE[Verdict(entry["verdict"])]
        place = "" if midpoint is None else f"{located(*midpoint)} {unit}"
        short = estimate(*entry["baseline"])
        rows.append([entry["model"], task, entry["condition"], cap, verdict, place, short, asked])
    head = ("model", "task", "condition", "safe cap", "verdict", "midpoint of the drop")
    print_table((*head, "score when short", "answers"), rows)
    click.echo(f"\nGathered {known['gathered']} from:")
    for name, citation in known["sources"].values():
        click.echo(f"  {name}: {citation}")
    click.echo("Your own task needs its own measurement: contextcliff init")
