"""`doctor` finds what stands in the way and says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster.cli import main


def findings(
    capsys: pytest.CaptureFixture[str], *args: str
) -> tuple[int, dict[str, dict[str, str]]]:
    code = main(["doctor", "--json", *args])
    return code, {f["what"]: f for f in json.loads(capsys.readouterr().out)}


def test_a_good_installation_has_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    code, states = findings(capsys, "--offline")
    assert code == 0
    assert {f["state"] for f in states.values()} <= {"ok", "note"}
    assert states["store"]["state"] == "ok"


def test_it_reaches_for_models_and_names_the_missing_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "models.yaml").write_text(
        "models:\n  gone:\n    engine: openai\n    base_url: http://127.0.0.1:9/v1\n"
    )
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    code, states = findings(capsys)
    assert code == 0, "an endpoint that is down stops nothing"
    assert states["model reference-short"]["state"] == "ok"
    assert states["model gone"]["state"] == "note"
    assert "OPENAI_API_KEY" in states["model gpt-4o-mini"]["said"]


def test_a_fault_is_exit_code_2_and_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "store").write_text("")
    (tmp_path / "models.yaml").write_text("models: {x: {engine: steam}}\n")
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    code, states = findings(capsys, "--offline", "--store", str(tmp_path / "store"))
    assert code == 2
    assert "--store" in states["store"]["said"]
    assert "models.yaml, line 1" in states["models.yaml"]["said"]
    assert states["studies"]["state"] == "ok"


def test_it_leaves_nothing_behind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    findings(capsys, "--offline", "--store", str(tmp_path / "fresh"))
    assert not (tmp_path / "fresh").exists()
