"""Calls that an engine holds until the test lets them go: no clock decides what is in flight."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from contextcliff_dagster.inference.engines.base import Decoding, Delta
from contextcliff_dagster.inference.engines.reference import ReferenceEngine
from contextcliff_dagster.inference.execution.measure import CallRunner
from contextcliff_dagster.inference.requests.recipe import Prompt

PATIENCE_S = 120.0
"""After so long a held call fails: only a run that hangs gets there."""


def hold_until_halted(
    monkeypatch: pytest.MonkeyPatch, is_held: Callable[[str, Prompt], bool]
) -> None:
    """Answer no call of a reference model that ``is_held`` (model, prompt) before the run halts.

    Once a run was halted, calls are answered as ever, those of later runs too.
    """
    stream, halt = ReferenceEngine.stream, CallRunner.halt
    halted = threading.Event()

    async def held(
        self: ReferenceEngine, prompt: Prompt, decoding: Decoding
    ) -> AsyncIterator[Delta]:
        if is_held(self._entry.name, prompt):
            assert await asyncio.to_thread(halted.wait, PATIENCE_S), "the run was never halted"
        async for delta in stream(self, prompt, decoding):
            yield delta

    def let_go(self: CallRunner, by_user: bool = False) -> None:
        halt(self, by_user)
        halted.set()

    monkeypatch.setattr(ReferenceEngine, "stream", held)
    monkeypatch.setattr(CallRunner, "halt", let_go)


@dataclass(frozen=True)
class Gate:
    """How many calls a server may answer, in a file; `answer_through` keeps to it over there."""

    path: Path

    def let(self, calls: int) -> None:
        """Answer no more than the first ``calls`` calls; the others stay in flight."""
        part = self.path.with_suffix(".part")
        part.write_text(str(calls))
        part.replace(self.path)

    def open(self) -> None:
        """Answer every call."""
        self.let(1 << 30)


def answer_through(gate: Path) -> None:
    """In a server's own process: answer the n-th call once ``gate`` names n or more."""
    stream, numbers = ReferenceEngine.stream, itertools.count(1)

    async def gated(
        self: ReferenceEngine, prompt: Prompt, decoding: Decoding
    ) -> AsyncIterator[Delta]:
        number = next(numbers)
        while int(gate.read_text()) < number:
            await asyncio.sleep(0.01)
        async for delta in stream(self, prompt, decoding):
            yield delta

    ReferenceEngine.stream = gated  # type: ignore[method-assign]
