"""The DuckDB database `contextcliff.duckdb`: SQL views of Parquet files, and result tables."""

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an asset and does not resolve strings.

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_duckdb import DuckDBResource

from contextcliff_dagster.contracts import Table
from contextcliff_dagster.contracts.results import Cliffs, to_json
from contextcliff_dagster.defs.asset_specs import FOLLOW_RECORDS, asset_key, key_prefix, single_run
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.defs.ui.rendering import table
from contextcliff_dagster.defs.ui.results import bins_of
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.experiments.lookup import all_experiments, asked_experiments
from contextcliff_dagster.private_files import make_folder, private_umask
from contextcliff_dagster.sampling.manifest import HEAD
from contextcliff_dagster.store import Store, read_result
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.files import retired_studies

_DUCKDB_TYPES = {
    "string": "VARCHAR",
    "json": "VARCHAR",
    "int64": "BIGINT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "timestamp": "TIMESTAMPTZ",
    "list<string>": "VARCHAR[]",
    "list<float64>": "DOUBLE[]",
}
_OF_MODEL = {"study": "VARCHAR", "campaign": "VARCHAR", "model": "VARCHAR"}
RESULT_TABLES = {
    "cliffs": {
        **_OF_MODEL,
        "verdict": "VARCHAR",
        "safe_cap_tokens": "BIGINT",
        "confidence": "DOUBLE",
        "tolerance": "DOUBLE",
        "n": "BIGINT",
        "missing_share": "DOUBLE",
        "cliff_tokens": "BIGINT",
        "method_version": "VARCHAR",
        "result": "JSON",
    },
    "bins": {
        **_OF_MODEL,
        "bin": "VARCHAR",
        "n": "BIGINT",
        "median_tokens": "DOUBLE",
        "mean": "DOUBLE",
        "ci_low": "DOUBLE",
        "ci_high": "DOUBLE",
        "sd": "DOUBLE",
        "failure_rate": "DOUBLE",
    },
}
"""Table -> column -> type; columns are named after the fields of `cliffs.json`."""

BIN_RANGES = {
    "study": "VARCHAR",
    "bin": "VARCHAR",
    "from_tokens": "BIGINT",
    "to_tokens": "BIGINT",
    "merged_into": "VARCHAR",
}
PARTITIONS = "partitions"
"""Name of the view that describes each measured partition key of every experiment."""


def view_sql(declared: Table, root: Path) -> str:
    """Return SQL for a view of one table's files from all studies except retired ones.

    Without files, the view is empty. The hive parts of the paths are not read, because they hold
    slugs, while the files' columns hold the names.
    """
    files = f"*/{declared.name}/campaign=*/model=*/bin=*/*.parquet"
    columns = ", ".join(f'"{name}"' for name in declared.column_names)
    nulls = ", ".join(
        f'CAST(NULL AS {_DUCKDB_TYPES[c.type]}) AS "{c.name}"' for c in declared.columns
    )
    source = f"SELECT {nulls} WHERE false"
    if any(root.glob(files)):
        literal = re.sub(r"([\[*?])", r"[\1]", str(root))
        quoted = f"{literal}/{files}".replace("'", "''")
        # The union with the empty table adds columns that files of earlier versions lack.
        source = (
            f"SELECT {columns} FROM ({source} UNION ALL BY NAME SELECT * FROM "
            f"read_parquet('{quoted}', hive_partitioning = false, union_by_name = true))"
        )
        if names := retired_studies(Store(root)):
            literals = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
            source += f" WHERE study NOT IN ({literals})"
    return f"CREATE OR REPLACE VIEW {declared.name} AS {source}"


def result_rows(root: Path) -> dict[str, list[list[Any]]]:
    """Return rows of `RESULT_TABLES` from ``cliffs.json`` of all studies but the retired."""
    rows: dict[str, list[list[Any]]] = {name: [] for name in RESULT_TABLES}
    retired = retired_studies(Store(root))
    for path in sorted(root.glob("*/profiles/*/*/cliffs.json")):
        result = to_json(read_result(path, Cliffs))
        if result["study"] in retired:
            continue
        of = {name: result[name] for name in ("study", "campaign", "model")}
        cliff = result["cliff"] and result["cliff"]["location_tokens"]
        method = result["method_version"] or "1"
        whole = {**result, "cliff_tokens": cliff, "method_version": method}
        whole["result"] = json.dumps(result)
        for name, values in (("cliffs", [whole]), ("bins", result["bins"])):
            columns = RESULT_TABLES[name]
            rows[name] += [[(row | of)[column] for column in columns] for row in values]
    return rows


