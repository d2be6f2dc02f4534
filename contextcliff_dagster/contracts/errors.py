"""Errors that the person at the keyboard can act on."""

from __future__ import annotations


class ContextCliffError(Exception):
    """A fault the person at the keyboard can act on.

    Its text is one sentence: what, where, what to do. The command line prints it without a
    traceback and leaves with exit code 2.
    """


class CorpusError(ContextCliffError):
    """The corpus cannot be read or does not support the study."""


class StudyError(ContextCliffError):
    """A study or model file is missing, malformed, or asks for something that is not there."""


class EngineError(ContextCliffError):
    """An engine cannot start, be reached, or be trusted to answer further calls."""


class BudgetError(ContextCliffError):
    """The next call would exceed the budget; everything measured so far is kept."""


class StoreError(ContextCliffError):
    """The store cannot be read or written (disk full, read-only, damaged file)."""


class ScoreFileError(ContextCliffError):
    """A file of scores cannot be analysed as it is."""
