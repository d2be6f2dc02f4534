"""Running the command line: as its own process, as a shell would, or quickly in this one."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from contextcliff_dagster.cli import main
from contextcliff_dagster_tests.support.dagster_memory import runs_in_memory
from contextcliff_dagster_tests.support.forked_process import forked

COMMAND = (sys.executable, "-m", "contextcliff_dagster.cli")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def sentences(self) -> list[str]:
        """Lines on stderr that are no notes."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        return [line for line in lines if not line.startswith("Note:")]


def run(
    *args: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 300,
    fresh: bool = False,
) -> Ended:
    """Run `contextcliff ARGS` to its end in a process of its own, not on a terminal.

    ``fresh``: a new interpreter, for claims about what importing does; else a `ForkedProcess`.
    """
    with _started(args, env, cwd=cwd, fresh=fresh) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return Ended(process.returncode, out, err)


def call(*args: str, env: Mapping[str, str] | None = None, recorded: bool = False) -> Ended:
    """Run `contextcliff ARGS` in this process: a second or two, where a process takes five.

    For claims about what a command says and does. Those about tracebacks, exit codes and streams
    of a whole process are made with :func:`run`, and those about what Dagster keeps in its home
    with ``recorded``: elsewhere its runs are kept in memory.
    """
    out, err = io.StringIO(), io.StringIO()
    with ExitStack() as stack:
        # A command sets variables for the steps it starts (--store, DAGSTER_HOME).
        stack.enter_context(mock.patch.dict(os.environ, env or {}))
        if not recorded:
            stack.enter_context(runs_in_memory())
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        code = main(list(args))
    return Ended(code, out.getvalue(), err.getvalue())


def start(*args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `contextcliff ARGS` and leave it running."""
    return _started(args, env)


def _started(
    args: Sequence[str],
    env: Mapping[str, str] | None,
    *,
    cwd: Path | None = None,
    fresh: bool = False,
) -> subprocess.Popen[str]:
    whole = {**os.environ, **(env or {})}
    return (subprocess.Popen if fresh else forked(whole))(
        [*COMMAND, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=whole,
        cwd=cwd,
    )


def on_terminal(*args: str, typed: str) -> Ended:
    """`contextcliff ARGS` on a terminal at which ``typed`` was entered; ``err`` is its screen."""
    ours, theirs = pty.openpty()
    process = forked(os.environ)(
        [*COMMAND, *args], stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL, env=os.environ
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    screen = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(ours, 4096):
            screen += part
    os.close(ours)
    return Ended(process.wait(300), "", screen.decode())


@contextmanager
def served(model: str, *options: str) -> Iterator[str]:
    """`contextcliff serve MODEL` in a process of its own; its base URL."""
    process = start("serve", model, "--port", "0", *options)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http" in line, f"{line}{process.stderr.read() if process.stderr else ''}"
        yield next(word for word in line.split() if word.startswith("http"))
    finally:
        process.terminate()
        process.communicate(timeout=120)


def assert_one_sentence(ended: Ended, *words: str) -> None:
    """Exit code 2 and one sentence on stderr, with ``words`` in it and no traceback."""
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    assert len(ended.sentences) == 1, ended.err
    for word in words:
        assert word in ended.sentences[0], f"{word!r} is not in: {ended.sentences[0]}"
