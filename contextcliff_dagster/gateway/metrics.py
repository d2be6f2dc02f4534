"""Counts of a gateway as OpenTelemetry metrics; nothing where its API is not installed.

An application's own meter provider takes them (`opentelemetry.metrics.set_meter_provider`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

REQUESTS = "contextcliff.gateway.requests"
EXPIRED = "contextcliff.gateway.expired_requests"
CAP_SHARE = "contextcliff.gateway.cap_share"
MODEL = "gen_ai.request.model"
"""OpenTelemetry's own name, as the spans of measuring have it."""
_SHARES = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0, 8.0]


class GateMetrics:
    """Counters of requests, and a histogram of their tokens as a share of the cap.

    Models are attributes only where they have a policy: other names are the callers' own, and there
    is no end to them. ``meter_provider`` takes them in place of the application's.
    """

    def __init__(self, meter_provider: Any = None) -> None:
        self._requests: Any = None
        self._expired: Any = None
        self._shares: Any = None
        with suppress(ImportError):
            from opentelemetry import metrics

            meter = metrics.get_meter("contextcliff_dagster", meter_provider=meter_provider)
            self._requests = meter.create_counter(
                REQUESTS, unit="{request}", description="Requests by what became of them."
            )
            self._expired = meter.create_counter(
                EXPIRED, unit="{request}", description="Requests for a model of an expired policy."
            )
            self._shares = meter.create_histogram(
                CAP_SHARE,
                unit="1",
                description="Tokens of the prompt as a share of the safe cap.",
                explicit_bucket_boundaries_advisory=_SHARES,
            )

    def counted(self, outcome: str, model: str | None) -> None:
        if self._requests is not None:
            named = {MODEL: model} if model else {}
            self._requests.add(1, {"contextcliff.outcome": outcome, **named})

    def expired(self, model: str) -> None:
        if self._expired is not None:
            self._expired.add(1, {MODEL: model})

    def measured(self, share: float, model: str, counted_by: str) -> None:
        if self._shares is not None:
            named = {MODEL: model, "contextcliff.counted_by": counted_by}
            self._shares.record(share, named)
