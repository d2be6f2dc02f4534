"""Batches are made, found, watched and read through the provider's interface, whatever breaks."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Decoding, RejectedError, TransportError
from contextcliff_dagster.inference.engines.openai import batch_interface
from contextcliff_dagster.inference.engines.openai.batch_interface import (
    BatchInterface,
    GoneError,
    RemoteBatch,
)
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.requests.recipe import Message, Prompt
from contextcliff_dagster.retry import QUESTIONS
from contextcliff_dagster_tests.support.records.calls import openai_entry
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.batch_server import (
    ALWAYS,
    BatchServer,
    batch_server,
)
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.servers.recording_server import recorded

T = TypeVar("T")
KEY = "canary-5b1e88d03a"
CHAT = "/v1/chat/completions"
MINE = {"run": "r1", "part": "2"}
MB = 1 << 20


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions are repeated without a wait; the key is set."""
    monkeypatch.setattr(batch_interface, "QUESTIONS", replace(QUESTIONS, base_s=0.0))
    monkeypatch.setenv("BATCH_KEY", KEY)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BatchServer]:
    with batch_server(tmp_path / "provider", key=KEY) as running:
        yield running


def through(url: str, use: Callable[[BatchInterface], Awaitable[T]], **changes: Any) -> T:
    """What ``use`` returns for the interface of a provider at ``url``."""

    async def work() -> T:
        asked_nothing_else = {"model_list": "omit", "probes": "omit"}
        entry = openai_entry(url, api_key_env="BATCH_KEY", quirks=asked_nothing_else, **changes)
        engine = OpenAIEngine(entry)
        await engine.start()
        try:
            return await use(engine.batches())
        finally:
            await engine.stop()

    return asyncio.run(work())


def request_line(number: int, **changes: Any) -> dict[str, Any]:
    body = {"model": "reference-short", "messages": [{"role": "user", "content": f"q{number}"}]}
    return {"custom_id": f"c{number}", "method": "POST", "url": CHAT, "body": body, **changes}


def written(tmp_path: Path, *lines: object) -> Path:
    file = tmp_path / "input.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


async def started(
    batches: BatchInterface, file: Path, metadata: Mapping[str, str] = MINE
) -> RemoteBatch:
    return await batches.create(await batches.upload(file, "mine.jsonl"), CHAT, "24h", metadata)


async def read_all(batches: BatchInterface, file_id: str | None) -> list[bytes]:
    assert file_id is not None
    return [line async for line in batches.lines(file_id)]


def ended(server: BatchServer, file: Path) -> RemoteBatch:
    """A batch of the file's requests after it has ended."""

    async def use(batches: BatchInterface) -> RemoteBatch:
        batch = await started(batches, file)
        await asyncio.to_thread(server.advance, 3)
        return await batches.retrieve(batch.id)

    return through(server.url, use)


def output_of(server: BatchServer, batch: RemoteBatch) -> list[bytes]:
    return through(server.url, lambda batches: read_all(batches, batch.output_file))


def test_a_batch_goes_from_its_upload_to_its_results(tmp_path: Path) -> None:
    file = written(tmp_path, *map(request_line, range(3)))

    async def use(batches: BatchInterface) -> tuple[list[str], RemoteBatch, list[bytes]]:
        batch = await started(batches, file)
        statuses = [batch.status]
        while not batch.has_ended:
            batch = await batches.retrieve(batch.id)
            statuses.append(batch.status)
        return statuses, batch, await read_all(batches, batch.output_file)

    with batch_server(tmp_path / "provider", str.upper, polls_a_step=1) as server:
        statuses, batch, lines = through(server.url, use)
    assert statuses == ["validating", "in_progress", "finalizing", "completed"]
    assert (batch.completed, batch.failed, batch.reason) == (3, 0, "")
    assert batch.error_file is None
    (kept,) = server.batches()
    assert kept["metadata"] == MINE
    assert server.content(kept["input_file_id"]).read_bytes() == file.read_bytes()
    results = {r["custom_id"]: r["response"]["body"]["choices"][0] for r in map(json.loads, lines)}
    assert {name: r["message"]["content"] for name, r in results.items()} == {
        "c0": "Q0",
        "c1": "Q1",
        "c2": "Q2",
    }
    assert [bill["custom_id"] for bill in server.bills()] == ["c0", "c1", "c2"]


