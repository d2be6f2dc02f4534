"""What every command owes to bad input: exit code 2, one sentence, no hang, a store as it was."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

import contextcliff_dagster.analysis.profile
import contextcliff_dagster.run.study  # noqa: F401  (imports are not to be stopped half-way)
from contextcliff_dagster_tests.support.terminal import Ended, call

WALL_S, CPU_S = 180.0, 10.0
LONGEST_SENTENCE = 600
"""Characters, less the paths of the test's own folder."""
_MEMORY = 3 << 30
"""Address space that a command may take beyond what the process of the tests has."""


def _nothing(_: Path) -> None:
    pass


@dataclass(frozen=True)
class Case:
    """A command line that cannot be carried out.

    ``line``: its arguments; ``{D}`` in them and in the values of ``env`` is the folder that
    ``make`` fills and that the command runs in. ``words``: what its sentence must name.
    """

    id: str
    line: tuple[str, ...]
    words: tuple[str, ...] = ()
    make: Callable[[Path], object] = _nothing
    env: Mapping[str, str] = field(default_factory=dict)

    def arguments(self, folder: Path) -> list[str]:
        return [part.replace("{D}", str(folder)) for part in self.line]

    def environment(self, folder: Path) -> dict[str, str]:
        return {name: value.replace("{D}", str(folder)) for name, value in self.env.items()}


class TookTooLongError(BaseException):
    """The command did not end in time."""


@contextmanager
def limited() -> Iterator[None]:
    """While open, this process may take so much time, processor time and memory, and no more."""

    fired: list[int] = []

    def stop(number: int, _: FrameType | None) -> NoReturn:
        fired.append(number)
        raise TookTooLongError(f"longer than {WALL_S} s or {CPU_S} s of CPU ({number})")

    numbers = (signal.SIGALRM, signal.SIGPROF)
    before = {number: signal.signal(number, stop) for number in numbers}
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    timers = (signal.ITIMER_REAL, WALL_S), (signal.ITIMER_PROF, CPU_S)
    others = [signal.setitimer(timer, seconds) for timer, seconds in timers]
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for (timer, _), (left, every) in zip(timers, others, strict=True):
            signal.setitimer(timer, left, every)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert not fired, "the command took too long, whatever it printed"


def refused(case: Case, folder: Path, store: Path) -> Ended:
    """Run the case's command in this process and hold it to the law."""
    case.make(folder)
    before = _results(store)
    with _working_in(folder), limited():
        ended = call(*case.arguments(folder), env=case.environment(folder))
    judge(case, ended, folder)
    assert _results(store) == before, "the store has changed"
    return ended


def judge(case: Case, ended: Ended, folder: Path) -> None:
    """Exit code 2 and one sentence of bounded length, with the words of ``case``."""
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    assert len(ended.sentences) == 1, ended.err
    sentence = ended.sentences[0]
    assert sentence.startswith("contextcliff: "), sentence
    assert sentence.endswith((".", "!", "?")), sentence
    assert sentence.isprintable(), ascii(sentence)
    assert len(sentence.replace(str(folder), "")) <= LONGEST_SENTENCE, sentence
    for word in case.words:
        assert word in sentence, f"{word!r} is not in: {sentence}"


def _results(store: Path) -> set[str]:
    """What a person would take for results: files apart from the ledger, and its calls.

    What preparing leaves behind is read again and again until there is a sample; a mark says
    which layout the store has.
    """
    kept = {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}
    files = {f for f in kept if not f.startswith("state.db") and "/preparation/" not in f}
    if "state.db" in kept:
        with closing(sqlite3.connect(store / "state.db")) as ledger:
            files |= {str(key) for (key,) in ledger.execute("SELECT call_key FROM calls")}
    return files - {"store.json"}


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
