"""One small call finds what would be wrong with all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.execution.single_request import Trial, listed_models, try_model
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.dialect_server import DialectServer
from contextcliff_dagster_tests.support.servers.on_a_thread import Handle, on_a_thread
from contextcliff_dagster_tests.support.servers.particular_server import Particular


def tried(handle: Handle, within_s: float = 30, **fields: Any) -> Trial:
    with on_a_thread(handle) as url:
        return asyncio.run(try_model(entry(url, **fields), within_s))


def entry(url: str, **fields: Any) -> ModelEntry:
    return ModelEntry(
        **{"name": "mine", "engine": "openai", "model_id": "m", "base_url": url} | fields
    )


def test_refused_parameters_are_left_out_and_become_quirks() -> None:
    trial = tried(Particular(("temperature", "max_tokens", "stream_options")).handle)
    assert trial.entry.quirks.model_dump(exclude_defaults=True) == {
        "temperature": "omit",
        "max_tokens_parameter": "max_completion_tokens",
        "stream_usage": "omit",
    }
    assert trial.answer.text == "937915"


def test_a_window_in_the_list_of_models_is_one_to_write_down() -> None:
    trial = tried(Particular().handle)
    assert trial.loaded_window == trial.window_tokens == 131072
    assert not trial.reasons
    assert tried(Particular(reasoning=50).handle).reasons


def test_a_list_that_refuses_the_key_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "for-chat-only")
    server = Particular()
    quirks = {"model_list": "omit", "probes": "omit"}
    assert tried(server.handle, api_key_env="KEY", quirks=quirks).answer.text == "937915"
    assert "/v1/models" not in server.paths
    with on_a_thread(server.handle) as url:
        quiet = entry(url, api_key_env="KEY", quirks=quirks)
        assert asyncio.run(listed_models(quiet, 30)) == []
        with pytest.raises(EngineError, match="401: x-api-key"):
            asyncio.run(listed_models(entry(url, api_key_env="KEY"), 30))


class Rooted(DialectServer):
    """Server that has nothing outside /v1."""

    def answer(self, path: str, key: str, body: dict[str, Any]) -> bytes:
        if not path.startswith("/v1/"):
            return wire.error(404, "nothing here")
        return super().answer(path, key, body)


def test_a_wrong_path_is_named_with_the_likely_address() -> None:
    with on_a_thread(Rooted({"kind": "plain"}).handle) as url:
        wrong = entry(url.removesuffix("/v1") + "/api")
        with pytest.raises(
            EngineError, match=rf"does not exist \(status 404\); {url} lists models"
        ):
            asyncio.run(listed_models(wrong, 30))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("401", "asks for a key"),
        ("404", "does not exist"),
        ("html", "does not exist"),
        ("400", "refuses the call"),
    ],
)
def test_what_would_fail_every_call_is_one_sentence(fault: str, words: str) -> None:
    server = DialectServer({"kind": "plain", "faults": {"*": [fault, "always"]}})
    with pytest.raises(EngineError, match=words):
        tried(server.handle)


def test_a_server_that_hangs_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    with pytest.raises(EngineError, match=r"within 0\.3 s; .*--timeout"):
        tried(silent, within_s=0.3)


def test_a_model_that_the_server_does_not_have_is_named_with_those_it_has() -> None:
    with pytest.raises(EngineError, match=r"does not list model 'other'; it lists m, n"):
        tried(Particular().handle, model_id="other")