def range_rows(root: Path) -> list[list[Any]]:
    """Return rows of ``bin_ranges``: the first and last length in tokens of each bin, for all
    studies except retired ones."""
    retired = retired_studies(Store(root))
    rows: list[list[Any]] = []
    for head in sorted(root.glob(f"*/manifest/{HEAD}")):
        study = head.parent.parent.name  # a study's name is its folder
        _, bins = bins_of(head)
        for number, length_bin in enumerate(bins if study not in retired else []):
            last = length_bin.edge_high - (number < len(bins) - 1)  # the last bin is closed
            rows.append([study, length_bin.bin, length_bin.edge_low, last, length_bin.merged_into])
    return rows


def partitions_sql() -> str:
    """Return SQL for the view `PARTITIONS`: tokens, examples and calls by model and key."""
    of_experiments = " UNION ALL ".join(
        f"SELECT '{experiment.name}' AS experiment, study, campaign, model, bin AS key,"
        " count(DISTINCT example_id) AS examples, count(DISTINCT call_key) AS calls,"
        " count(DISTINCT call_key) FILTER (score IS NOT NULL) AS done,"
        " count(DISTINCT call_key) FILTER (score IS NULL) AS failed,"
        " min(length_tokens) AS shortest_tokens, max(length_tokens) AS longest_tokens"
        f" FROM {experiment.records.name} GROUP BY ALL"
        for experiment in all_experiments()
        if experiment.host is None
    )
    return (
        f"CREATE OR REPLACE VIEW {PARTITIONS} AS SELECT p.*, r.from_tokens, r.to_tokens"
        f" FROM ({of_experiments}) p LEFT JOIN bin_ranges r"
        f" ON p.experiment = '{LENGTH_PROFILE.name}' AND r.study = p.study AND r.bin = p.key"
    )


def shown_tables() -> list[Table]:
    """Return the tables that have a view: the profile's predictions, and all records."""
    tables = [LENGTH_PROFILE.predictions, *(experiment.records for experiment in all_experiments())]
    return list({table.name: table for table in tables}.values())


def database_asset(studies: Sequence[Study]) -> dg.AssetsDefinition:
    """Return the asset ``database``, downstream of all studies."""

    @single_run(
        dg.asset,
        key=dg.AssetKey([*key_prefix(), "database"]),
        deps=[
            asset_key(study, name)
            for study in studies
            for experiment in asked_experiments(study)
            for name in (*experiment.asset_names("records"), *experiment.asset_names("result")[-1:])
        ],
        description=(
            "contextcliff.duckdb, rebuilt whole: views over the Parquet files of all experiments "
            f"({', '.join(f'`{t.name}`' for t in shown_tables())}), tables `cliffs`, `bins` and "
            f"`bin_ranges`, and the view `{PARTITIONS}`: the tokens of each key, calls done and "
            "failed."
        ),
        group_name="database",
        kinds={"duckdb"},
        automation_condition=FOLLOW_RECORDS,
        # DuckDB lets one process at a time write a file.
        pool="duckdb",
    )
    def database(store: StoreResource, duckdb: DuckDBResource) -> dg.MaterializeResult:
        where = store.open()
        make_folder(where.duckdb_path.parent)
        rows = {**result_rows(where.root), "bin_ranges": range_rows(where.root)}
        with private_umask(), duckdb.get_connection() as connection:
            for declared in shown_tables():
                connection.execute(view_sql(declared, where.root))
            for name, columns in {**RESULT_TABLES, "bin_ranges": BIN_RANGES}.items():
                declaration = ", ".join(f"{column} {kind}" for column, kind in columns.items())
                connection.execute(f"CREATE OR REPLACE TABLE {name} ({declaration})")
                if rows[name]:
                    places = ", ".join("?" * len(columns))
                    connection.executemany(f"INSERT INTO {name} VALUES ({places})", rows[name])
            connection.execute(partitions_sql())
            records = connection.execute("SELECT count(*) FROM eval_records").fetchone()[0]
        return dg.MaterializeResult(
            metadata={
                "path": dg.MetadataValue.path(str(where.duckdb_path)),
                "contents": table(
                    [
                        {"name": "eval_records", "kind": "view", "rows": records},
                        *(
                            {"name": name, "kind": "table", "rows": len(of)}
                            for name, of in rows.items()
                        ),
                    ]
                ),
            }
        )

    return database
