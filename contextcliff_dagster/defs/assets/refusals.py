"""A refusal of ours as Dagster shows it best: its sentence first, the stack under it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, TypeVar

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError, StoreUnreachableError

RETRY_TAG = "dagster/retry_on_asset_or_op_failure"
"""The tag of a run that decides whether Dagster retries it after a failed step."""

Compute = TypeVar("Compute", bound=Callable[..., Any])


def refusing(compute: Compute) -> Compute:
    """Wrap ``compute`` of an asset or op: raise `ContextCliffError` as Dagster's `Failure`.

    The sentence is the description of the failure, the error its cause. The run of such a step is
    not tried again, nor that of a `Failure` that allows no retries: it would end so again.
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


def forbid_retry() -> None:
    """Keep Dagster from retrying the run of this step if it fails.

    Without this a failed run is (`asset_specs.RETRY_FAILED`): what ended it is then a killed
    process, or a database or disk that could not be reached.
    """
    # Where the tag cannot be written either, the run is tried again and refused again.
    with suppress(Exception):
        context = dg.OpExecutionContext.get()
        context.instance.add_run_tags(context.run_id, {RETRY_TAG: "false"})


@contextmanager
def _as_failure() -> Iterator[None]:
    try:
        yield
    except ContextCliffError as error:
        passing = isinstance(error, StoreUnreachableError)
        if not passing:
            forbid_retry()
        kind = {"error": type(error).__name__}
        raise dg.Failure(str(error), metadata=kind, allow_retries=passing) from error
    except dg.Failure as failure:
        if not failure.allow_retries:
            forbid_retry()
        raise


@contextmanager
def refusals_raised() -> Iterator[None]:
    """Raise the original refusal of a run in this process, not Dagster's failure."""
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
