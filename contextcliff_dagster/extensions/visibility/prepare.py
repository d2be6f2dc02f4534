"""`visibility prepare`: a competition's file to the arrays of a benchmark."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from contextcliff_dagster.cli.display.output import print_either
from contextcliff_dagster.cli.options import common_options
from contextcliff_dagster.reporting.wording.number_format import count
from contextcliff_dagster.store import Store


@click.command()
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--float32", is_flag=True, help="Keep features in half the memory.")
@click.option(
    "--max-samples",
    type=click.IntRange(1),
    metavar="N",
    help="Keep N rows, the same ones each time (default: all).",
)
@common_options
def prepare(name: str, file: Path, float32: bool, max_samples: int | None, as_json: bool) -> None:
    """Prepare the benchmark NAME from FILE, without a network.

    NAME is nomad, jigsaw, leaf, forest or housing. FILE is what Kaggle gives you: train.csv, a zip
    file with it, or one with train.csv.zip in it. What was prepared before is replaced.

    \b
    Example:
      kaggle competitions download -c leaf-classification
      contextcliff visibility prepare leaf leaf-classification.zip
    """
    from contextcliff_dagster.extensions.visibility.tasks.kaggle import prepare as preparation

    store = Store.default()
    done = preparation.prepare(store, name, file, float32=float32, most_rows=max_samples)
    folder = preparation.prepared_dir(store, name)
    rows, features = count(done.rows, "row"), count(len(done.features), "feature")
    print_either(
        {**asdict(done), "folder": str(folder)},
        f"{name}: {rows} of {features} in {folder}",
        as_json=as_json,
    )
