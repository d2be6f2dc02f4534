"""Conversion of errors to one sentence on stderr and an exit code; tracebacks only on `--debug`.

Exit codes: 0 success; 1 an internal error (a log is kept); 2 an error that the user can fix; 3 the
two compared things differ; 4 a call is above the cap of a policy, or a comparison could not be
judged; 5 answers are lost because no disk had room for them; 130 interrupted from the keyboard
(143 by SIGTERM, 129 by a closed terminal).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.contracts import (
    AnswersLostError,
    BatchesOpenError,
    ContextCliffError,
    StoreError,
)
from contextcliff_dagster.store import Store, store_root

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study

DONE, INTERNAL_ERROR, USER_ERROR, DIFFERENT, NOT_JUDGED, INTERRUPTED = 0, 1, 2, 3, 4, 130
ANSWERS_LOST = 5

# A name, not a class: importing Dagster just to compare exception types would slow down every
# command.
_DAGSTER_INTERRUPT = "DagsterExecutionInterruptedError"


_LONGEST_WORD, _LONGEST_LINE = 200, 1_600
"""Maximum length in characters of a word and of a line in an error message."""
_MOST_LOOKED_AT = 200_000


class Interrupted(KeyboardInterrupt):
    """An interruption by Ctrl-C, with a message about what has been saved."""


def is_interruption(error: BaseException) -> bool:
    """Return whether ``error`` is Ctrl-C or Dagster's error for it, without an earlier failure."""
    causes = list(_chain(error))
    if any(isinstance(cause, ContextCliffError) for cause in causes):
        return False
    return any(
        isinstance(cause, KeyboardInterrupt) or type(cause).__name__ == _DAGSTER_INTERRUPT
        for cause in causes
    )


@contextlib.contextmanager
def interruption_says(store: Store, study: Study, campaign: str | None) -> Iterator[None]:
    """Turn Ctrl-C into an error that says what has been saved."""
    try:
        yield
    except BaseException as error:
        if not is_interruption(error):
            raise
        kept = ""
        with contextlib.suppress(StoreError):  # the ledger may have caused the interruption
            kept = _kept(store, study, campaign)
        raise Interrupted(kept) from error


def _kept(store: Store, study: Study, campaign: str | None) -> str:
    from contextcliff_dagster.inference.ledger.batches import batches_of, open_calls
    from contextcliff_dagster.inference.ledger.campaigns import current_campaign
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.reporting.wording import count

    with Ledger.open(store.ledger, patient=False) as ledger:
        name = campaign or current_campaign(ledger, study.name)
        done = ledger.read(
            "SELECT count(*) FROM results JOIN calls c USING (call_key)"
            " WHERE c.study = ? AND c.campaign = ?",
            (study.name, name),
        )[0][0]
        waiting = sum(
            len(open_calls(ledger, batch))
            for batch in batches_of(ledger, is_open=True, study=study.name, campaign=name)
        )
    kept = f"{count(done, 'call')} of campaign {name} {'is' if done == 1 else 'are'} measured"
    return f"{kept} and kept" + (f", and {waiting:,} wait in batches" if waiting else "")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and its causes, outermost first, each once."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner = getattr(current, "user_exception", None)
        current = inner or current.__cause__ or current.__context__


