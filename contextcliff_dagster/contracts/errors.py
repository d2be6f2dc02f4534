"""Errors that the user can act on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


class ContextCliffError(Exception):
    """An error in one sentence: what, where, what to do. The CLI prints it and exits with 2."""


class CorpusError(ContextCliffError):
    """The corpus cannot be read or does not support the study."""


class StudyError(ContextCliffError):
    """A study or model file is missing or malformed, or refers to something that does not exist."""


class EngineError(ContextCliffError):
    """An engine cannot start, cannot be reached, or cannot be trusted with further calls.

    ``measured``: results measured before the error, as `profile_study` returns them, or None.
    """

    measured: Any = None


class BatchesOpenError(ContextCliffError):
    """Calls wait in batches for their answers; the same measurement goes on when they are there.

    ``waiting``: number of calls by model. ``command``: what goes on instead, if not the same.
    """

    def __init__(self, study: str, campaign: str, waiting: Mapping[str, int]) -> None:
        super().__init__(
            f"{sum(waiting.values()):,} calls of campaign {campaign} of study {study!r} wait in "
            f"batches ({', '.join(waiting)})"
        )
        self.study, self.campaign, self.waiting = study, campaign, dict(waiting)
        self.command = ""

    def to_dict(self) -> dict[str, Any]:
        """Return study, campaign and the number of waiting calls, JSON-ready."""
        return {"study": self.study, "campaign": self.campaign, "waiting": self.waiting}


class BudgetError(ContextCliffError):
    """The next call would exceed the budget; everything measured so far is kept."""


class StoreError(ContextCliffError):
    """The store cannot be read or written (disk full, read-only, damaged file)."""


class StoreUnreachableError(StoreError):
    """The server of the call ledger cannot be reached now; a later attempt may succeed."""


class AnswersLostError(StoreError):
    """Paid answers could not be stored anywhere; ``call_keys`` lists their calls."""

    def __init__(self, sentence: str, call_keys: Sequence[str]) -> None:
        super().__init__(sentence)
        self.call_keys = tuple(call_keys)


class ScoreFileError(ContextCliffError):
    """A score file cannot be analysed."""


class DataError(ContextCliffError, ValueError):
    """Lengths, scores or options passed from Python cannot be analysed."""


class VerificationError(ContextCliffError):
    """A generated document does not support its computed answer: a bug in this package.

    The message names benchmark, seed and question, and asks the user to report it.
    """


def package_version(name: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    from importlib import metadata  # on demand: it takes longer to load than all of this module

    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def install_command(extra: str) -> str:
    """Return the command that adds an extra of this package to this environment, in backquotes."""
    return pip_install(f"contextcliff-dagster[{extra}]")


def pip_install(*words: str) -> str:
    """Return ``pip install`` with requirements or options, by this Python, in backquotes."""
    python = Path(sys.executable)
    with suppress(ValueError, OSError):
        python = python.relative_to(Path.cwd())
    return f"`{shlex.join([str(python), '-m', 'pip', 'install', *words])}`"
