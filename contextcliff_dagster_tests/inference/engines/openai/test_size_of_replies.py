"""A reply may be as long as its request explains: what is longer is cut or refused, in little
memory."""

from __future__ import annotations

import asyncio
import gc
import json
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.engines.openai import engine as openai_engine
from contextcliff_dagster.inference.engines.openai.http_client import MOST_OF_A_REPLY
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.execution.single_request import CHARS_A_TOKEN, MORE_CHARS
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.telemetry import RunSummary
from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    LedgerSample,
    openai_entry,
    plan_of,
)
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread

ONE = LedgerSample(1, 1)
KEPT_CHARS = CHARS_A_TOKEN * RECIPE.max_output_tokens + MORE_CHARS
Body = Callable[[], AsyncIterator[bytes]]


def peak_mb() -> float:
    """The most memory that this process has had since `forget_peak`."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


async def endless(piece: bytes, first: bytes = b"") -> AsyncIterator[bytes]:
    """Up to 4 GB."""
    yield first
    piece *= max(1, 65_536 // len(piece))
    for _ in range(1 << 16):
        yield piece


async def bomb(first: bytes, filling: bytes, mb: int) -> AsyncIterator[bytes]:
    """``mb`` megabytes of ``filling``, compressed by gzip."""
    packer = zlib.compressobj(9, wbits=31)
    yield packer.compress(first)
    block = filling * ((1 << 20) // len(filling))
    for _ in range(mb):
        if piece := packer.compress(block):
            yield piece
    yield packer.flush()


async def whole() -> AsyncIterator[bytes]:
    yield wire.ANSWER[len(wire.STREAM) :] + wire.DONE


class Sender:
    """Sends ``body`` to each request for a completion, or to all."""

    def __init__(self, head: bytes, body: Body, *, to_all: bool = False) -> None:
        self._head, self._body, self._to_all = head, body, to_all
        self.served = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, _, _ = await wire.read_request(reader)
            if not self._to_all and not path.endswith("/completions"):
                writer.write(wire.error(404, "no list here"))
                await writer.drain()
                return
            self.served += 1
            writer.write(self._head)
            async for piece in self._body():
                writer.write(piece)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def run(tmp_path: Path, sender: Sender, **changes: Any) -> tuple[RunSummary, list[dict[str, Any]]]:
    with on_a_thread(sender.handle) as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=1, revision="1", timeout_s=240.0, **changes)
        plan = plan_of(ONE, 1)
        summary = measure(plan, entry, ledger)
        return summary, prediction_rows(plan, entry.name, ledger)


GZIP = wire.head(200, "text/event-stream", "Content-Encoding: gzip\r\n")
GZIP_JSON = wire.head(200, "application/json", "Content-Encoding: gzip\r\n")
OVERSIZED = {
    "a stream that unpacks to 300 MB": (GZIP, lambda: bomb(b"data: {", b" ", 300)),
    "an object that unpacks to 300 MB": (GZIP_JSON, lambda: bomb(b'{"choices": "', b"x", 300)),
    "one line without an end": (wire.STREAM, lambda: endless(b"x", b'data: {"a": "')),
    "signs of life without an end": (wire.STREAM, lambda: endless(b": still here\n\n")),
    "blanks without an end": (wire.STREAM, lambda: endless(b" ")),
    "an object without an end": (wire.head(200), lambda: endless(b"x", b'{"choices": "')),
}


@pytest.mark.parametrize("case", OVERSIZED)
def test_a_reply_that_no_answer_explains_is_not_bought_twice(tmp_path: Path, case: str) -> None:
    (tmp_path / "first").mkdir()
    run(tmp_path / "first", Sender(wire.STREAM, whole))  # what the first of all runs loads
    sender = Sender(*OVERSIZED[case])
    gc.collect()
    forget_peak()
    before = peak_mb()
    summary, rows = run(tmp_path, sender)
    assert peak_mb() - before < 6 * MOST_OF_A_REPLY / 2**20
    assert (sender.served, summary.transport_errors, summary.maybe_paid) == (1, 1, 1)
    assert rows[0]["no_answer"] == "transport_error"
    assert "oversized: the server sent over" in rows[0]["error"]


@pytest.mark.parametrize("name", ["content", "reasoning_content"])
def test_an_answer_without_an_end_is_kept_up_to_what_its_limit_allows(
    tmp_path: Path, name: str
) -> None:
    chunk = wire.chunk(None, **{name: "na " * 20})
    sender = Sender(wire.STREAM, lambda: endless(chunk, wire.chunk("937915 ")))
    price = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 1000}
    summary, rows = run(tmp_path, sender, price=price)
    row = rows[0]
    assert (sender.served, summary.answered, summary.overlong) == (1, 1, 1)
    assert row["raw_output"].startswith("937915 ")
    assert len(row["raw_output"]) == (KEPT_CHARS if name == "content" else len("937915 "))
    assert (row["no_answer"], row["finish_reason"]) == (None, "length")
    assert "the server ignores the limit" in row["error"]
    with Ledger.open(tmp_path / "state.db") as ledger:
        reserved = RECIPE.max_output_tokens / 1000
        assert ledger.spent("s", "c").usd > 10 * reserved, "more was written than was reserved"


@pytest.mark.parametrize("last", [wire.DONE, b"", b"data: {broken\n\n", wire.event({"error": "x"})])
def test_what_comes_after_the_end_of_an_answer_costs_no_answer(tmp_path: Path, last: bytes) -> None:
    sender = Sender(wire.STREAM, lambda: endless(b"x", wire.ANSWER[len(wire.STREAM) :] + last))
    summary, rows = run(tmp_path, sender)
    assert (sender.served, summary.answered, rows[0]["raw_output"]) == (1, 1, "937915")


def test_an_answer_whose_connection_stays_open_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_engine, "LAST_SECONDS", 0.1)

    async def held() -> AsyncIterator[bytes]:
        yield wire.ANSWER[len(wire.STREAM) :]
        await asyncio.Event().wait()

    sender = Sender(wire.STREAM, held)
    summary, rows = run(tmp_path, sender)
    assert (sender.served, summary.answered, rows[0]["raw_output"]) == (1, 1, "937915")


@pytest.mark.parametrize("status", [400, 500])
def test_an_error_without_an_end_is_read_in_part(tmp_path: Path, status: int) -> None:
    sender = Sender(wire.head(status), lambda: endless(b"no ", b'{"error": "'))
    summary, rows = run(tmp_path, sender, max_attempts=1)
    assert summary.transport_errors == 1
    assert len(rows[0]["error"]) < 5_000


def test_a_list_of_models_without_an_end_is_one_sentence(tmp_path: Path) -> None:
    sender = Sender(wire.head(200), lambda: endless(b"x", b'{"data": "'), to_all=True)
    with pytest.raises(EngineError, match="the server sent over"):
        run(tmp_path, sender)
    assert sender.served == 1


def test_a_whole_reply_as_long_as_its_limit_allows_is_read(tmp_path: Path) -> None:
    text = "word " * 200_000
    choice = {"message": {"content": text}, "finish_reason": "stop"}

    async def long() -> AsyncIterator[bytes]:
        yield json.dumps({"choices": [choice]}).encode()

    summary, rows = run(tmp_path, Sender(wire.head(200), long))
    assert (summary.answered, rows[0]["raw_output"]) == (1, text[:KEPT_CHARS])


def test_a_count_of_tokens_without_an_end_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    sender = Sender(wire.head(200), lambda: endless(b"1,", b'{"tokens": ['), to_all=True)
    with (
        on_a_thread(sender.handle) as url,
        pytest.raises(StudyError, match=r"sends more than 16,777,216 bytes"),
    ):
        open_tokenizer(f"server:{url}")
    assert sender.served == 1
