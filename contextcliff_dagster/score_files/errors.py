"""What goes wrong with a file of scores."""

from __future__ import annotations

from contextcliff_dagster.contracts import ContextCliffError


class ScoreFileError(ContextCliffError):
    """A file of scores cannot be analysed as it is."""
