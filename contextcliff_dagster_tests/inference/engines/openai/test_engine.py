"""What an endpoint does wrong is sorted into: try again, a result, this call's end, or the run's
end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.cli.commands.report import spent_lines
from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import declared_identity
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.telemetry import RunSummary
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    LedgerSample,
    faulty_server,
    openai_entry,
    plan_of,
    read_log,
    reference_server,
)

ONE = LedgerSample(1, 1)
KEY = "canary-7f3a9c51d2"


def run(
    tmp_path: Path, script: list[str], sample: LedgerSample = ONE, n: int = 1, **changes: Any
) -> tuple[RunSummary, list[dict[str, Any]], list[dict[str, Any]]]:
    """Measure over an endpoint with this script: summary, rows, what the endpoint was sent."""
    log = tmp_path / "requests.jsonl"
    with faulty_server(script, log) as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=1, revision="r1", **changes)
        plan = plan_of(sample, n)
        summary = measure(plan, entry, ledger)
        rows = prediction_rows(plan, entry.name, ledger)
    return summary, rows, read_log(log)


@pytest.mark.parametrize(
    "fault",
    [
        "429",
        "500",
        "503",
        "reset",
        "cut",
        "cut_hard",
        "html",
        "empty_json",
        "broken_json",
        "stream_error",
        "finish_error",
    ],
)
def test_a_fault_of_the_transport_is_tried_again(tmp_path: Path, fault: str) -> None:
    summary, rows, sent = run(tmp_path, [fault, "ok"])
    assert [line["behaviour"] for line in sent] == [fault, "ok"]
    assert (summary.retries, summary.answered) == (1, 1)
    assert rows[0]["raw_output"] == "937915"
    assert rows[0]["attempts"] == 2


def test_a_server_that_stalls_is_given_up_after_the_timeout_and_may_have_been_paid(
    tmp_path: Path,
) -> None:
    summary, rows, sent = run(tmp_path, ["stall", "ok"], timeout_s=5.0)
    assert len(sent) == 2
    assert rows[0]["raw_output"] == "937915"
    with Ledger.open(tmp_path / "state.db") as ledger:
        assert ledger.stats()["maybe_paid"] == 1
    assert summary.retries == 1


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("nothing", ""),
        ("reasoning", "937915"),
        ("parts", "937915"),
        ("whole", "937915"),
        ("ok", "937915"),
    ],
)
def test_an_answer_is_a_result_however_bad(tmp_path: Path, answer: str, text: str) -> None:
    summary, rows, sent = run(tmp_path, [answer, "500"])
    assert len(sent) == 1
    assert summary.answered == 1
    assert (rows[0]["raw_output"], rows[0]["no_answer"]) == (text, None)


def test_an_answer_that_came_whole_has_a_duration_and_no_time_to_the_first_token(
    tmp_path: Path,
) -> None:
    _, rows, _ = run(tmp_path, ["whole"])
    assert rows[0]["duration_ms"] > 0
    assert (rows[0]["ttft_ms"], rows[0]["completion_tokens"]) == (None, 2)


def test_what_a_server_leaves_out_of_its_usage_is_charged_as_reserved(tmp_path: Path) -> None:
    price = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 1e6 / RECIPE.max_output_tokens}
    _, rows, _ = run(tmp_path, ["half_usage"], price=price)
    assert rows[0]["cost_usd"] is None
    with Ledger.open(tmp_path / "state.db") as ledger:
        assert ledger.spent("s", "c").usd == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("401", "asks for a key"),
        ("403", "access is refused"),
        ("404", "no such model"),
        ("quota", "quota is used up"),
        ("400_temperature", r"quirks: \{temperature: omit\}"),
        ("400_one_only", r"quirks: \{temperature: omit\}"),
        ("422_positive", r"quirks: \{temperature: omit\}"),
        ("400_max_tokens", r"quirks: \{max_tokens_parameter: max_completion_tokens\}"),
        ("400_stream_options", r"quirks: \{stream_usage: omit\}"),
        ("400_too_many", r"`prompt: max_output_tokens` of the study"),
    ],
)
def test_what_no_further_request_can_mend_ends_the_run_at_once(
    tmp_path: Path, fault: str, says: str
) -> None:
    with pytest.raises(EngineError, match=says):
        run(tmp_path, [fault], LedgerSample(1, 5), n=5)
    assert len(read_log(tmp_path / "requests.jsonl")) == 1


def test_an_overflow_that_only_the_server_can_see_is_context_overflow(tmp_path: Path) -> None:
    summary, rows, sent = run(tmp_path, ["400_overflow"])
    assert (len(sent), summary.context_overflow, rows[0]["no_answer"]) == (1, 1, "context_overflow")


def test_a_throttled_call_is_asked_again_whatever_it_says_of_tokens(tmp_path: Path) -> None:
    summary, rows, sent = run(tmp_path, ["429_tokens", "ok"])
    assert (len(sent), summary.answered, summary.context_overflow) == (2, 1, 0)
    assert rows[0]["no_answer"] is None


def test_what_a_content_filter_refuses_is_recorded_and_not_sent_again(tmp_path: Path) -> None:
    summary, rows, sent = run(tmp_path, ["filter"])
    assert (len(sent), summary.content_filter, rows[0]["no_answer"]) == (1, 1, "content_filter")
    assert "offends" in rows[0]["error"]


@pytest.mark.parametrize(
    ("fault", "quirks"),
    [
        ("400_a_quote", {}),  # the parameter's name is in the quoted prompt
        ("400_temperature", {"temperature": "omit"}),  # what it asks for is set already
        ("400_unfinished", {}),
    ],
)
def test_a_refusal_that_no_setting_mends_is_of_one_call(
    tmp_path: Path, fault: str, quirks: dict[str, str]
) -> None:
    summary, rows, sent = run(tmp_path, [fault], LedgerSample(1, 2), n=2, quirks=quirks)
    assert (len(sent), summary.transport_errors) == (2, 2)
    assert ("max_output_tokens" in rows[0]["error"]) == (fault == "400_unfinished")


@pytest.mark.parametrize("answer", ["reasoning_told", "reasoning_beside"])
def test_tokens_of_reasoning_are_counted_apart_and_kept(tmp_path: Path, answer: str) -> None:
    price = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 1000}
    summary, rows, _ = run(tmp_path, [answer], price=price)
    row = rows[0]
    assert (row["raw_output"], row["completion_tokens"], row["reasoning_tokens"]) == (
        "937915",
        7,
        5,
    )
    assert (summary.reasoning_tokens, summary.reasoned_out, row["error"]) == (5, 0, None)
    assert row["cost_usd"] == pytest.approx(0.007), "reasoning is paid for"
    with Ledger.open(tmp_path / "state.db") as ledger:
        assert ledger.read("SELECT reasoning_tokens FROM results") == [(5,)]


def test_an_answer_that_reasoning_left_no_room_for_names_the_setting(tmp_path: Path) -> None:
    summary, rows, _ = run(tmp_path, ["reasoned_out", "ok"], LedgerSample(1, 9), n=9)
    assert (summary.answered, summary.reasoned_out, summary.reasoning_tokens) == (9, 1, 8)
    (row,) = [row for row in rows if row["error"]]
    assert (row["raw_output"], row["no_answer"], row["finish_reason"]) == ("", None, "length")
    assert "raise `prompt: max_output_tokens` of the study" in row["error"]


def test_what_reasoning_took_and_left_is_said_at_the_end_of_a_run() -> None:
    one = RunSummary(planned=9, sent=9, answered=9, completion_tokens=70, reasoning_tokens=50)
    (line,) = spent_lines({"a": one}, "tiny")
    assert "70 tokens (50 of them reasoning)" in line
    lines = spent_lines(
        {"a": one, "b": replace(one, reasoned_out=2, unchecked_truncation=9)}, "tiny"
    )
    assert any(
        line.startswith("2 answers came back empty") and "max_output_tokens" in line
        for line in lines
    )
    assert any(
        line.startswith("Silent truncation not checked for 9 answers") and "`tokenizer`" in line
        for line in lines
    )


def test_no_more_answers_are_bought_where_reasoning_leaves_room_for_none(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"8 tokens by reasoning.*max_output_tokens"):
        run(tmp_path, ["reasoned_out"], LedgerSample(1, 9), n=9)
    assert len(read_log(tmp_path / "requests.jsonl")) == 5
    with Ledger.open(tmp_path / "state.db") as ledger:
        assert ledger.stats()["answers"] == 5, "what is paid for is kept"


def test_a_document_longer_than_the_window_is_never_sent(tmp_path: Path) -> None:
    for tokenizer in (None, "reference"):
        folder = tmp_path / str(tokenizer)
        folder.mkdir()
        summary, rows, sent = run(folder, ["ok"], window_tokens=30, tokenizer=tokenizer)
        assert (len(sent), summary.context_overflow, rows[0]["attempts"]) == (0, 1, 0)
        assert "not sent" in rows[0]["error"]


def test_a_server_that_read_fewer_tokens_than_were_sent_is_not_believed(tmp_path: Path) -> None:
    sample = LedgerSample(1, 1, max_tokens=600, seed=3)
    summary, rows, _ = run(tmp_path, ["truncated"], sample, tokenizer="reference")
    assert (summary.invalid_truncated, rows[0]["no_answer"]) == (1, "invalid_truncated")
    assert "the server read 20 of the 49 prompt tokens sent" in rows[0]["error"]


def test_without_a_count_of_our_own_the_check_is_said_to_be_missing(tmp_path: Path) -> None:
    summary, _, _ = run(tmp_path, ["truncated"])
    assert (summary.unchecked_truncation, summary.invalid_truncated) == (1, 0)


def test_a_dead_server_opens_the_breaker_and_the_sentence_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"4 requests in a row.*run the same command"):
        run(tmp_path, ["500"], LedgerSample(1, 5), n=5, breaker_failures=4)
    assert len(read_log(tmp_path / "requests.jsonl")) == 4


def test_being_asked_to_slow_down_is_no_breakdown(tmp_path: Path) -> None:
    sample, log = LedgerSample(1, 5), tmp_path / "requests.jsonl"
    with faulty_server(["429"] * 10 + ["ok"], log) as url, Ledger.open(tmp_path / "l.db") as ledger:
        entry = openai_entry(url, concurrency=5, breaker_failures=4)
        summary = measure(plan_of(sample, 5), entry, ledger)
    assert (summary.answered, summary.retries) == (5, 10)


def test_an_exhausted_call_is_a_row_without_answer_and_is_tried_again_by_the_next_run(
    tmp_path: Path,
) -> None:
    summary, rows, _ = run(tmp_path, ["500"], max_attempts=2)
    assert (summary.transport_errors, rows[0]["no_answer"], rows[0]["attempts"]) == (
        1,
        "transport_error",
        2,
    )
    summary, rows, _ = run(tmp_path, ["ok"], max_attempts=2)
    assert (summary.answered, rows[0]["no_answer"]) == (1, None)


def test_an_unreachable_endpoint_is_one_sentence_at_once(tmp_path: Path) -> None:
    entry = openai_entry("http://user:secret@127.0.0.1:9/v1")
    refused = pytest.raises(EngineError, match="cannot be reached")
    with Ledger.open(tmp_path / "state.db") as ledger, refused as caught:
        measure(plan_of(ONE, 1), entry, ledger)
    assert "secret" not in str(caught.value)


def test_a_key_that_is_not_set_or_empty_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY_KEY", "")
    for name in ("NO_SUCH_KEY_SET", "EMPTY_KEY"):
        with pytest.raises(EngineError, match=name):
            run(tmp_path, ["ok"], api_key_env=name)


@pytest.mark.parametrize("fault", ["models_401", "401", "500", "stream_error"])
def test_a_key_that_the_server_echoes_is_nowhere(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    try:
        _, rows, _ = run(tmp_path, [fault], api_key_env="MY_KEY", max_attempts=1)
        said = json.dumps(rows, default=str)
    except EngineError as refusal:
        said = str(refusal)
    assert KEY not in said
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*") if path.is_file())
    assert KEY.encode() not in kept


def test_a_user_in_the_address_and_a_key_are_one_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "hunter2-key")
    url = "http://me:hunter2@127.0.0.1:9/v1"
    entry = openai_entry(url, api_key_env="MY_KEY")
    with (
        Ledger.open(tmp_path / "state.db") as ledger,
        pytest.raises(EngineError, match="a request can carry only one of them") as caught,
    ):
        sample = LedgerSample(1, 1)
        measure(plan_of(sample, 1), entry, ledger)
    assert "hunter2" not in str(caught.value)


def test_nobody_elses_key_is_sent_to_an_endpoint_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    _, _, sent = run(tmp_path, ["ok"])
    assert KEY not in json.dumps(sent)


def test_quirks_are_obeyed(tmp_path: Path) -> None:
    quirks = {
        "temperature": "omit",
        "max_tokens_parameter": "max_completion_tokens",
        "stream_usage": "omit",
    }
    _, _, sent = run(tmp_path, ["ok"], quirks=quirks)
    body = sent[0]["body"]
    assert "temperature" not in body
    assert "max_tokens" not in body
    assert "stream_options" not in body
    assert body["max_completion_tokens"] == 8


@pytest.mark.parametrize(
    ("quirks", "same"),
    [
        ({"temperature": "omit"}, False),
        ({"prefill": "last_message"}, False),
        ({"max_tokens_parameter": "max_completion_tokens", "stream_usage": "omit"}, True),
    ],
)
def test_a_setting_that_changes_answers_is_part_of_the_identity(
    quirks: dict[str, str], same: bool
) -> None:
    url = "http://127.0.0.1:1/v1"
    changed = declared_identity(openai_entry(url, quirks=quirks))
    assert (changed == declared_identity(openai_entry(url))) is same


def test_an_answer_that_is_sent_as_a_thought_is_found_where_all_are(tmp_path: Path) -> None:
    alone = LedgerSample(1, 3)
    _, rows, _ = run(tmp_path, ["reasoning_answer"] * 3, alone, 3)
    assert [row["raw_output"] for row in rows] == ["937915"] * 3
    assert {row["extra"] for row in rows} == {'{"answer_in": "thoughts", "model": "m"}'}
    _, mixed, _ = run(tmp_path / "mixed", ["reasoning_answer", "ok", "ok"], alone, 3)
    assert [row["raw_output"] for row in mixed].count("") == 1
    assert not any("answer_in" in row["extra"] for row in mixed)


def test_over_http_the_reference_model_says_what_it_says_in_process(tmp_path: Path) -> None:
    from contextcliff_dagster_tests.support.records.calls import reference_entry

    sample = LedgerSample(2, 5, max_tokens=400)
    said = []
    with reference_server() as url, Ledger.open(tmp_path / "state.db") as ledger:
        for entry in (reference_entry(), openai_entry(url, tokenizer="reference")):
            plan = plan_of(sample, 5)
            summary = measure(plan, entry, ledger)
            assert summary.answered == 10
            rows = prediction_rows(plan, entry.name, ledger)
            said.append(
                [
                    (r["raw_output"], r["finish_reason"], r["prompt_tokens"], r["prompt_hash"])
                    for r in rows
                ]
            )
        assert said[0] == said[1]
        keys = [row["call_key"] for row in rows]
        assert all(
            ledger.prompt(key).hash == value for key, value in ledger.prompt_hashes(keys).items()
        )
