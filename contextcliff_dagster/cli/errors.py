"""Every fault becomes one sentence on stderr and an exit code; tracebacks only on `--debug`.

Exit codes: 0 done, 1 a fault of ours (a log is kept), 2 something the user can act on, 130
interrupted from the keyboard. 3: two things that were compared are not the same. 4: a call is above
the cap of a policy.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.store import store_root

DONE, OUR_FAULT, YOUR_TURN, DIFFERENT, INTERRUPTED = 0, 1, 2, 3, 130

# Names, not classes: importing Dagster only to compare exception types would cost every command
# its import time.
_DAGSTER_INTERRUPTS = ("DagsterExecutionInterruptedError",)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a clause about what is kept."""


def is_interruption(fault: BaseException) -> bool:
    """Whether ``fault`` is Ctrl-C, or Dagster's word for it, and nothing else went wrong before."""
    causes = list(chain(fault))
    if any(isinstance(cause, ContextCliffError) for cause in causes):
        return False
    return any(
        isinstance(cause, KeyboardInterrupt) or type(cause).__name__ in _DAGSTER_INTERRUPTS
        for cause in causes
    )


def chain(fault: BaseException) -> Iterator[BaseException]:
    """``fault`` and what it was raised from, outermost first, each once."""
    seen: set[int] = set()
    current: BaseException | None = fault
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner = getattr(current, "user_exception", None)
        current = inner or current.__cause__ or current.__context__


def sentence(text: str) -> str:
    """``text`` on one line with a full stop; what would move the cursor is written as its code."""
    line = " ".join(str(text).split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    return line if line.endswith((".", "!", "?")) else f"{line}."


def say(text: str) -> None:
    """One line on stderr; a closed stderr is nobody's fault."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def guarded(run: Callable[[], object], *, debug: bool, resume: str) -> int:
    """Call ``run`` and turn whatever it raises into a sentence and an exit code.

    Args:
        run: the command.
        debug: show tracebacks.
        resume: the command line that goes on after an interruption.
    """
    try:
        # Outside click's standalone mode `ctx.exit(n)` comes back as the return value.
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except BrokenPipeError:
        return _reader_left()
    except (KeyboardInterrupt, click.Abort) as fault:
        return _interrupted(resume, fault)
    except BaseException as fault:
        if isinstance(fault, SystemExit):
            # click meets a closed pipe first: it wraps stdout and leaves with 1.
            if "PacifyFlush" in type(sys.stdout).__name__:
                return _reader_left()
            return fault.code if isinstance(fault.code, int) else OUR_FAULT
        if debug:
            traceback.print_exception(fault)
        return _explain(fault, resume)


def _reader_left() -> int:
    # Whoever read our output has seen enough (`| head`): nothing is wrong, but nothing may be
    # flushed to the closed pipe when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return DONE


def _interrupted(resume: str, fault: BaseException) -> int:
    # click turns KeyboardInterrupt into Abort and keeps ours as its cause.
    kept = next((str(c) for c in chain(fault) if isinstance(c, Interrupted)), "")
    say(f"Interrupted: {kept or 'every finished call is kept'}; go on with `{resume}`.")
    return INTERRUPTED


def _explain(fault: BaseException, resume: str) -> int:
    causes = list(chain(fault))
    # What broke is said before that somebody stopped it: Dagster reports a failed step's
    # interruption too.
    for cause in causes:
        if isinstance(cause, ContextCliffError):
            say(f"contextcliff: {sentence(str(cause))}")
            return YOUR_TURN
        if isinstance(cause, click.ClickException):
            say(f"contextcliff: {sentence(cause.format_message())}")
            return cause.exit_code
    if is_interruption(fault):
        return _interrupted(resume, fault)
    for cause in causes:
        if (text := disk_sentence(cause)) is not None:
            say(f"contextcliff: {text}")
            return YOUR_TURN
    log = keep_log(fault)
    say(
        f"contextcliff: This should not have happened ({type(causes[-1]).__name__}: "
        f"{sentence(str(causes[-1]) or 'no message')[:200]} Please report it with {log}; "
        "what is measured so far is kept)."
    )
    return OUR_FAULT


def disk_sentence(fault: BaseException) -> str | None:
    """A sentence for faults of the disk that no room has put into words, else None.

    SQLite and Dagster's own storage meet a full or read-only disk too, and say so only in text.
    """
    import errno

    text = str(fault).lower()
    kept = "what is measured so far is kept"
    file = fault.filename if isinstance(fault, OSError) else None
    where = f" {file}" if file else f" the store {store_root()}"
    number = fault.errno if isinstance(fault, OSError) else None
    if (
        number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        or "disk is full" in text
        or "disk i/o error" in text
    ):
        return (
            f"Cannot write{where}: the disk is full; free some space and run the same command "
            f"again ({kept})."
        )
    if number in (errno.EROFS, errno.EACCES, errno.EPERM) or "readonly database" in text:
        return (
            f"Cannot write{where}: it is read-only; point --store or CONTEXTCLIFF_HOME at a "
            f"writable folder ({kept})."
        )
    if "unable to open database file" in text:
        return (
            f"Cannot open a database in{where}; check that --store or CONTEXTCLIFF_HOME is a "
            f"writable folder ({kept})."
        )
    return None


def keep_log(fault: BaseException) -> Path:
    """Write the traceback to a file in the temporary folder and return its path."""
    stamp = time.strftime("%Y%m%dT%H%M%S")
    handle, name = tempfile.mkstemp(prefix=f"contextcliff-{stamp}-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as log:
        log.write(
            f"command: {' '.join(Path(a).name if i == 0 else a for i, a in enumerate(sys.argv))}\n"
        )
        log.writelines(traceback.format_exception(fault))
    return Path(name)
