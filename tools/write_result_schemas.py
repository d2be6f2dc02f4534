"""Write the JSON Schemas of the result files from their declarations: `make schemas`."""

from __future__ import annotations

import json
from pathlib import Path

from contextcliff_dagster.contracts.results import RESULT_FILES, ResultFile
from contextcliff_dagster.experiments.continuation.results import ContinuationResult
from contextcliff_dagster.experiments.utilization.results import UtilizationResult
from contextcliff_dagster.experiments.visibility.results import VisibilityResult
from contextcliff_dagster.store import PACKAGE

EXPERIMENT_RESULTS = (
    ResultFile("continuation", ContinuationResult, "ContextCliff continuation result of one model"),
    ResultFile("utilization", UtilizationResult, "ContextCliff utilization result of one model"),
    ResultFile("visibility", VisibilityResult, "ContextCliff visibility result of one model"),
)
"""What `results` of an experiment's file holds, one a model."""


def schema_path(file: ResultFile, folder: Path = PACKAGE / "schemas") -> Path:
    """Where the schema of ``file`` lies."""
    return folder / f"{file.name}.schema.json"


def schema_text(file: ResultFile) -> str:
    """The schema of ``file`` as it is committed."""
    return json.dumps(file.schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    for file in (*RESULT_FILES, *EXPERIMENT_RESULTS):
        schema_path(file).write_text(schema_text(file), encoding="utf-8")


if __name__ == "__main__":
    main()
