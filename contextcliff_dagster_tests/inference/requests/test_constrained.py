"""Replies held to a JSON Schema: which recipes, in which requests, of which engines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.engines.base import Decoding
from contextcliff_dagster.inference.engines.openai.wire_format import request
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster_tests.support.records.calls import LedgerSample, openai_entry, plan_of

SCHEMA = {"type": "object", "properties": {"C": {"type": "number"}}, "required": ["C"]}
FREE = Recipe(output_schema=SCHEMA)
HELD = replace(FREE, constrained=True)


def test_a_recipe_that_is_not_held_has_the_calls_that_it_had() -> None:
    assert "constrained" not in FREE.to_dict()
    assert "constrained" not in Recipe().to_dict()
    assert FREE.replicate_hash(0) != HELD.replicate_hash(0)
    assert Recipe.from_dict(HELD.to_dict()) == HELD
    assert Recipe.from_dict(FREE.to_dict()) == FREE


@pytest.mark.parametrize(
    "changes",
    [
        {"output_schema": None},
        {"mode": "completion"},
        {"mode": "chat_prefill", "answer_prefix": "{"},
    ],
)
def test_it_needs_a_schema_and_a_chat(changes: dict[str, object]) -> None:
    with pytest.raises(
        StudyError, match="Constrained replies need `output_schema` and prompt mode"
    ):
        replace(HELD, **changes)  # type: ignore[arg-type]


def test_the_schema_is_in_the_request_where_the_reply_is_held_to_it() -> None:
    entry, prompt = openai_entry("http://127.0.0.1:9/v1"), FREE.render("a text", "what?")
    for schema in (None, SCHEMA):
        _, parts = request(entry, prompt, Decoding(8, schema=schema))
        body = json.loads(b"".join(parts))
        if schema is None:
            assert "response_format" not in body
        else:
            assert body["response_format"]["type"] == "json_schema"
            assert body["response_format"]["json_schema"]["schema"] == SCHEMA
            assert body["response_format"]["json_schema"]["strict"] is True


def test_an_engine_that_cannot_be_held_refuses_before_it_starts(ledger: Ledger) -> None:
    plan = plan_of(LedgerSample(1, 1), 1, HELD)
    with pytest.raises(EngineError, match="'reference' cannot enforce a JSON Schema"):
        measure(plan, get_model("reference-short"), ledger)
