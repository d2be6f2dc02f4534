"""Spans of a run, of its bins and of its requests, for those who collect traces.

Without ``CONTEXTCLIFF_OTEL`` nothing is imported and nothing is done. No span carries a text, an
address or a message of a server: names, numbers and hashes only.
"""

from __future__ import annotations

import os
from typing import Protocol

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.inference.ledger.statements import Scope
from contextcliff_dagster.inference.requests.call_plan import PlannedCall
from contextcliff_dagster.inference.requests.outcome import Failure, Outcome
from contextcliff_dagster.inference.telemetry.progress import RunSummary

SWITCH = "CONTEXTCLIFF_OTEL"


class RequestSpan(Protocol):
    """One request, from sending to its end."""

    def answered(self, outcome: Outcome) -> None:
        """An answer was kept, or that the prompt is too long."""
        ...

    def failed(self, failure: Failure) -> None:
        """There is no answer."""
        ...


class Trace(Protocol):
    """One run of calls of one model."""

    def bin_begun(self, bin: str) -> None:
        """A call of ``bin`` is taken up; told with each."""
        ...

    def request(self, call: PlannedCall, number: int) -> RequestSpan:
        """The ``number``-th request of ``call`` is about to be sent."""
        ...

    def bin_ended(self, bin: str) -> None:
        """Every call of ``bin`` has ended; perhaps none was taken up in this run."""
        ...

    def end(self, summary: RunSummary | None) -> None:
        """The run is over; without a summary it was ended by a fault."""
        ...


class _Nothing:
    def bin_begun(self, bin: str) -> None:
        pass

    def request(self, call: PlannedCall, number: int) -> _Nothing:
        return self

    def answered(self, outcome: Outcome) -> None:
        pass

    def failed(self, failure: Failure) -> None:
        pass

    def bin_ended(self, bin: str) -> None:
        pass

    def end(self, summary: RunSummary | None) -> None:
        pass


NO_TRACE: Trace = _Nothing()


def open_trace(scope: Scope, planned: int) -> Trace:
    """The trace of a run, begun; `NO_TRACE` where ``CONTEXTCLIFF_OTEL`` is not set (or is 0).

    Raises:
        ContextCliffError: it is set, but OpenTelemetry or the exporter asked for is not installed.
    """
    if os.environ.get(SWITCH, "").strip() in ("", "0"):
        return NO_TRACE
    try:
        from contextcliff_dagster.inference.telemetry.otel_spans import OtelTrace
    except ImportError as error:
        raise ContextCliffError(
            f"{SWITCH} asks for traces, but OpenTelemetry is not installed: "
            f"`pip install 'contextcliff-dagster[otel]'`, or unset {SWITCH}."
        ) from error
    return OtelTrace(scope, planned)
