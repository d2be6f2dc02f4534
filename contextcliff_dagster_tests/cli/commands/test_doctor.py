"""`doctor` finds what stands in the way and says what to do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread


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


async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Models a and b under /v1; completions there, under /bare/v1, and nothing anywhere else."""
    path, _, _ = await wire.read_request(reader)
    if path == "/v1/models":
        listed = {"data": [{"id": "a"}, {"id": "models/b"}, {"id": 5}]}
        writer.write(wire.head(200) + json.dumps(listed).encode())
    elif path in ("/v1/chat/completions", "/bare/v1/completions"):
        writer.write(wire.error(422, "there is no prompt"))
    elif path.startswith("/page"):
        writer.write(wire.head(200, "text/html") + b"<html>hello</html>")
    else:
        writer.write(wire.error(404, "nothing here"))
    await writer.drain()
    writer.close()


@pytest.mark.parametrize(
    ("model_id", "path", "state", "says"),
    [
        ("a", "/v1", "ok", "answers"),
        ("b", "/v1", "ok", "answers"),
        ("any", "/bare/v1", "ok", "answers"),
        ("c", "/v1", "fault", "does not list model 'c'; it lists a, models/b; correct `model_id`"),
        ("a", "", "fault", "/chat/completions does not exist (status 404); http://HOST/v1 lists"),
        ("a", "/v1/chat/completions", "fault", "http://HOST/v1 lists models: correct `base_url`"),
        ("a", "/v1/v1", "fault", "http://HOST/v1 lists models: correct `base_url`"),
        ("a", "/page/x", "fault", "(status 200); http://HOST/v1 lists models"),
    ],
)
def test_a_server_without_the_model_or_the_path_is_a_fault(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model_id: str,
    path: str,
    state: str,
    says: str,
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    with on_a_thread(server) as url:
        root = url.removesuffix("/v1")
        (tmp_path / "models.yaml").write_text(
            f"models:\n  m: {{engine: openai, model_id: {model_id}, base_url: '{root}{path}'}}\n"
        )
        code, states = findings(capsys)
    assert says.replace("http://HOST", root) in states["model m"]["said"]
    assert (states["model m"]["state"], code) == (state, 2 if state == "fault" else 0)


def test_it_leaves_nothing_behind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    findings(capsys, "--offline", "--store", str(tmp_path / "fresh"))
    assert not (tmp_path / "fresh").exists()
