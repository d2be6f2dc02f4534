"""`profile --kv_policy`: a compressed cache next to the whole one, measured for real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.files import warehouse_files
from contextcliff_dagster_tests.support.records.profiles import schema
from contextcliff_dagster_tests.support.terminal import run

pytestmark = [
    pytest.mark.kv,
    pytest.mark.timeout(900),
]


def test_the_plan_s_line_without_a_subcommand_ends_with_the_comparison(tmp_path: Path) -> None:
    path = warehouse_files.write(tmp_path / "own.jsonl", warehouse_files.rows(60))
    line = f"--data {path} --model reference-short --kv_policy SnapKV --kv_budget 0.5 --task lookup"
    ended = run(*line.split(), "--samples-per-bin", "2", timeout=850)
    assert ended.code == 0, ended.err
    assert "reference-short+snapkv@0.5" in ended.out
    assert "snapkv at 50%" in ended.out
    again = run(*line.split(), "--samples-per-bin", "2", "--json", timeout=300)
    assert again.code == 0, again.err
    (comparison,) = json.loads(again.out)["comparisons"]
    files = comparison.pop("files")
    schema("comparison").validate(comparison)
    assert Path(files["html"]).is_file()
    assert comparison["kv"]["saved_share"] == pytest.approx(0.5, abs=0.02)
    quantities = {cost["quantity"] for cost in comparison["kv"]["costs"]}
    assert {"kv_bytes", "kv_prefill_ms", "kv_press_ms", "kv_decode_ms"} <= quantities
