"""Errors that the user can act on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ContextCliffError(Exception):
    """One sentence: what, where, what to do; the command line prints it and exits with code 2."""


class CorpusError(ContextCliffError):
    """The corpus cannot be read or does not support the study."""


class StudyError(ContextCliffError):
    """A study or model file is missing, malformed, or asks for something that is not there."""


class EngineError(ContextCliffError):
    """An engine cannot start, be reached, or be trusted to answer further calls.

    ``measured``: what was measured before, as `profile_study` returns it, where it was anything.
    """

    measured: Any = None


class BudgetError(ContextCliffError):
    """The next call would exceed the budget; everything measured so far is kept."""


class StoreError(ContextCliffError):
    """The store cannot be read or written (disk full, read-only, damaged file)."""


class StoreUnreachableError(StoreError):
    """The server of the call ledger cannot be reached just now; a later try may succeed."""


class AnswersLostError(StoreError):
    """Answers that were paid could be put nowhere; ``call_keys`` says to which calls."""

    def __init__(self, sentence: str, call_keys: Sequence[str]) -> None:
        super().__init__(sentence)
        self.call_keys = tuple(call_keys)


class ScoreFileError(ContextCliffError):
    """A file of scores cannot be analysed as it is."""


class DataError(ContextCliffError, ValueError):
    """Lengths, scores or options given from Python cannot be analysed as they are."""


class VerificationError(ContextCliffError):
    """A document made here does not support the answer that was computed for it: a fault of ours.

    Never the user's: the sentence names benchmark, seed and question, and asks for a report.
    """
