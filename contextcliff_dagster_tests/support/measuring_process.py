"""A measurement in a process of its own, to be killed.

``python -m contextcliff_dagster_tests.support.measuring_process JSON``, an object of the fields of
`Measurement`. Prints ``ready`` when it is about to open the ledger, ``halted`` when it sends no
more calls before all are answered, and the run's summary as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, get_args

from contextcliff_dagster.cli.shell import ended_by_signals
from contextcliff_dagster.contracts import AnswersLostError, ContextCliffError
from contextcliff_dagster.inference.execution.measure import CallRunner, measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.ledger.backend import PATIENCE_S, GroupCommit
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.telemetry import RunSummary
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.records.calls import LedgerSample, openai_entry, plan_of

Death = Literal["while it started", "between answer and commit", "at work"]
DEATHS: tuple[Death, ...] = get_args(Death)
WHERE = {"study": "s", "campaign": "c"}


@dataclass(frozen=True)
class Measurement:
    """What to measure: ``bins`` bins of ``documents`` with ``questions`` each, over ``url``.

    ``ledger``: the path of a file, or a PostgreSQL URL. ``entry``: changes to the model's entry.
    ``die_after``: with K > 0 the process kills itself with SIGKILL at its K-th answer, as ``dies``
    says: as it begins, after the answer has arrived and before it is committed, or thereafter, with
    other calls in flight. ``patience_s``: how long a ledger that refuses is waited for.
    """

    ledger: str
    url: str
    bins: int = 3
    documents: int = 8
    questions: int = 1
    max_tokens: int = 300
    entry: dict[str, Any] = field(default_factory=dict)
    die_after: int = 0
    dies: Death = "between answer and commit"
    patience_s: float = PATIENCE_S

    def sample(self) -> LedgerSample:
        return LedgerSample(
            self.bins, self.documents, max_tokens=self.max_tokens, questions=self.questions
        )

    def open_ledger(self) -> Ledger:
        return Ledger.open(DatabaseUrl(self.ledger) if "://" in self.ledger else Path(self.ledger))

    def start(self, stdout: int | IO[Any] = subprocess.PIPE) -> subprocess.Popen[str]:
        """The measurement, in a process of its own."""
        module = "contextcliff_dagster_tests.support.measuring_process"
        return subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(asdict(self))],
            stdout=stdout, stderr=None if stdout == subprocess.PIPE else stdout, text=True,
        )  # fmt: skip

    def measure(self) -> RunSummary:
        """The measurement, in this process."""
        sample = self.sample()
        entry = openai_entry(self.url, **{"concurrency": 3, "tokenizer": "reference", **self.entry})
        n = self.documents * self.questions
        with self.open_ledger() as ledger:
            return measure(plan_of(sample, n), entry, ledger)

    def rows(self) -> list[dict[str, Any]]:
        """The prediction rows that the ledger has."""
        sample = self.sample()
        with self.open_ledger() as ledger:
            return prediction_rows(
                plan_of(sample, self.documents * self.questions), "remote", ledger
            )


def die_before_commit(number: int) -> None:
    """Die by SIGKILL between the arrival of the ``number``-th answer and its commit."""
    answered = 0
    finish = Ledger.finish

    def counted(self: Ledger, *arguments: Any) -> Any:
        nonlocal answered
        answered += 1
        if answered == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return finish(self, *arguments)

    Ledger.finish = counted  # type: ignore[method-assign]


def die_after_commit(number: int) -> None:
    """Die by SIGKILL as the ``number``-th answer is committed."""
    answered = 0
    finish = Ledger.finish

    def counted(self: Ledger, *arguments: Any) -> Any:
        nonlocal answered
        answered += 1
        noted = finish(self, *arguments)
        if answered == number:
            noted.add_done_callback(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        return noted

    Ledger.finish = counted  # type: ignore[method-assign]


def announce_halt() -> None:
    """Print ``halted`` as the run halts."""
    halt = CallRunner.halt

    def announced(self: CallRunner, asked: bool = False) -> None:
        halt(self, asked)
        print("halted", flush=True)

    CallRunner.halt = announced  # type: ignore[method-assign]


def main() -> int:
    measurement = Measurement(**json.loads(sys.argv[1]))
    announce_halt()
    GroupCommit.patience_s = measurement.patience_s
    if measurement.die_after and measurement.dies == "between answer and commit":
        die_before_commit(measurement.die_after)
    elif measurement.die_after and measurement.dies == "at work":
        die_after_commit(measurement.die_after)
    print("ready", flush=True)
    if measurement.die_after and measurement.dies == "while it started":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        with ended_by_signals() as first:
            try:
                summary = measurement.measure()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                return 128 + first()
    except ContextCliffError as error:
        print(error, flush=True)
        if not isinstance(error, AnswersLostError):
            return 2
        for key in error.call_keys:
            print(f"The answer to call {key} is lost.", flush=True)
        return 5
    print(json.dumps(summary.to_dict()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
