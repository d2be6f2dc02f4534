"""The committed schema of the utilization result is that of its declaration."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from contextcliff_dagster.contracts.results import ResultFile
from tools.write_result_schemas import EXPERIMENT_RESULTS, schema_path, schema_text


@pytest.mark.parametrize("file", EXPERIMENT_RESULTS, ids=lambda file: file.name)
def test_the_committed_schema_is_that_of_the_declaration(file: ResultFile) -> None:
    assert schema_path(file).read_text("utf-8") == schema_text(file), "run `make schemas`"
    Draft202012Validator.check_schema(file.schema())
