"""A sample of warehouse ledgers in bins, in the shape of a manifest; no files needed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import CallPlan
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.reference.warehouse_documents import iter_ledgers
from contextcliff_dagster_tests.support.held_calls import Gate
from contextcliff_dagster_tests.support.servers.dialect_server import DialectServer
from contextcliff_dagster_tests.support.servers.faulty_server import FaultyServer
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.servers.unreliable_server import UnreliableServer

RECIPE = Recipe(template="{document}{question}", max_output_tokens=8)


@dataclass(frozen=True)
class Sample:
    example: Example
    length_tokens: int
    bin: str
    rank: int


class LedgerSample:
    """`n` documents a bin, bins by quantiles of length."""

    def __init__(
        self, bins: int = 3, n: int = 4, *, max_tokens: int = 600, seed: int = 0, questions: int = 1
    ) -> None:
        ledgers = list(iter_ledgers(seed, bins * n, 39, max_tokens, questions_per_level=questions))
        ledgers.sort(key=lambda ledger: ledger.length_tokens)
        self.bins = [f"b{number:02d}" for number in range(bins)]
        self._texts: dict[str, str] = {}
        self._planned: dict[str, list[Sample]] = {name: [] for name in self.bins}
        rng = np.random.default_rng(seed)
        for number, name in enumerate(self.bins):
            mine = ledgers[number * n : (number + 1) * n]
            for index in rng.permutation(len(mine)).tolist():
                ledger = mine[index]
                document_id = hashlib.sha256(ledger.text.encode()).hexdigest()
                self._texts[document_id] = ledger.text
                for question in [q for q in ledger.questions if q.level == 1]:
                    rank = len(self._planned[name])
                    example = Example(
                        f"{name}-{rank}",
                        document_id,
                        question.question,
                        question.answers,
                        question.task,
                        {"level": 1, "evidence_position": question.evidence_position},
                    )
                    self._planned[name].append(Sample(example, ledger.length_tokens, name, rank))

    def planned(self, bin: str, n: int) -> list[Sample]:
        return [sample for sample in self._planned[bin] if sample.rank < n]

    def document_text(self, document_id: str) -> str:
        return self._texts[document_id]


def plan_of(
    source: Any,
    n: int,
    recipe: Recipe = RECIPE,
    *,
    study: str = "s",
    campaign: str = "c",
    bins: Sequence[str] | None = None,
) -> CallPlan:
    """The first ``n`` examples of each of ``bins``, of all bins of ``source`` when None."""
    bins = source.bins if bins is None else bins
    return CallPlan(study=study, campaign=campaign, source=source, recipe=recipe, bins=bins, n=n)


def reference_entry(name: str = "reference-short", **changes: object) -> ModelEntry:
    return ModelEntry.model_validate(
        {"name": name, "engine": "reference", "window_tokens": 8192, **changes}
    )


def openai_entry(base_url: str, name: str = "remote", **changes: object) -> ModelEntry:
    values = {
        "name": name,
        "engine": "openai",
        "model_id": "reference-short",
        "base_url": base_url,
        **changes,
    }
    return ModelEntry.model_validate(values)


@contextmanager
def running(*arguments: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """A server in a process of its own that prints its base URL first; yields that URL."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(120)


@contextmanager
def reference_server(
    name: str = "reference-short",
    log: Path | None = None,
    delay_ms: float = 0,
    port: int = 0,
    gate: Gate | None = None,
) -> Iterator[str]:
    """`contextcliff serve`, as a separate process; ``gate`` decides which calls it answers."""
    gated = "from contextcliff_dagster_tests.support.held_calls import answer_through;"
    code = (
        "import sys; from pathlib import Path;"
        f"{f'{gated} answer_through(Path({str(gate.path)!r}));' if gate else ''}"
        "from contextcliff_dagster.inference.server import Access, serve;"
        f"serve({name!r}, Access(port={port}), delay_ms={delay_ms},"
        f" request_log=Path({str(log)!r}) if {log is not None} else None,"
        " on_ready=lambda url: print(url, flush=True))"
    )
    with running("-c", code) as url:
        yield url


@contextmanager
def faulty_server(script: list[str], log: Path | None = None) -> Iterator[str]:
    """An endpoint that behaves as ``script`` says."""
    with on_a_thread(FaultyServer(script, log).handle) as url:
        yield url


@contextmanager
def unreliable_server(**options: Any) -> Iterator[str]:
    """One answer a prompt for good; faults and full seats by ``options``."""
    with on_a_thread(UnreliableServer(options).handle, options.get("port", 0)) as url:
        yield url


@contextmanager
def dialect_server(kind: str, **options: Any) -> Iterator[str]:
    """A server that speaks as vLLM, llama.cpp, ... do."""
    with on_a_thread(DialectServer({"kind": kind, **options}).handle) as url:
        yield url


def crowded_server(seats: int, log: Path) -> AbstractContextManager[str]:
    """An endpoint that works on ``seats`` requests at once and answers 429 to the next."""
    return unreliable_server(seats=seats, log=log)


def read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
