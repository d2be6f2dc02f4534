"""Manufactured lengths: refused by `prepare` and `profile`, or allowed and named in the audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from contextcliff_dagster.run.study import prepare_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import find_study, load_study
from contextcliff_dagster_tests.support.terminal import call

pytestmark = pytest.mark.usefixtures("unrecorded")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = tmp_path / "babilong" / "qa1"
    folder.mkdir(parents=True)
    rows = [
        {
            "input": f"Mary went to the kitchen {n}. " + "It rained on the hills. " * 40 * n,
            "question": "Where is Mary?",
            "target": "kitchen",
        }
        for n in range(1, 13)
    ]
    (folder / "1k.json").write_text(json.dumps(rows))
    path = tmp_path / "padded.yaml"
    whole = {
        "name": "padded",
        "corpus": {"kind": "babilong", "path": "babilong"},
        "tokenizer": "reference",
        "bins": {"count": 2, "starved_below": 2},
        "models": ["reference-long"],
    }
    path.write_text(yaml.safe_dump(whole))
    return path


@pytest.mark.parametrize("command", ["prepare", "profile"])
def test_padded_documents_are_refused(study: Path, command: str) -> None:
    refused = call(command, str(study))
    assert refused.code == 2
    assert "1k.json" in refused.err
    assert "the lengths of 'qa1' were manufactured" in refused.err
    assert "--allow-synthetic-length" in refused.err
    assert refused.out == ""


def test_allowed_they_are_measured_under_another_name_and_named_in_the_audit(study: Path) -> None:
    output = call("prepare", str(study), "--allow-synthetic-length", "--json")
    assert output.code == 0
    assert "the lengths of 'qa1' were manufactured" in output.err
    prepared = json.loads(output.out)
    assert prepared["study"] == "padded-synthetic-length"
    assert prepared["audit"]["verdict"] == "warn"
    assert "'qa1' were manufactured" in prepared["audit"]["advice"]
    assert list(prepared["corpus"]["account"]["manufactured"]) == ["qa1"]
    assert find_study("padded-synthetic-length").corpus_options["allow_synthetic_length"] is True
    # What was allowed once, under its name, is not allowed for the study that does not ask for it.
    assert call("prepare", str(study)).code == 2


def test_the_studys_own_option_allows_it(study: Path) -> None:
    whole = yaml.safe_load(study.read_text())
    whole["corpus"]["allow_synthetic_length"] = True
    study.write_text(yaml.safe_dump(whole))
    prepared = prepare_study(load_study(study), store=Store.default())
    assert prepared.audit is not None
    assert "'qa1' were manufactured" in prepared.audit["advice"]
    again = prepare_study(load_study(study), store=Store.default())  # from the frozen sample
    assert again.audit == prepared.audit


def test_there_is_nothing_to_allow_where_lengths_are_natural() -> None:
    refused = call("prepare", "reference", "--allow-synthetic-length")
    assert refused.code == 2
    assert "is for public benchmarks" in refused.err
