"""Columns and code in the UI: from cliffs back to predictions, and to the study's file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.graphql import ui_of
from contextcliff_dagster_tests.support.tiny_study import Run

PAGE = """
query { assetNodes {
  assetKey { path }
  metadataEntries { label
    ... on TableSchemaMetadataEntry { schema { columns { name description } } }
    ... on CodeReferencesMetadataEntry { codeReferences {
      ... on LocalFileCodeReference { filePath lineNumber label } } } }
  assetMaterializations(limit: 1) { metadataEntries { label
    ... on TableColumnLineageMetadataEntry { lineage {
      columnName columnDeps { assetKey { path } columnName } } } } } } }
"""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


def test_columns_lead_back_to_predictions_and_code_to_the_study(
    study: Study, instance: dg.DagsterInstance, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(study.folder))
    assert run().success
    with ui_of(instance) as ui:
        nodes = ui.ask(PAGE)["assetNodes"]
    tiny = {
        node["assetKey"]["path"][-1]: node for node in nodes if "tiny" in node["assetKey"]["path"]
    }

    def entry(entries: list[dict[str, Any]], label: str) -> Any:
        return next(entry for entry in entries if entry["label"] == label)

    columns: dict[str, set[str]] = {}
    sources: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for name in ("predictions", "eval_records", "metrics", "cliffs"):
        schema = entry(tiny[name]["metadataEntries"], "dagster/column_schema")["schema"]
        columns[name] = {column["name"] for column in schema["columns"]}
        assert all(column["description"] for column in schema["columns"])
    columns["manifest"] = {"answers", "domain", "source"}
    for name in ("eval_records", "metrics", "cliffs"):
        made = tiny[name]["assetMaterializations"][0]["metadataEntries"]
        for column in entry(made, "dagster/column_lineage")["lineage"]:
            assert column["columnName"] in columns[name]
            for dep in column["columnDeps"]:
                of = dep["assetKey"]["path"][-1]
                assert dep["columnName"] in columns[of], (name, column, dep)
                sources.setdefault((name, column["columnName"]), set()).add((of, dep["columnName"]))
    assert sources["cliffs", "safe_cap_tokens"] == {
        ("eval_records", "score"),
        ("eval_records", "length_tokens"),
    }
    assert sources["metrics", "bin"] == {("eval_records", "bin")}
    assert sources["eval_records", "score"] == {
        ("predictions", "raw_output"),
        ("manifest", "answers"),
    }
    assert sources["eval_records", "length_tokens"] == {("predictions", "length_tokens")}
    assert sources["eval_records", "source"] == {("manifest", "source")}
    for node in tiny.values():
        file, code = entry(node["metadataEntries"], "dagster/code_references")["codeReferences"]
        assert (Path(file["filePath"]), file["label"]) == (study.folder / "tiny.yaml", "study")
        line = (
            Path(code["filePath"]).read_text(encoding="utf-8").splitlines()[code["lineNumber"] - 1]
        )
        assert "study_asset(" in line or "decorated(" in line or line.lstrip().startswith("def ")
