"""``python -m MODULE`` in a process of its own that needs not import anything.

A command imports for three CPU seconds before it begins. Here its process is forked from one that
has imported it all, as `multiprocessing`'s fork server does it; streams, environment, working
folder, signals and exit code are its own. What is about starting (imports, when the first words
appear, the environment of the interpreter) takes `subprocess` itself.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from contextcliff_dagster_tests.support.paths import CHECKOUT

_LIBRARIES = (
    "PIL.Image",
    "alembic.command",
    "dagster._core.execution.execute_in_process",
    "dagster._core.storage.event_log",
    "dagster._core.storage.local_compute_log_manager",
    "dagster._core.storage.runs",
    "dagster._core.storage.schedules",
    "dagster._core.storage.sqlite_storage",
    "dagster._core.workspace.context",
    "fastokens",
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "safetensors",
    "scipy.stats",
    "tokenizers",
)
"""What a profile imports, besides all of the product. Importing starts no thread: a thread would
not be in what is forked."""


class ForkedProcess(subprocess.Popen[str]):
    """`subprocess.Popen` of ``[sys.executable, "-m", MODULE, ...]``, forked from a ready process.

    Streams, ``cwd`` and ``env`` are as there; nothing else can be asked for.
    """

    _forked: ForkServerProcess

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        # As Popen calls it: ..., cwd, env, three others, and both ends of the three streams.
        cwd, env, ends = rest[4], rest[5], rest[9:15]
        streams = [Connection(os.dup(end)) for end in (ends[0], ends[3], ends[5])]
        python, module, name, *arguments = args
        if (python, module) != (sys.executable, "-m"):
            raise ValueError(f"{args} is no module of this Python")
        self._forked = _server().Process(  # type: ignore[assignment]
            target=_run, args=(name, arguments, cwd or Path.cwd(), dict(env), streams)
        )
        self._forked.start()
        for stream in streams:
            stream.close()
        self.pid = self._forked.pid or 0
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        self._try_wait(os.WNOHANG)
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        self._forked.join(0 if flags & os.WNOHANG else None)
        code = self._forked.exitcode
        if code is None:
            return 0, 0
        self.returncode = code
        return self.pid, code << 8 if code >= 0 else -code


def forked(env: Mapping[str, str]) -> type[subprocess.Popen[str]]:
    """Return what starts a module with ``env``: forked, where the interpreter is not set by it."""
    of_python = [{k: v for k, v in e.items() if k.startswith("PYTHON")} for e in (env, os.environ)]
    same = of_python[0] == of_python[1]
    return ForkedProcess if same and sys.platform == "linux" else subprocess.Popen


@cache
def _server() -> ForkServerContext:
    context = mp.get_context("forkserver")
    files = sorted((CHECKOUT / "contextcliff_dagster").rglob("*.py"))
    names = [".".join(file.relative_to(CHECKOUT).with_suffix("").parts) for file in files]
    product = [name.removesuffix(".__init__") for name in names if "__main__" not in name]
    context.set_forkserver_preload([*_LIBRARIES, *product, __name__])
    return context


def _run(
    name: str,
    arguments: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    streams: Sequence[Connection],
) -> None:
    """Be ``python -m NAME ARGUMENTS`` on the given stdin, stdout and stderr."""
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    for number, stream_name in enumerate(("stdin", "stdout", "stderr")):
        errors = ("strict", "strict", "backslashreplace")[number]
        line = 1 if number == 2 else -1
        file = open(number, "w" if number else "r", line, errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, stream_name, file)
        setattr(sys, f"__{stream_name}__", file)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
