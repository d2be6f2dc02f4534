"""Why no text can be had of a file."""

from __future__ import annotations

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """Its message is a clause whose subject is the file, see `results.Unusable`."""
