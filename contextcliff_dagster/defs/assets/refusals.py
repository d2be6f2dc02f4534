"""A refusal of ours as Dagster shows it best: its sentence first, the stack under it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError

Compute = TypeVar("Compute", bound=Callable[..., Any])


def refusing(compute: Compute) -> Compute:
    """``compute`` of an asset or op, its `ContextCliffError` raised as Dagster's `Failure`.

    The sentence is the description of the failure, the error its cause. Such a step is never
    tried again: it would be refused again.
    """
    if inspect.isgeneratorfunction(compute):

        @wraps(compute)
        def generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with _as_failure():
                yield from compute(*args, **kwargs)

        return generator  # type: ignore[return-value]

    @wraps(compute)
    def function(*args: Any, **kwargs: Any) -> Any:
        with _as_failure():
            return compute(*args, **kwargs)

    return function  # type: ignore[return-value]


@contextmanager
def _as_failure() -> Iterator[None]:
    try:
        yield
    except ContextCliffError as error:
        kind = {"error": type(error).__name__}
        raise dg.Failure(str(error), metadata=kind, allow_retries=False) from error


@contextmanager
def refusals_raised() -> Iterator[None]:
    """Around a run in this process: what it is refused with is raised itself, not the failure."""
    refusal: ContextCliffError
    try:
        yield
        return
    except dg.Failure as failure:
        if not isinstance(failure.__cause__, ContextCliffError):
            raise
        refusal = failure.__cause__
    # Outside the handler: the failure must not become the context of its own cause.
    raise refusal