def _shortened(text: str, most: int) -> str:
    """Return ``text``, or only its beginning and end if it exceeds ``most`` characters."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]}...{text[-most // 4 :]}"


def sentence(text: str) -> str:
    """Return ``text`` on one line with a full stop; control characters become their codes."""
    words = (_shortened(word, _LONGEST_WORD) for word in str(text)[:_MOST_LOOKED_AT].split())
    line = _shortened(_printable(" ".join(words)), _LONGEST_LINE)
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def say(text: str) -> None:
    """Print ``text`` on stderr as one line, with line breaks escaped; ignore a closed stderr."""
    with contextlib.suppress(OSError, ValueError):
        print(_printable(text), file=sys.stderr, flush=True)


_SECRET_OPTION = "--api-password"


def shown_arguments(args: Iterable[str]) -> list[str]:
    """Return ``args`` without the values of secret options, safe to print and to store."""
    shown: list[str] = []
    for arg in args:
        if arg.startswith(f"{_SECRET_OPTION}="):
            shown.append(f"{_SECRET_OPTION}=...")
        else:
            shown.append("..." if shown and shown[-1] == _SECRET_OPTION else arg)
    return shown


def guarded(run: Callable[[], object], *, debug: bool, resume: str) -> int:
    """Call ``run``; turn any exception into a sentence and an exit code.

    Args:
        run: the command.
        debug: show tracebacks.
        resume: the command line that continues after an interruption.
    """
    on_terminal = os.isatty(1)
    try:
        # Outside click's standalone mode `ctx.exit(n)` comes back as the return value.
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except BrokenPipeError:
        return _reader_left()
    except (KeyboardInterrupt, click.Abort) as error:
        return _interrupted(resume, error)
    except SystemExit as error:
        # On a closed pipe, click itself wraps stdout and exits with 1.
        if "PacifyFlush" in type(sys.stdout).__name__:
            return _reader_left()
        return error.code if isinstance(error.code, int) else INTERNAL_ERROR
    except BaseException as error:
        if getattr(error, "errno", None) == errno.EIO and on_terminal and not os.isatty(1):
            # The terminal was closed; if SIGHUP is ignored, the run went on.
            return _interrupted(resume, error) if is_interruption(error) else _reader_left()
        if debug:
            traceback.print_exception(error)
        return _explain(error, resume)


def _reader_left() -> int:
    # The reader closed our output (`| head`): not an error, but nothing may be flushed to the
    # closed pipe when the interpreter exits.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return DONE


def _interrupted(resume: str, error: BaseException) -> int:
    # click turns KeyboardInterrupt into Abort and keeps ours as its cause.
    kept = next((str(c) for c in _chain(error) if isinstance(c, Interrupted)), "")
    say(f"Interrupted: {kept or 'what is finished is kept'}; go on with `{resume}`.")
    return INTERRUPTED


def _explain(error: BaseException, resume: str) -> int:
    causes = list(_chain(error))
    # A failure comes before the interruption: Dagster reports a failed step's interruption too.
    for cause in causes:
        if isinstance(cause, BatchesOpenError):
            click.echo(f"{cause}; come back: `{cause.command or resume}`.")
            return DONE
        if isinstance(cause, ContextCliffError):
            say(f"contextcliff: {sentence(str(cause))}")
            if not isinstance(cause, AnswersLostError):
                return USER_ERROR
            for key in cause.call_keys:
                say(f"contextcliff: The answer to call {key} is lost.")
            return ANSWERS_LOST
        if isinstance(cause, click.ClickException):
            say(f"contextcliff: {sentence(cause.format_message())}")
            return cause.exit_code
    if is_interruption(error):
        return _interrupted(resume, error)
    for cause in causes:
        if (text := _disk_sentence(cause) or _system_sentence(cause)) is not None:
            say(f"contextcliff: {sentence(text)}")
            return USER_ERROR
    say(
        f"contextcliff: This should not have happened ({type(causes[-1]).__name__}: "
        f"{sentence(str(causes[-1]) or 'no message')[:200]} Please report it with "
        f"{_keep_log(error)}; what is measured so far is kept)."
    )
    return INTERNAL_ERROR


def _disk_sentence(error: BaseException) -> str | None:
    """Return a sentence for a disk error that no other code has explained, else None.

    SQLite and Dagster's storage report a full or read-only disk only in their messages.
    """
    text, number = str(error).lower(), getattr(error, "errno", None)
    where = getattr(error, "filename", None) or f"the store {store_root()}"
    full = number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if full or "disk is full" in text or "disk i/o error" in text:
        free = "free some space and run the same command again"
        advice = f"Cannot write {where}: the disk is full; {free}"
    elif number in (errno.EROFS, errno.EACCES, errno.EPERM) or "readonly database" in text:
        point = "point --store or CONTEXTCLIFF_HOME at a writable folder"
        advice = f"Cannot write {where}: it is read-only; {point}"
    elif "unable to open database file" in text:
        check = "check that --store or CONTEXTCLIFF_HOME is a writable folder"
        advice = f"Cannot open a database in {where}; {check}"
    elif "file is not a database" in text or "disk image is malformed" in text:
        home = os.environ.get("DAGSTER_HOME", "its home")
        advice = f"Dagster's database of runs in {home} is damaged; move the folders `history` and "
        advice += "`schedules` in it away and run the same command again"
    else:
        return None
    return f"{advice} (what is measured so far is kept)."


_UNUSABLE_PATHS = (
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL),
    *(errno.ENOENT, errno.ENXIO, errno.EEXIST),
)
_KEPT = "what is measured so far is kept"


def _system_sentence(error: BaseException) -> str | None:
    """Return a sentence for an unusable path or exhausted memory or threads, else None."""
    name = getattr(error, "filename", None)
    if isinstance(error, OSError) and error.errno in _UNUSABLE_PATHS and name is not None:
        where = os.fsdecode(name) if isinstance(name, bytes) else str(name)
        return f"Cannot use {where}: {error.strerror}; check the path."
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "A path or name contains a NUL character; write it without."
    words = str(error).lower()
    no_room = ("failed to map segment", "cannot allocate memory", "bad_alloc", "out of memory")
    if (
        isinstance(error, MemoryError)
        or getattr(error, "errno", None) == errno.ENOMEM
        or any(text in words for text in no_room)
    ):
        what = "Memory is used up; give the process more (ulimit -v), or measure less at once"
        return f"{what} ({_KEPT})."
    if "can't start new thread" in words or "failed to launch worker thread" in words:
        what = "No further thread can be started; raise the limit on processes or memory (ulimit)"
        return f"{what} ({_KEPT})."
    return None


def _keep_log(error: BaseException) -> Path:
    """Write the traceback to a file in the temporary folder and return its path."""
    stamp = time.strftime("%Y%m%dT%H%M%S")
    handle, name = tempfile.mkstemp(prefix=f"contextcliff-{stamp}-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as log:
        log.write(
            f"command: {' '.join([Path(sys.argv[0]).name, *shown_arguments(sys.argv[1:])])}\n"
        )
        log.writelines(traceback.format_exception(error))
    return Path(name)
