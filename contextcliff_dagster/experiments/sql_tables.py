"""SQL views of a store's Parquet files, and tables of its results, as DuckDB reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import EVAL_RECORDS, Column, Table, conform
from contextcliff_dagster.contracts.results import Cliffs, json_schema, to_json
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.experiments.lookup import all_experiments
from contextcliff_dagster.sampling.manifest import HEAD, bins_of
from contextcliff_dagster.store import Store, read_result
from contextcliff_dagster.studies.files import retired_studies

if TYPE_CHECKING:
    import duckdb

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
_CALL = {column.name: column for column in EVAL_RECORDS.columns}
_RANGE = (
    Column("from_tokens", "int64", "First length of the bin", "tokens"),
    Column("to_tokens", "int64", "Last length of the bin", "tokens"),
)
_MERGED = Column("merged_into", "string", "Bin that took over the bin's examples; else null")
BIN_RANGES = Table(
    "bin_ranges",
    "Lengths of the documents in each bin of a study's sample.",
    (_CALL["study"], _CALL["bin"], *_RANGE, _MERGED),
)
PARTITIONS = Table(
    "partitions",
    "What is measured of each partition key of an experiment, by model.",
    (
        Column("experiment", "string", "Experiment"),
        *(_CALL[name] for name in ("study", "campaign", "model")),
        Column("key", "string", "Partition key; of the length profile a bin"),
        Column("examples", "int64", "Examples asked"),
        Column("calls", "int64", "Calls made"),
        Column("done", "int64", "Calls with a score"),
        Column("failed", "int64", "Calls without a score"),
        Column("shortest_tokens", "int64", "Least length_tokens", "tokens"),
        Column("longest_tokens", "int64", "Largest length_tokens", "tokens"),
        *_RANGE,
    ),
)


def _fields(declared: Mapping[str, Any], names: str) -> Iterator[Column]:
    """Yield columns named, typed and described as fields of a result's JSON Schema."""
    types: dict[str, Any] = {"integer": "int64", "number": "float64", "string": "string"}
    for name in names.split():
        field = declared[name]
        kind = field.get("type", "string")  # an enum has none
        kind = kind if isinstance(kind, str) else kind[0]
        yield Column(name, types[kind], field["description"], field.get("unit"))


@cache
def result_tables() -> tuple[Table, Table]:
    """Return the tables `cliffs` and `bins`, whose columns are fields of ``cliffs.json``."""
    schema = json_schema(Cliffs, "cliffs", "cliffs")
    of_model, of_bin = schema["properties"], schema["$defs"]["BinResult"]["properties"]
    cliffs = (
        *_fields(of_model, "study campaign model verdict safe_cap_tokens confidence tolerance"),
        *_fields(of_model, "n missing_share"),
        Column("cliff_tokens", "int64", "Midpoint of the drop; null: none was found", "tokens"),
        Column("method_version", "string", "Version of the method of verdict and cap"),
        Column("result", "json", "All of cliffs.json"),
    )
    bins = _fields(of_bin, "bin n median_tokens mean ci_low ci_high sd failure_rate")
    return (
        Table("cliffs", "Verdict and cap of each model.", cliffs),
        Table("bins", "Scores of each model by length.", (*cliffs[:3], *bins)),
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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
        pattern = _quoted(re.sub(r"([\[*?])", r"[\1]", str(root)) + f"/{files}")
        # The union with the empty table adds columns that files of earlier versions lack.
        source = (
            f"SELECT {columns} FROM ({source} UNION ALL BY NAME SELECT * FROM "
            f"read_parquet({pattern}, hive_partitioning = false, union_by_name = true))"
        )
        if names := retired_studies(Store(root)):
            source += f" WHERE study NOT IN ({', '.join(map(_quoted, names))})"
    return f"CREATE OR REPLACE VIEW {declared.name} AS {source}"


def result_rows(root: Path) -> dict[Table, list[dict[str, Any]]]:
    """Return rows of `result_tables` and `BIN_RANGES` from all studies except retired ones."""
    cliffs, bins = result_tables()
    rows: dict[Table, list[dict[str, Any]]] = {cliffs: [], bins: [], BIN_RANGES: []}
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
        for to, values in ((cliffs, [whole]), (bins, result["bins"])):
            rows[to] += [{name: (row | of)[name] for name in to.column_names} for row in values]
    for head in sorted(root.glob(f"*/manifest/{HEAD}")):
        study = head.parent.parent.name  # a study's name is its folder
        _, found = bins_of(head)
        for number, entry in enumerate(found if study not in retired else []):
            last = entry.edge_high - (number < len(found) - 1)  # the last bin is closed
            values = (study, entry.bin, entry.edge_low, last, entry.merged_into)
            rows[BIN_RANGES].append(dict(zip(BIN_RANGES.column_names, values, strict=True)))
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
        f"CREATE OR REPLACE VIEW {PARTITIONS.name} AS SELECT p.*, r.from_tokens, r.to_tokens"
        f" FROM ({of_experiments}) p LEFT JOIN bin_ranges r"
        f" ON p.experiment = '{LENGTH_PROFILE.name}' AND r.study = p.study AND r.bin = p.key"
    )


def shown_tables() -> list[Table]:
    """Return the tables that have a view: the profile's predictions, and all records."""
    tables = [LENGTH_PROFILE.predictions, *(experiment.records for experiment in all_experiments())]
    return list({table.name: table for table in tables}.values())


def _all_tables() -> list[tuple[str, Table]]:
    """Return kind and declaration of every view and table."""
    views, tables = (*shown_tables(), PARTITIONS), (*result_tables(), BIN_RANGES)
    return [*(("view", view) for view in views), *(("table", table) for table in tables)]


def fill(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Create all views and tables of the store ``root``, with comments on them and their columns.

    Raises duckdb.Error, or StoreError where a result cannot be read.
    """
    for view in shown_tables():
        connection.execute(view_sql(view, root))
    for declared, rows in result_rows(root).items():
        connection.register("result_rows", conform(rows, declared))
        connection.execute(f"CREATE OR REPLACE TABLE {declared.name} AS FROM result_rows")
    connection.unregister("result_rows")
    connection.execute("ALTER TABLE cliffs ALTER result TYPE JSON")
    connection.execute(partitions_sql())
    for kind, of in _all_tables():
        connection.execute(f"COMMENT ON {kind} {of.name} IS {_quoted(of.description)}")
        for column in of.columns:
            text = _quoted(column.described())
            connection.execute(f'COMMENT ON COLUMN {of.name}."{column.name}" IS {text}')


def contents(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Return name, kind and number of rows of every view and table."""
    counts = [(kind, of.name, f"SELECT count(*) FROM {of.name}") for kind, of in _all_tables()]
    return [
        {"name": name, "kind": kind, "rows": connection.execute(count).fetchall()[0][0]}
        for kind, name, count in counts
    ]
