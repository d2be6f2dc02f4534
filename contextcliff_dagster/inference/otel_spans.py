"""An OpenTelemetry implementation of `telemetry.Trace`.

If the application has set a tracer provider, it is used, and the current span is the parent.
Otherwise, a provider is set up from the exporter in ``OTEL_TRACES_EXPORTER`` (default: otlp)
and OpenTelemetry's other standard variables. Request attributes follow OpenTelemetry's semantic
conventions for generative AI if these define a name."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from contextcliff_dagster.contracts import ContextCliffError, install_command
from contextcliff_dagster.inference.ledger.statements import Scope
from contextcliff_dagster.inference.requests.call_plan import Failure, Outcome, PlannedCall
from contextcliff_dagster.inference.telemetry import RequestSpan, RunSummary, Trace

_NAME = "contextcliff_dagster"
_FINISH_REASONS = {"stop", "length", "content_filter", "tool_calls", "abort"}
"""Standard finish reasons; any other text comes from a server and is exported as "other"."""


class OtelTrace(Trace):
    """Spans of one run that sends calls to one model."""

    def __init__(self, scope: Scope, planned: int) -> None:
        _require_provider()
        self._tracer = trace.get_tracer(_NAME)
        self._names: dict[str, str] = {
            "contextcliff.study": scope.study,
            "contextcliff.campaign": scope.campaign,
            "contextcliff.model": scope.model,
        }
        self._run = self._tracer.start_span(
            "contextcliff run",
            attributes={
                **self._names,
                "contextcliff.identity": scope.identity_hash,
                "contextcliff.calls.planned": planned,
            },
        )
        self._bins: dict[str, Span] = {}

    def bin_begun(self, bin: str) -> None:
        if bin not in self._bins:
            self._bins[bin] = self._tracer.start_span(
                "contextcliff bin",
                context=trace.set_span_in_context(self._run),
                attributes={**self._names, "contextcliff.bin": bin},
            )

    def request(self, call: PlannedCall, number: int) -> OtelRequest:
        span = self._tracer.start_span(
            "contextcliff request",
            context=trace.set_span_in_context(self._bins.get(call.bin, self._run)),
            kind=SpanKind.CLIENT,
            attributes={
                **self._names,
                "contextcliff.bin": call.bin,
                "contextcliff.call_key": call.call_key,
                "contextcliff.attempt": number,
                "contextcliff.replicate": call.replicate,
                "contextcliff.length_tokens": call.length_tokens,
                "gen_ai.request.max_tokens": call.recipe.max_output_tokens,
            },
        )
        return OtelRequest(span)

    def bin_ended(self, bin: str) -> None:
        if span := self._bins.pop(bin, None):
            span.end()

    def end(self, summary: RunSummary | None) -> None:
        for bin in list(self._bins):
            self.bin_ended(bin)
        if summary is None:
            self._run.set_status(Status(StatusCode.ERROR))
        else:
            _set(
                self._run,
                {
                    "contextcliff.calls.sent": summary.sent,
                    "contextcliff.calls.answered": summary.answered,
                    "contextcliff.calls.known_before": summary.cached + summary.by_others,
                    "contextcliff.calls.without_answer": summary.transport_errors,
                    "contextcliff.calls.retries": summary.retries,
                    "contextcliff.calls.maybe_paid": summary.maybe_paid,
                    "contextcliff.cost_usd": summary.cost_usd,
                    "contextcliff.stopped": summary.stopped,
                    "gen_ai.usage.input_tokens": summary.prompt_tokens,
                    "gen_ai.usage.output_tokens": summary.completion_tokens,
                },
            )
        self._run.end()


class OtelRequest(RequestSpan):
    """The span of one request, from sending to its end."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def answered(self, outcome: Outcome) -> None:
        reason = outcome.finish_reason
        _set(
            self._span,
            {
                "contextcliff.no_answer": outcome.no_answer,
                "contextcliff.ttft_ms": outcome.ttft_ms,
                "contextcliff.duration_ms": outcome.duration_ms,
                "contextcliff.queue_ms": outcome.queue_ms,
                "contextcliff.loop_lag_ms": outcome.loop_lag_ms,
                "contextcliff.cached_tokens": outcome.cached_tokens,
                "contextcliff.cost_usd": outcome.cost_usd,
                "gen_ai.usage.input_tokens": outcome.prompt_tokens,
                "gen_ai.usage.output_tokens": outcome.completion_tokens,
                "gen_ai.response.finish_reasons": reason
                and (reason if reason in _FINISH_REASONS else "other",),
            },
        )
        self._span.end()

    def failed(self, failure: Failure) -> None:
        # Not the message: a server may put anything into it.
        _set(
            self._span,
            {
                "error.type": failure.kind,
                "http.response.status_code": failure.status,
                "contextcliff.maybe_paid": failure.maybe_paid,
                "contextcliff.given_up": failure.final,
            },
        )
        self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def _set(span: Span, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        if value is not None:
            span.set_attribute(name, value)


def _require_provider() -> None:
    """Keep the application's tracer provider, or set one up from the environment.

    Raises:
        ContextCliffError: the requested exporter is not installed.
    """
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    service_name = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "contextcliff"}
    provider = TracerProvider(resource=Resource.create(service_name))
    for exporter in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        if (name := exporter.strip()) not in ("", "none"):
            # Spans still queued when the process ends are sent then.
            provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    trace.set_tracer_provider(provider)


def _exporter(name: str) -> Any:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)  # stdout is for results
    if name == "otlp":
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    exporters = entry_points(group="opentelemetry_traces_exporter", name=name)
    if not exporters:
        raise ContextCliffError(
            f"Traces are to go out by the exporter {name!r} (OTEL_TRACES_EXPORTER), which is not "
            f"installed: {install_command('otel')} brings OTLP over HTTP; or unset "
            "CONTEXTCLIFF_OTEL."
        )
    return next(iter(exporters)).load()()
