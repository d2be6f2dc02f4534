"""What must hold of a call whatever its server replies: without a socket, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2

from contextcliff_dagster.contracts import BudgetError, EngineError
from contextcliff_dagster.inference.engines.base import Decoding, RejectedError, TransportError
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.engines.openai.http_client import Endpoint, _raise_for_status
from contextcliff_dagster.inference.execution.checks import (
    MOST_TIMES,
    OUTPUT_MARGIN,
    PROMPT_MARGIN,
    charge,
    size_of,
)
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.execution.single_request import Answer, ask, judge
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.inference.models.models_file import Price
from contextcliff_dagster.inference.requests.call_plan import Outcome, PlannedCall
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster_tests.support.records.calls import LedgerSample, openai_entry, plan_of
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.any_reply import Case
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread

PRICE = Price(input_usd_per_mtok=500, output_usd_per_mtok=2000, cached_input_usd_per_mtok=50)


class InProcess:
    """The engine, its HTTP client's requests answered by a `Case`: no socket, no ledger."""

    def __init__(self, engine: OpenAIEngine, call: PlannedCall) -> None:
        self.engine, self._call, self._prompt = engine, call, call.prompt()
        self._size = size_of(call, self._prompt, None)
        self._case = Case(200, (), b"", None)
        endpoint = Endpoint.__new__(Endpoint)
        endpoint._response = self._answered  # type: ignore[assignment, method-assign]
        engine._endpoint = endpoint

    @asynccontextmanager
    async def _answered(self, path: str, parts: Any, **_: Any) -> AsyncIterator[httpx2.Response]:
        case = self._case

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(case.body), 700):
                yield case.body[at : at + 700]

        headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in case.headers
        ]
        response = httpx2.Response(case.status, headers=headers, content=pieces())
        await _raise_for_status(response)
        yield response

    async def ends(self, case: Case) -> Outcome | Exception:
        """How the call ends: its outcome, or an error that is foreseen; asserts what must hold."""
        self._case = case
        try:
            answer = await ask(self.engine, self._prompt, Decoding(8))
        except (TransportError, RejectedError, EngineError) as raised:
            error = raised
        else:
            return self._kept(case, answer)
        assert case.text is None, f"{case.why}: the answer is lost ({error})"
        if isinstance(error, TransportError):
            assert (error.retry_after_s or 0) >= 0, case.headers
        else:
            told = b"error" in case.body or "error" in case.why  # the body may be packed
            assert case.status != 200 or told, f"{case.why}: {error}"
        return error

    def _kept(self, case: Case, answer: Answer) -> Outcome:
        outcome = judge(answer, None, self._size, PRICE, 1, 0.0)
        spend = charge(outcome, self._size, PRICE)
        size = self._size
        most = MOST_TIMES * (size.prompt_tokens + size.output_tokens)
        most += PROMPT_MARGIN + OUTPUT_MARGIN
        assert size.least_prompt_tokens <= spend.tokens <= most, f"{case.why}: {spend}"
        assert 0 <= spend.usd <= PRICE.cost_usd(0, most), f"{case.why}: {spend}"
        assert outcome.cost_usd is None or 0 <= outcome.cost_usd < math.inf
        json.dumps([outcome.raw_output, outcome.finish_reason], allow_nan=False).encode()
        for text in (outcome.raw_output, outcome.reasoning, outcome.finish_reason):
            assert "\x00" not in (text or "").encode().decode()
        if case.text is not None:
            assert outcome.raw_output == case.text, f"{case.why}: {outcome.raw_output!r}"
        return outcome


class AnyServer:
    """Answers the completion requests with the cases of a list, one after the other."""

    def __init__(self, script: list[Case]) -> None:
        self.script, self.served = script, 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, _, _ = await wire.read_request(reader)
            if path.endswith("/completions"):
                case = self.script[self.served % len(self.script)]
                self.served += 1
                writer.write(case.on_the_wire())
            else:
                writer.write(wire.error(404, "no list here"))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


BUDGET_USD, DEAREST_USD = 1_000.0, 270.0
"""Of a run; and the most that one reply of `PRICE` can be charged beyond it."""


def served_run(script: list[Case], folder: Path) -> Counter[str]:
    """Measure over a server with this script, one request a call; asserts what must hold, and
    returns how the requests ended."""
    server, ends = AnyServer(script), Counter[str]()
    with on_a_thread(server.handle) as url, Ledger.open(folder / "state.db") as ledger:
        entry = openai_entry(
            url,
            concurrency=1,
            revision="1",
            price=PRICE.model_dump(),
            max_attempts=1,
            breaker_failures=1_000_000,
            timeout_s=20.0,
            quirks={"probes": "omit"},
        )
        plan = plan_of(LedgerSample(1, len(script), max_tokens=100), len(script))
        while server.served < len(script):
            try:
                measure(plan, entry, ledger, RunControl(Budget(usd=BUDGET_USD)))
                break
            except BudgetError:
                break
            except EngineError as error:  # what concerns every call: the next run goes on
                ended = error
            assert "unforeseen" not in str(ended), ended
            ends["run ended"] += 1
        attempts = ledger.read(
            "SELECT call_key, charged_usd, charged_tokens, ended_at FROM attempts"
            " ORDER BY attempt_id"
        )
        kept = ledger.outcomes({key for key, *_ in attempts})
        assert len(attempts) == server.served
        for (key, usd, tokens, ended_at), case in zip(attempts, cycle(script), strict=False):
            assert ended_at, f"{case.why}: the attempt is left open"
            assert usd >= 0, f"{case.why}: {usd}"
            assert tokens >= 0, f"{case.why}: {tokens}"
            if case.text is not None:
                assert kept[key].raw_output == case.text, case.why
        spent = ledger.spent("s", "c")
        assert math.isclose(spent.usd, sum(usd for _, usd, *_ in attempts), abs_tol=1e-6)
        assert spent.usd <= BUDGET_USD + DEAREST_USD
        assert (faults := verify(ledger).faults) == (), faults
        ends["kept answer"] = len(kept)
        ends["failure"] = len(attempts) - len(kept) - ends["run ended"]
    return ends
