"""Spans of a run, of its bins and of its requests.

The classes here do nothing; `otel_spans` has those that do. No span carries a text, an address or a
message of a server: names, numbers and hashes only.
"""

from __future__ import annotations

from contextcliff_dagster.inference.requests.call_plan import PlannedCall
from contextcliff_dagster.inference.requests.outcome import Failure, Outcome
from contextcliff_dagster.inference.telemetry.progress import RunSummary


class RequestSpan:
    """One request, from sending to its end."""

    def answered(self, outcome: Outcome) -> None:
        """An answer was kept, or that the prompt is too long."""

    def failed(self, failure: Failure) -> None:
        """There is no answer."""


class Trace:
    """One run of calls of one model."""

    def bin_begun(self, bin: str) -> None:
        """A call of ``bin`` is taken up; called with each."""

    def request(self, call: PlannedCall, number: int) -> RequestSpan:
        """The ``number``-th request of ``call`` is about to be sent."""
        return RequestSpan()

    def bin_ended(self, bin: str) -> None:
        """Every call of ``bin`` has ended; perhaps none was taken up in this run."""

    def end(self, summary: RunSummary | None) -> None:
        """The run is over; without a summary an error ended it."""