def test_each_request_has_the_headers_of_the_entry_and_no_others(
    server: BatchServer, tmp_path: Path
) -> None:
    file = written(tmp_path, request_line(0))

    async def use(batches: BatchInterface) -> None:
        batch = await started(batches, file)
        await batches.retrieve(batch.id)
        await batches.find(MINE)
        await batches.cancel(batch.id)
        await read_all(batches, server.batches()[0]["input_file_id"])

    through(server.url, use, extra_headers={"X-Title": "mine"})
    usual = {"host", "accept", "accept-encoding", "connection", "user-agent", "content-type"}
    assert len(server.seen) == 6
    for _, _, headers in server.seen:
        assert (headers["authorization"], headers["x-title"]) == (f"Bearer {KEY}", "mine")
        assert headers["user-agent"] == "contextcliff"
        assert headers.keys() <= usual | {"authorization", "x-title", "content-length"}


@pytest.mark.parametrize("query", ["api-version=1", "key=secret-of-the-address"])
def test_a_query_of_the_address_is_part_of_each_request(
    tmp_path: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADDRESS_QUERY", query)
    file = written(tmp_path, request_line(0))

    async def use(batches: BatchInterface) -> RemoteBatch | None:
        await started(batches, file)
        assert await read_all(batches, server.batches()[0]["input_file_id"])
        return await batches.find(MINE)

    with batch_server(tmp_path / "provider") as server:
        assert through(server.url + "?${ADDRESS_QUERY}", use) is not None
    assert len(server.seen) == 4
    assert all(target.endswith(query) for _, target, _ in server.seen)


@pytest.mark.parametrize(
    ("fault", "answered", "others"), [("expired", 2, 3), ("cancelled", 2, 3), ("failed", 0, 0)]
)
def test_a_batch_that_does_not_complete_has_the_results_that_there_are(
    server: BatchServer, tmp_path: Path, fault: str, answered: int, others: int
) -> None:
    server.faults[fault] = 1
    batch = ended(server, written(tmp_path, *map(request_line, range(5))))
    assert (batch.status, batch.has_ended) == (fault, True)
    assert (batch.output_file is not None, batch.error_file is not None) == (answered > 0,) * 2
    if answered:
        assert len(output_of(server, batch)) == answered
        lines = through(server.url, lambda batches: read_all(batches, batch.error_file))
        assert [json.loads(line)["response"] for line in lines] == [None] * others
    reason = "token_limit_exceeded: Too many tokens for [hidden]."
    assert batch.reason == (reason if fault == "failed" else "")
    assert len(server.bills()) == answered


def test_a_batch_that_fails_its_validation_names_the_lines(
    server: BatchServer, tmp_path: Path
) -> None:
    good, bad = request_line(0), {"model": "another", "messages": []}
    file = written(
        tmp_path, good, good, request_line(2, url="/v1/completions"), request_line(3, method="GET")
    )
    with file.open("a") as lines:
        lines.write(f"{{broken\n{json.dumps(request_line(4, body=bad))}\n")
        lines.write(json.dumps(request_line(5, body={})))
    batch = ended(server, file)
    assert (batch.status, batch.output_file) == ("failed", None)
    wrong = {2: "used twice", 3: "url", 4: "method", 5: "JSON", 6: "one model", 7: "no model"}
    sentences = batch.reason.split("; ")
    assert len(sentences) == len(wrong)
    for sentence, (line, word) in zip(sentences, wrong.items(), strict=True):
        assert sentence.startswith(f"line {line}: ")
        assert word in sentence
    assert server.bills() == []


@pytest.mark.parametrize("fault", ["error_line", "error_status"])
def test_requests_with_errors_are_in_a_file_of_their_own(
    server: BatchServer, tmp_path: Path, fault: str
) -> None:
    server.faults[fault] = 1
    batch = ended(server, written(tmp_path, *map(request_line, range(3))))
    assert (batch.status, batch.completed, batch.failed) == ("completed", 2, 1)
    lines = through(server.url, lambda batches: read_all(batches, batch.error_file))
    assert [json.loads(line)["custom_id"] for line in lines] == ["c0"]
    assert [bill["custom_id"] for bill in server.bills()] == ["c1", "c2"]


@pytest.mark.parametrize(
    ("fault", "ids"),
    [
        ("reordered", ["c2", "c1", "c0"]),
        ("unknown_id", ["c0", "c1", "c2", "of-nobody"]),
        ("status_400", ["c0", "c1", "c2"]),
    ],
)
def test_results_are_handed_on_as_they_are(
    server: BatchServer, tmp_path: Path, fault: str, ids: list[str]
) -> None:
    server.faults[fault] = 1
    batch = ended(server, written(tmp_path, *map(request_line, range(3))))
    results = [json.loads(line) for line in output_of(server, batch)]
    assert [result["custom_id"] for result in results] == ids
    bad = [r["custom_id"] for r in results if r["response"]["status_code"] == 400]
    assert bad == (["c0"] if fault == "status_400" else [])
    assert len(server.bills()) == 3 - len(bad)


def test_the_last_line_of_a_cut_file_is_incomplete_and_the_others_are_right(
    server: BatchServer, tmp_path: Path
) -> None:
    server.faults["truncated"] = 1
    batch = ended(server, written(tmp_path, *map(request_line, range(3))))
    *whole, last = output_of(server, batch)
    assert [json.loads(line)["custom_id"] for line in whole] == ["c0", "c1"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(last)


@pytest.mark.parametrize(
    "content",
    [b"", b"a", b"a\n", b"a\nb", b"\na\n\n", b"x" * 40_000 + b"\n" + b"y" * 70_000 + b"\nz"],
)
def test_lines_are_those_of_the_file(server: BatchServer, content: bytes) -> None:
    server.content("file-7").write_bytes(content)
    lines = through(server.url, lambda batches: read_all(batches, "file-7"))
    assert lines == content.removesuffix(b"\n").split(b"\n") if content else lines == []


def test_a_connection_that_breaks_in_a_file_is_an_error_after_the_lines_before(
    server: BatchServer,
) -> None:
    server.content("file-7").write_bytes(b"line\n" * 10_000)
    server.faults["content_cut"] = 1
    got: list[bytes] = []

    async def use(batches: BatchInterface) -> None:
        async for line in batches.lines("file-7"):
            got.append(line)

    with pytest.raises(TransportError, match="broke while the answer came"):
        through(server.url, use)
    assert 0 < len(got) < 10_000
    assert set(got) == {b"line"}
    assert server.count("GET", "/content") == 1


def test_a_file_may_be_left_in_the_middle(server: BatchServer) -> None:
    server.content("file-7").write_bytes(b"line\n" * 1_000_000)

    async def use(batches: BatchInterface) -> bytes:
        lines = batches.lines("file-7")
        first = await anext(lines)
        await lines.aclose()
        return first

    assert through(server.url, use) == b"line"


@pytest.mark.parametrize("status", [404, 410])
def test_a_file_that_is_gone_is_told_from_an_error(status: int) -> None:
    gone = wire.error(status, f"no such file, {KEY}")
    with recorded({"": gone}) as (url, seen), pytest.raises(GoneError) as caught:
        through(url, lambda batches: read_all(batches, "file-7"))
    assert "file-7" in str(caught.value)
    assert KEY not in str(caught.value)
    assert len(seen.seen) == 1


def test_a_line_without_an_end_is_refused(
    server: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_interface, "MOST_OF_A_REPLY", 100_000)
    server.content("file-7").write_bytes(b"x" * 90_000 + b"\n" + b"x" * 300_000)
    with pytest.raises(TransportError, match="the server sent over") as caught:
        through(server.url, lambda batches: read_all(batches, "file-7"))
    assert not caught.value.again


def test_the_newest_batch_with_these_metadata_is_found_on_any_page(
    server: BatchServer, tmp_path: Path
) -> None:
    file = written(tmp_path, request_line(0))

    async def use(batches: BatchInterface) -> tuple[RemoteBatch | None, ...]:
        file_id = await batches.upload(file, "x.jsonl")
        assert await batches.find(MINE) is None
        for number in range(205):
            more = MINE if number in (1, 3) else {"part": "2"}
            await batches.create(file_id, CHAT, "24h", {"n": str(number), **more})
        return await batches.find(MINE), await batches.find({**MINE, "n": "1"})

    newest, oldest = through(server.url, use)
    assert newest is not None
    assert oldest is not None
    numbers = {batch["id"]: batch["metadata"]["n"] for batch in server.batches()}
    assert (numbers[newest.id], numbers[oldest.id]) == ("3", "1")
    assert server.count("GET", "/batches") == 1 + 3 + 3
    assert through(server.url, lambda batches: batches.find({"run": "r2"})) is None


@pytest.mark.parametrize("has_more", [True, None])
def test_a_list_without_an_end_is_read_in_part(has_more: bool | None) -> None:
    def page(before: int) -> bytes:
        ids = [before, 7] if has_more else [1, 2]  # the second ignores where it is to go on
        data = [{"id": f"b{number}", "status": "completed"} for number in ids]
        if has_more:
            data.reverse()
        return wire.head(200) + json.dumps({"data": data, "has_more": has_more}).encode()

    with recorded({"/batches": page}) as (url, seen):
        assert through(url, lambda batches: batches.find(MINE)) is None
    assert len(seen.seen) == (20 if has_more else 2)


@pytest.mark.parametrize("body", [b"{}", b"<html>", b'{"data": null}', b""])
def test_what_is_no_list_does_not_mean_that_there_is_no_batch(body: bytes) -> None:
    with (
        recorded({"": wire.head(200) + body}) as (url, _),
        pytest.raises(TransportError, match="not a list"),
    ):
        through(url, lambda batches: batches.find(MINE))


def test_a_batch_whose_creation_was_not_answered_is_found(
    server: BatchServer, tmp_path: Path
) -> None:
    server.faults["create_unanswered"] = 1
    file = written(tmp_path, request_line(0))
    with pytest.raises(TransportError) as caught:
        through(server.url, lambda batches: started(batches, file))
    assert caught.value.maybe_paid
    assert server.count("POST", "/batches") == 1
    batch = through(server.url, lambda batches: batches.find(MINE))
    assert batch is not None
    assert [kept["id"] for kept in server.batches()] == [batch.id]


QUESTIONED: Mapping[str, Callable[[BatchInterface], Awaitable[object]]] = {
    "retrieve": lambda batches: batches.retrieve("batch_000002"),
    "list": lambda batches: batches.find(MINE),
    "content": lambda batches: read_all(batches, "file-000001"),
}


@pytest.mark.parametrize("status", [429, 500])
@pytest.mark.parametrize("action", QUESTIONED)
def test_a_question_is_repeated_until_it_is_answered_or_given_up(
    server: BatchServer, tmp_path: Path, action: str, status: int
) -> None:
    file = written(tmp_path, request_line(0))
    through(server.url, lambda batches: started(batches, file))
    server.faults[f"{action}_{status}"] = 2
    before = len(server.seen)
    assert through(server.url, QUESTIONED[action])
    assert len(server.seen) - before == 3
    server.faults[f"{action}_{status}"] = ALWAYS
    with pytest.raises(TransportError) as caught:
        through(server.url, QUESTIONED[action])
    assert caught.value.status == status
    assert len(server.seen) - before == 6
    assert KEY not in str(caught.value)


ONCE: Mapping[str, Callable[[BatchInterface, Path], Awaitable[object]]] = {
    "upload": lambda batches, file: batches.upload(file, "x.jsonl"),
    "create": lambda batches, file: batches.create("file-000001", CHAT, "24h", MINE),
    "cancel": lambda batches, file: batches.cancel("batch_000002"),
}


@pytest.mark.parametrize("action", ONCE)
def test_what_makes_something_is_sent_once(
    server: BatchServer, tmp_path: Path, action: str
) -> None:
    file = written(tmp_path, request_line(0))
    through(server.url, lambda batches: started(batches, file))
    before = len(server.seen)
    for name, kind in {"500": TransportError, "429": TransportError, "401": EngineError}.items():
        server.faults[f"{action}_{name}"] = 1
        with pytest.raises(kind) as caught:
            through(server.url, lambda batches: ONCE[action](batches, file))
        assert KEY not in str(caught.value)
    assert len(server.seen) - before == 3


@pytest.mark.parametrize("action", [*QUESTIONED, *ONCE])
@pytest.mark.parametrize("status", [400, 401])
def test_a_refusal_for_good_is_not_repeated_and_names_no_key(
    server: BatchServer, tmp_path: Path, action: str, status: int
) -> None:
    file = written(tmp_path, request_line(0))
    server.faults[f"{action}_{status}"] = ALWAYS
    use = QUESTIONED.get(action) or (lambda batches: ONCE[action](batches, file))
    with pytest.raises(RejectedError if status == 400 else EngineError) as caught:
        through(server.url, use)
    assert str(status) in str(caught.value)
    assert KEY not in str(caught.value)
    assert len(server.seen) == 1


def test_a_key_that_is_not_set_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BATCH_KEY")
    with pytest.raises(EngineError, match="BATCH_KEY, which is not set"):
        through("http://127.0.0.1:9/v1", lambda batches: batches.retrieve("b"))


def test_a_server_that_is_not_there_and_one_that_says_nothing_are_transport_errors() -> None:
    with pytest.raises(TransportError, match="no connection"):
        through("http://127.0.0.1:9/v1", lambda batches: batches.retrieve("b"))
    with recorded({"": b""}) as (url, _), pytest.raises(TransportError, match="broke before"):
        through(url, lambda batches: batches.create("f", CHAT, "24h", {}))


def test_a_redirect_is_not_followed_with_the_key() -> None:
    with recorded() as (elsewhere, other):
        away = wire.head(307, extra=f"Location: {elsewhere}/files\r\n")
        with recorded({"": away}) as (url, _), pytest.raises(EngineError, match="redirects"):
            through(url, lambda batches: read_all(batches, "file-7"))
    assert other.connections == 0


def test_a_batch_is_cancelled_and_keeps_what_it_answered(
    server: BatchServer, tmp_path: Path
) -> None:
    file = written(tmp_path, *map(request_line, range(4)))

    async def use(batches: BatchInterface) -> tuple[RemoteBatch, RemoteBatch]:
        batch = await started(batches, file)
        await asyncio.to_thread(server.advance)
        cancelling = await batches.cancel(batch.id)
        await asyncio.to_thread(server.advance)
        return cancelling, await batches.retrieve(batch.id)

    cancelling, cancelled = through(server.url, use)
    assert (cancelling.status, cancelling.has_ended) == ("cancelling", False)
    assert (cancelled.status, cancelled.has_ended) == ("cancelled", True)
    assert len(output_of(server, cancelled)) == len(server.bills()) == 2
    with pytest.raises(TransportError, match="cannot be cancelled"):
        through(server.url, lambda batches: batches.cancel(cancelled.id))


STRANGE = {
    "id": "b/1",
    "status": "COMPLETED",
    "input_file_id": 3,
    "output_file_id": "",
    "metadata": ["x"],
    "request_counts": {"total": "many", "completed": -1, "failed": True},
    "errors": [{"code": "c1"}, "x", {"message": f"the key was {KEY}", "line": "2"}, {}],
}


@pytest.mark.parametrize("missing", [(), ("request_counts", "errors", "metadata")])
def test_of_a_strange_batch_what_can_be_used_is_used(missing: tuple[str, ...]) -> None:
    told = {name: value for name, value in STRANGE.items() if name not in missing}
    with recorded({"": wire.head(201) + json.dumps(told).encode()}) as (url, seen):
        batch = through(url, lambda batches: batches.retrieve("b/1?x"))
    reason = "" if missing else "c1; the key was [hidden]; no reason given"
    assert batch == RemoteBatch("b/1", "completed", None, None, 0, 0, reason)
    assert seen.seen[0][0] == "/v1/batches/b%2F1%3Fx"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"id": 1}', b'{"id": "b"}'])
def test_an_answer_that_is_no_batch_or_file_is_a_transport_error(
    tmp_path: Path, body: bytes
) -> None:
    file = written(tmp_path, request_line(0))
    with recorded({"": wire.head(200) + body}) as (url, _):
        with pytest.raises(TransportError, match="not a batch") as caught:
            through(url, lambda batches: batches.create("f", CHAT, "24h", {}))
        assert caught.value.maybe_paid
        if body != b'{"id": "b"}':
            with pytest.raises(TransportError, match="names no file"):
                through(url, lambda batches: batches.upload(file, "x.jsonl"))


def test_a_file_that_cannot_be_read_here_is_no_error_of_the_provider(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        through("http://127.0.0.1:9/v1", lambda batches: batches.upload(tmp_path / "no", "x"))


def test_a_long_file_is_sent_and_read_in_little_memory(tmp_path: Path) -> None:
    file, size = tmp_path / "long.jsonl", 30 * MB
    line = b"x" * (1 << 10) + b"\n"
    with file.open("wb") as lines:
        for _ in range(size // len(line)):
            lines.write(line)
    received = Counter[str]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST"):
            left = int(head.lower().partition(b"content-length: ")[2].split()[0])
            while left:
                piece = await reader.read(min(left, 1 << 16))
                left -= len(piece)
                received["bytes"] += len(piece)
            writer.write(wire.head(200) + b'{"id": "file-1"}')
        else:
            writer.write(wire.head(200, "text/plain"))
            with file.open("rb") as content:
                while piece := content.read(1 << 16):
                    writer.write(piece)
                    await writer.drain()
        await writer.drain()
        writer.close()

    async def use(batches: BatchInterface) -> int:
        assert await batches.upload(file, "x.jsonl") == "file-1"
        return sum([len(line) + 1 async for line in batches.lines("file-1")])

    with on_a_thread(handle) as url:
        through(url, lambda batches: batches.upload(file, "x"))  # what the first request loads
        tracemalloc.start()
        try:
            read = through(url, use)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert read == file.stat().st_size
    assert received["bytes"] > 2 * read
    assert peak < 20 * MB


def test_an_upload_that_gets_stuck_is_given_up(tmp_path: Path) -> None:
    async def stuck(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    file = written(tmp_path, request_line(0))
    with (
        on_a_thread(stuck) as url,
        pytest.raises(TransportError, match="did not answer in time") as caught,
    ):
        through(url, lambda batches: batches.upload(file, "x.jsonl"), timeout_s=0.2)
    assert caught.value.kind == "timeout"


def test_the_imitation_goes_on_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "provider"
    file = written(tmp_path, *map(request_line, range(2)))
    with batch_server(folder) as server:
        batch = through(server.url, lambda batches: started(batches, file))
        server.advance(2)
    with batch_server(folder) as server:
        server.advance()
        batch = through(server.url, lambda batches: batches.retrieve(batch.id))
        assert (batch.status, len(output_of(server, batch))) == ("completed", 2)
        server.advance()
        assert len(server.bills()) == 2
        other = through(server.url, lambda batches: started(batches, file))
        assert other.id != batch.id


def test_the_imitation_serves_an_engine_too(server: BatchServer) -> None:
    async def call() -> tuple[str, Any]:
        engine = OpenAIEngine(openai_entry(server.url, api_key_env="BATCH_KEY"))
        await engine.start()
        answer = await ask(engine, Prompt("chat", (Message("user", "q1"),)), Decoding(8))
        await engine.stop()
        return answer.text, answer.usage

    text, usage = asyncio.run(call())
    assert text == "echo of q1"
    assert server.bills() == [
        {
            "custom_id": None,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
        }
    ]
