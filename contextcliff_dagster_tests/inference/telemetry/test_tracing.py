"""Spans of a run, its bins and its requests: without texts and secrets, and only on order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from contextcliff_dagster.contracts import ContextCliffError, EngineError
from contextcliff_dagster.inference.execution.measure import open_trace
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.statements import Scope
from contextcliff_dagster.inference.telemetry import Trace
from contextcliff_dagster_tests.support.records.calls import (
    faulty_server,
    openai_entry,
    reference_entry,
)
from contextcliff_dagster_tests.support.records.measured import PRICE, SAMPLE, run

KEY = "canary-51d27f3a9c"
SCOPE = Scope("s", "c", "m", "i")


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    """That of an application's own provider, which may be an earlier test's: a process sets one."""
    exporter = InMemorySpanExporter()
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


@pytest.fixture
def spans(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InMemorySpanExporter]:
    monkeypatch.setenv("CONTEXTCLIFF_OTEL", "1")
    exporter.clear()
    yield exporter
    exporter.clear()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    found = [s for s in exporter.get_finished_spans() if s.name == f"contextcliff {name}"]
    return sorted(found, key=lambda span: span.start_time or 0)


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_run_has_bins_and_bins_have_requests(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    outer = trace.get_tracer("an application").start_span("outer")
    with Ledger.open(tmp_path / "l.db") as ledger:
        with trace.use_span(outer, end_on_exit=True):
            summary = run(ledger, reference_entry(price=PRICE))
        again = run(ledger, reference_entry(price=PRICE))
    (whole,) = named(spans, "run")
    bins, requests = named(spans, "bin"), named(spans, "request")
    assert whole.parent is not None
    assert whole.parent.span_id == outer.get_span_context().span_id
    assert {told(span)["contextcliff.bin"] for span in bins} == set(SAMPLE.bins)
    assert len(bins) == len(SAMPLE.bins)
    assert {span.parent.span_id for span in bins if span.parent} == {whole.context.span_id}
    of_bin = {span.context.span_id: told(span)["contextcliff.bin"] for span in bins}
    held = Counter(of_bin[span.parent.span_id] for span in requests if span.parent)
    assert held == dict.fromkeys(SAMPLE.bins, 6)
    for span in requests:
        assert span.parent is not None
        assert of_bin[span.parent.span_id] == told(span)["contextcliff.bin"]
        assert told(span)["gen_ai.usage.input_tokens"] > 0
        assert told(span)["contextcliff.attempt"] == 1
        # Within its bin, and its bin within the run.
        (parent,) = [b for b in bins if b.context.span_id == span.parent.span_id]
        for inner, around in ((span, parent), (parent, whole)):
            assert (around.start_time or 0) <= (inner.start_time or 0)
            assert (inner.end_time or 0) <= (around.end_time or 0)
    assert told(whole)["contextcliff.calls.sent"] == summary.sent == 18
    tokens = sum(told(span)["gen_ai.usage.input_tokens"] for span in requests)
    assert told(whole)["gen_ai.usage.input_tokens"] == summary.prompt_tokens == tokens
    assert told(whole)["contextcliff.cost_usd"] == pytest.approx(summary.cost_usd)
    # A run that has nothing to ask starts nothing, and traces nothing.
    assert again.cached == 18
    assert len(named(spans, "run")) == 1


def everything(span: ReadableSpan) -> str:
    return json.dumps(json.loads(span.to_json())) + repr(span.status.description)


def test_every_request_has_a_span_and_none_has_a_text_or_a_secret(
    tmp_path: Path, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMOTE_KEY", KEY)
    script = ["500", "stream_error", "429", "cut", "400", "truncated", "400_overflow", "ok"]
    with faulty_server(script) as url, Ledger.open(tmp_path / "l.db") as ledger:
        entry = openai_entry(
            url, concurrency=1, api_key_env="REMOTE_KEY", max_attempts=8, tokenizer="reference"
        )
        summary = run(ledger, entry)
    requests = named(spans, "request")
    assert len(requests) == summary.sent == 18 + 4
    failed = [
        told(span) for span in requests if not span.status.is_ok and "error.type" in told(span)
    ]
    kinds = [(f["error.type"], f.get("http.response.status_code")) for f in failed]
    assert [status for _, status in kinds] == [500, None, 429, None, 400]
    assert kinds[-1] == ("rejected", 400)
    assert [f["contextcliff.maybe_paid"] for f in failed] == [False, True, False, True, False]
    assert [told(span)["contextcliff.attempt"] for span in requests[:5]] == [1, 2, 3, 4, 5]
    outcomes = [told(span).get("contextcliff.no_answer") for span in requests]
    assert "context_overflow" in outcomes
    secrets = [KEY, url, "937915", "GPU fell off", "offends"]
    texts = []
    for name in SAMPLE.bins:
        for planned in SAMPLE.planned(name, 6):
            document = SAMPLE.document_text(planned.example.document_id)
            texts += [planned.example.question, document[:40], document[-40:]]
    for span in spans.get_finished_spans():
        said = everything(span)
        assert not [text for text in (*secrets, *texts) if text in said]
        assert not span.events  # an exception's message would be one


def test_a_run_that_a_fault_ends_still_closes_all_its_spans(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    with (
        faulty_server(["ok", "401"]) as url,
        Ledger.open(tmp_path / "l.db") as ledger,
        pytest.raises(EngineError),
    ):
        run(ledger, openai_entry(url, concurrency=1))
    (whole,) = named(spans, "run")
    assert not whole.status.is_ok
    requests = named(spans, "request")
    assert len(requests) == 2
    begun = {span.parent.span_id for span in requests if span.parent}
    assert {span.context.span_id for span in named(spans, "bin") if span.context} == begun
    assert all(span.end_time for span in spans.get_finished_spans())


@pytest.mark.parametrize("value", [None, "", "0"])
def test_without_the_switch_there_is_no_trace(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("CONTEXTCLIFF_OTEL", value)
    assert type(open_trace(SCOPE, 3)) is Trace


def test_without_opentelemetry_the_switch_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_OTEL", "1")
    monkeypatch.setitem(sys.modules, "contextcliff_dagster.inference.otel_spans", None)
    with pytest.raises(ContextCliffError, match=r"pip install 'contextcliff-dagster\[otel\]'"):
        open_trace(SCOPE, 3)


MEASURE = """
import sys
from pathlib import Path
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster_tests.support.records.measured import run
from contextcliff_dagster_tests.support.records.calls import reference_entry
with Ledger.open(Path(sys.argv[1])) as ledger:
    print(run(ledger, n=1).sent)
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def measured(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder / "l.db")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_run_without_the_switch_imports_nothing_of_it(tmp_path: Path) -> None:
    done = measured(tmp_path, OTEL_TRACES_EXPORTER="console")
    assert done.stdout.split("\n")[:2] == ["3", "[]"], done.stderr


def test_without_a_provider_one_is_made_as_the_environment_says(tmp_path: Path) -> None:
    done = measured(tmp_path, CONTEXTCLIFF_OTEL="1", OTEL_TRACES_EXPORTER="console")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3\n")
    assert done.stderr.count('"name": "contextcliff request"') == 3
    assert done.stderr.count('"name": "contextcliff run"') == 1
    assert '"service.name": "contextcliff"' in done.stderr


def test_an_exporter_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = measured(tmp_path, CONTEXTCLIFF_OTEL="1", OTEL_TRACES_EXPORTER="pigeon")
    assert done.returncode != 0
    assert "exporter 'pigeon' (OTEL_TRACES_EXPORTER), which is not installed" in done.stderr
