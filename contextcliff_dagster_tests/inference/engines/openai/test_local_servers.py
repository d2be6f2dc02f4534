"""Servers on this machine are found on their ports, and taken for what they are or for unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from contextcliff_dagster.inference.engines.openai.local_servers import (
    LocalServer,
    find_local_servers,
)
from contextcliff_dagster.inference.execution.single_request import try_model
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.dialect_server import DialectServer
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.virtual_time import run_virtually

KINDS = ("vllm", "llamacpp", "koboldcpp", "nim", "ollama", "lmstudio")


def ports_of(urls: Iterable[str]) -> list[int]:
    return [urlsplit(url).port or 0 for url in urls]


def found(*urls: str) -> list[LocalServer]:
    return asyncio.run(find_local_servers(ports_of(urls), 120))


def test_each_kind_is_told_by_its_answers_and_another_server_is_of_unknown_kind() -> None:
    with ExitStack() as stack:
        kinds = (*KINDS, "plain", "router")
        urls = [
            stack.enter_context(on_a_thread(DialectServer({"kind": kind}).handle)) for kind in kinds
        ]
        servers = found(*urls)
    assert [server.preset for server in servers] == [*KINDS, None, None]
    assert [server.base_url for server in servers] == urls
    assert all(server.models for server in servers)


@pytest.mark.parametrize(
    "fault", ["html", "empty", "list", "garbage", "reset", "404", "500", "redirect"]
)
def test_what_is_no_model_server_is_left_out(fault: str) -> None:
    options = {"kind": "vllm", "faults": {"*": [fault, "always"]}, "redirect": "http://[::1]/"}
    with on_a_thread(DialectServer(options).handle) as url:
        assert found(url) == []


def test_what_answers_to_everything_is_of_unknown_kind() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await wire.read_request(reader)
        writer.write(wire.head(200) + b'{"data": [{"id": "m"}], "version": "1", "models": []}')
        await writer.drain()
        writer.close()

    with on_a_thread(echo) as url:
        assert [server.preset for server in found(url)] == [None]


def test_a_server_that_asks_for_a_key_is_offered_as_that() -> None:
    options = {"kind": "lmstudio", "faults": {"*": ["401", "always"]}}
    with on_a_thread(DialectServer(options).handle) as url:
        (server,) = found(url)
    assert server.needs_key
    assert server.preset is None


def test_silence_costs_no_more_than_the_limit() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def look(ports: list[int]) -> float:
        assert await find_local_servers(ports, 0.3) == []
        return asyncio.get_running_loop().time()

    with ExitStack() as stack:
        urls = [stack.enter_context(on_a_thread(silent)) for _ in range(4)]
        assert run_virtually(look(ports_of(urls))) == pytest.approx(0.3)


@pytest.mark.parametrize("kind", ["ollama", "lmstudio"])
def test_the_window_with_which_a_model_is_loaded_is_found(kind: str) -> None:
    with on_a_thread(DialectServer({"kind": kind, "window": 4096}).handle) as url:
        entry = ModelEntry(name="m", engine="openai", model_id="served", base_url=url)
        trial = asyncio.run(try_model(entry, 120))
    assert trial.loaded_window == trial.window_tokens == 4096
    assert trial.answer.text == "937915"
