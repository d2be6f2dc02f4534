"""The worker's arithmetic, in its environment: against forwards of whole prompts and masks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster.inference.engines.kvpress.engine import _asked
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster_tests.support.kv_engine import (
    POLICIES,
    RECIPES,
    in_its_environment,
    prompts,
)

pytestmark = [pytest.mark.kv, pytest.mark.timeout(900)]

SETTINGS = {
    "folder": str(weights_path("reference-short")),
    "gguf_file": None,
    "threads": 1,
    "dtype": "float32",
    "rope_scaling": None,
    "memory_bytes": 0,
    "disk_bytes": 0,
    "reads_folder": None,
    "reads_of": {},
}


def test_the_question_is_read_at_its_own_positions() -> None:
    """As with all entries under a mask that hides those which were not kept."""
    script = Path(__file__).with_name("masked_attention.py")
    same, elsewhere, token, expected = in_its_environment(script, json.dumps(SETTINGS))
    assert same < 1e-4 < 1 < elsewhere
    assert token == expected


def test_with_every_entry_kept_all_policies_answer_as_forwards_over_the_whole_prompt() -> None:
    asked = [_asked(prompt) for recipe in RECIPES for prompt in prompts(recipe, 2)]
    script = Path(__file__).with_name("plain_forward.py")
    policies = ["none", *POLICIES]
    found = in_its_environment(script, *map(json.dumps, (SETTINGS, asked, policies)))
    assert len(found) == len(asked)
    for answers_of in found:
        assert answers_of == dict.fromkeys(["plain", *policies], answers_of["plain"])
    assert len({answers_of["plain"] for answers_of in found}) > 2


def test_h2o_adds_up_the_attention_that_is_written_out_whole() -> None:
    script = Path(__file__).with_name("observed_attention.py")
    assert max(in_its_environment(script)) < 1e-4
