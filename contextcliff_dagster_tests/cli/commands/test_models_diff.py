"""`contextcliff models diff A B`: what tells two serving configurations apart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import load_models
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster_tests.support.records.calls import reference_server
from contextcliff_dagster_tests.support.records.measured import run
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call

HERE = """models:
  one: {engine: reference, weights: weights, dtype: float32}
  two: {engine: reference, weights: weights, dtype: float32, price: {input_usd_per_mtok: 1, output_usd_per_mtok: 1}}
  cut: {engine: reference, weights: weights, dtype: float32, window_tokens: 512}
"""  # noqa: E501


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models of one's own, and an empty store."""
    shutil.copytree(weights_path("reference-short"), tmp_path / "weights")
    (tmp_path / "models.yaml").write_text(HERE)
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "store"))
    return tmp_path


def diff(*args: str) -> tuple[int, dict[str, Any]]:
    ended = call("models", "diff", *args, "--json")
    return ended.code, json.loads(ended.out)


def change_weights(home: Path) -> None:
    path = home / "weights" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_what_changes_no_output_makes_no_difference(home: Path) -> None:
    code, difference = diff("one", "two")
    assert (code, difference["same"], difference["differences"]) == (0, True, [])
    assert "have the same serving identity" in call("models", "diff", "one", "two").out
    assert not (home / "store").exists(), "asking makes no store"


def test_the_fields_that_differ_are_named_with_both_values(home: Path) -> None:
    code, difference = diff("one", "cut")
    assert code == 3
    assert difference["differences"] == [{"field": "window_tokens", "a": 8192, "b": 512}]
    ended = call("models", "diff", "one", "cut")
    assert ended.code == 3
    assert ended.out.splitlines()[1].split() == ["window_tokens", "8192", "512"]
    assert "one: as declared; it has not been measured yet" in ended.out


def test_models_are_listed_as_before(home: Path) -> None:
    ended = call("models")
    assert ended.code == 0
    assert ended.out.startswith("MODEL ")
    listed = json.loads(call("models", "--json").out)
    assert {"one", "reference-long"} <= {entry["name"] for entry in listed}


def test_what_a_server_told_a_campaign_is_compared_too(home: Path) -> None:
    with reference_server("one") as url, Ledger.open(home / "store" / "state.db") as ledger:
        remote = f"{{engine: openai, model_id: one, revision: r1, base_url: '{url}'}}"
        (home / "models.yaml").write_text(f"{HERE}  far: {remote}\n  near: {remote}\n")
        far = load_models()["far"]
        run(ledger, far, n=1, study="s", campaign="c")
        assert diff("far", "near")[1]["differences"], "near was never asked"
        run(ledger, load_models()["near"], n=1, study="t", campaign="c")
        assert diff("far", "near")[0] == 0
    code, difference = diff("far", "near", "--study", "s")
    assert code == 3
    fields = {row["field"] for row in difference["differences"]}
    assert "server_max_model_len" in fields
    assert difference["a"]["recorded"]["campaign"] == "c"
    assert difference["b"]["recorded"] is None, "study s has not measured it"


def test_a_model_that_changed_since_its_campaign_says_so_and_how_to_go_on(home: Path) -> None:
    with Ledger.open(home / "store" / "state.db") as ledger:
        run(ledger, load_models()["one"], n=1, study="s", campaign="c")
        assert diff("one", "two")[0] == 0
        change_weights(home)
        code, difference = diff("one", "two")
        assert (code, difference["differences"]) == (3, [])
        changed = difference["a"]["changed_since_recorded"]
        assert [row["field"] for row in changed] == ["weights_sha256"]
        out = call("models", "diff", "one", "two").out
        assert "one: as declared. It differs from campaign c of study 's'" in out
        assert "contextcliff campaign new s" in out
        # The same is an error as soon as it is to be measured under the old name.
        with pytest.raises(
            EngineError, match=r"weights_sha256: .* -> .*campaign new s.*its own name"
        ):
            run(ledger, load_models()["one"], n=2, study="s", campaign="c")


def test_a_model_that_is_known_to_the_ledger_alone_is_compared_by_what_it_was(home: Path) -> None:
    with Ledger.open(home / "store" / "state.db") as ledger:
        run(ledger, load_models()["one"], n=1, study="s", campaign="c")
    (home / "models.yaml").write_text(HERE.replace("  one:", "  new:"))
    code, difference = diff("one", "new")
    assert (code, difference["a"]["declared"]) == (0, None)
    assert "one: as recorded by campaign c" in call("models", "diff", "one", "new").out


def test_a_name_that_nobody_knows_is_one_sentence(home: Path) -> None:
    assert_one_sentence(call("models", "diff", "one", "none"), "'none'", "reference-long")


def test_nested_fields_are_named_one_by_one(home: Path) -> None:
    more = "  {}: {{engine: openai, base_url: 'http://h/v1', rope_scaling: {{type: yarn, factor: {}}}}}\n"  # noqa: E501
    (home / "models.yaml").write_text(HERE + more.format("x", 2) + more.format("y", 4))
    difference = diff("x", "y")[1]["differences"]
    assert {row["field"] for row in difference} == {"rope_scaling.factor", "model_id"}


def test_a_campaign_that_nobody_recorded_is_one_sentence(home: Path) -> None:
    asked = ("models", "diff", "one", "cut")
    assert_one_sentence(call(*asked, "--campaign", "c"), "no campaign 'c'", "campaign list")
    with Ledger.open(home / "store" / "state.db") as ledger:
        run(ledger, n=1, study="s", campaign="c")
    assert call(*asked, "--study", "s", "--campaign", "c").code == 3
    assert_one_sentence(call(*asked, "--study", "x"), "no study 'x'")
    both = call(*asked, "--study", "s", "--campaign", "d")
    assert_one_sentence(both, "no study 's' with a campaign 'd'")
