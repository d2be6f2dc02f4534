"""`atlas`: tables of others' published outcomes as a static site."""

from __future__ import annotations

from pathlib import Path

import click

from contextcliff_dagster.cli.display.output import print_either
from contextcliff_dagster.cli.display.progress import ProgressBar
from contextcliff_dagster.cli.options import common_options, folder_option
from contextcliff_dagster.contracts import StoreError


@click.group()
def atlas() -> None:
    """What published outcomes say about the safe context of models."""


@atlas.command()
@click.argument("sources", metavar="SOURCES", type=click.Path(path_type=Path))
@folder_option("--tables", "Folder of the tables of outcomes (default: SOURCES).")
@folder_option("--output", "Folder of the site.", default=Path("atlas"), show_default=True)
@common_options
def build(sources: Path, tables: Path | None, output: Path, as_json: bool) -> None:
    """Make a static site of tables of outcomes, one row an answer.

    SOURCES is a folder of YAML files that say what each table is (docs/atlas.md). Results are kept
    in the site's folder: what did not change is not analysed again. Makes no call.
    """
    from contextcliff_dagster.atlas.results import results_of
    from contextcliff_dagster.atlas.series import series_of
    from contextcliff_dagster.atlas.site import MARK, entries_of, write_site
    from contextcliff_dagster.atlas.sources import load_sources, read_table

    if (output / "index.html").exists() and not (output / MARK).exists():
        raise StoreError(f"{output} holds a page that is no atlas; give another --output DIR.")
    known = load_sources(sources)
    series = [
        one
        for name, source in known.items()
        for one in series_of(name, source, read_table((tables or sources) / source.table))
    ]
    with ProgressBar(transient=True) as bar:
        results = results_of(
            series, output / ".results", lambda done: bar.show("series", done, len(series))
        )
    entries = entries_of(series, results, known)
    few = [one for one in series if one.few]
    if not entries:
        raise StoreError(f"No series of {sources} has enough answers for a verdict.")
    index = write_site(entries, few, known, output)
    models = len({entry.series.model for entry in entries})
    words = (
        f"{len(entries)} series of {models} models, {len(few)} more with too few answers: {index}"
    )
    counts = {"series": len(entries), "models": models, "too_few": len(few)}
    print_either({"index": str(index), **counts}, words, as_json=as_json)
