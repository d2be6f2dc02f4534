"""A gateway lets through what the policy holds for, by a count that is never too low."""

from __future__ import annotations

import json
import logging
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from contextcliff_dagster.gateway.gate import Gate, prompt_of, upper_bound
from contextcliff_dagster.gateway.settings import CAP_SHARE, EXPIRED, REQUESTS, GateSettings
from contextcliff_dagster.policy import PolicyError
from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.support.files.policies import TODAY, policy_row, write_policies
from contextcliff_dagster_tests.support.o200k import O200K

LONG = "word " * 3_000
COUNTERS = [open_tokenizer("reference"), O200K]


def gate_of(path: Path, *rows: dict[str, Any], meter_provider: Any = None, **settings: Any) -> Gate:
    policy = write_policies(path / "safe-context.json", *(rows or (policy_row("m"),)))
    return Gate(GateSettings.of({"policy": str(policy), **settings}), meter_provider)


def chat(text: str, model: str = "m") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def message_of(error: dict[str, Any] | None) -> str:
    assert error is not None
    return str(error["error"]["message"])


@given(st.text(st.characters(codec=None), max_size=300))
def test_the_upper_bound_is_never_below_a_count(text: str) -> None:
    for counter in COUNTERS:
        assert counter.count(text) <= upper_bound(text)


@given(st.text("ab cde,.\n1é漢", max_size=600), st.integers(1, 300))
def test_exactly_what_the_tokenizer_counts_above_the_cap_is_refused(
    tmp_path: Path, text: str, cap: int
) -> None:
    gate = gate_of(tmp_path, policy_row("m", cap))
    decision = gate.decide(chat(text))
    assert (decision.outcome == "refused") == (COUNTERS[0].count(text) > cap)


def test_a_refusal_names_cap_count_model_task_and_date(tmp_path: Path) -> None:
    error = gate_of(tmp_path).decide(chat("word " * 3_000)).error
    tokens = COUNTERS[0].count("word " * 3_000)
    message = message_of(error)
    for part in (f"{tokens:,} tokens", "1,000", "for m ", "task lookup", TODAY.isoformat()):
        assert part in message
    assert error is not None
    assert error["error"]["code"] == "context_length_exceeded"
    assert error["error"]["contextcliff"] == {
        "model": "m", "task": "lookup", "policy_date": TODAY.isoformat(),
        "tokens": tokens, "cap_tokens": 1_000,
    }  # fmt: skip


@given(st.lists(st.text("abc ", min_size=1, max_size=30), min_size=1, max_size=8), st.data())
def test_all_text_is_counted_wherever_it_is(words: list[str], data: st.DataObject) -> None:
    shapes = [
        {"messages": [{"role": "user", "content": one} for one in words]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": w} for w in words]}]},
        {"system": words[0], "messages": [{"role": "user", "content": w} for w in words[1:]]},
        {"system": [{"type": "text", "text": w} for w in words]},
        {"instructions": words[0], "input": "".join(words[1:])},
        {"input": [{"content": [{"type": "input_text", "text": w}]} for w in words]},
        {"prompt": "".join(words)},
        {"messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": w}]},
            {"type": "document", "source": {"type": "text", "media_type": "t", "data": ""}},
        ]} for w in words]},
    ]  # fmt: skip
    prompt = prompt_of(data.draw(st.sampled_from(shapes)))
    assert prompt.unseen is None
    assert sorted("".join(prompt.texts[0])) == sorted("".join(words))


@pytest.mark.parametrize(
    "body",
    [
        {"input": [{"type": "reasoning", "encrypted_content": "0x"}]},
        {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
        {"messages": [{"content": [{"type": "document", "source": {"type": "base64"}}]}]},
        {"input": "hi", "previous_response_id": "r1"},
        {"prompt": {"id": "stored"}},
        {},
    ],
    ids=["encrypted", "image", "document", "history", "stored prompt", "no prompt"],
)  # fmt: skip
def test_what_cannot_be_counted_goes_by_the_setting(tmp_path: Path, body: dict[str, Any]) -> None:
    known = body == {}
    for setting, refused in (("pass", False), ("refuse", not known)):
        decision = gate_of(tmp_path, unknown=setting).decide({"model": "m", **body})
        assert (decision.error is not None) == refused
        assert decision.outcome == ("passed" if known else "uncounted")


def test_the_longest_of_several_prompts_counts_and_token_ids_are_the_models_own(
    tmp_path: Path,
) -> None:
    gate = gate_of(tmp_path)
    assert gate.decide({"model": "m", "prompt": ["a " * 400] * 9}).outcome == "passed"
    assert gate.decide({"model": "m", "prompt": ["a", "word " * 3_000]}).outcome == "refused"
    assert gate.decide({"model": "m", "prompt": [7] * 1_200}).outcome == "passed"
    assert gate.decide({"model": "m", "prompt": [[7], [7] * 1_201]}).outcome == "refused"
    without = gate_of(tmp_path, policy_row("m", cap_prompt_tokens=None))
    assert without.decide({"model": "m", "prompt": [7] * 10}).outcome == "uncounted"


def test_a_long_prompt_goes_to_the_first_model_whose_cap_it_keeps(tmp_path: Path) -> None:
    rows = [policy_row("m"), policy_row("middle", 2_000), policy_row("large", 100_000)]
    gate = gate_of(tmp_path, *rows, route_to={"m": "middle", "middle": "large", "large": "m"})
    assert gate.decide(chat("a " * 400)).model is None
    assert gate.decide(chat("word " * 350)).model == "middle"
    assert gate.decide(chat("word " * 3_000)).model == "large"
    assert gate.decide(chat("word " * 30_000)).outcome == "refused"
    gone = policy_row("middle", 2_000, expiry=(TODAY - timedelta(days=1)).isoformat())
    gate = gate_of(tmp_path, rows[0], gone, route_to={"m": "middle"})
    assert gate.decide(chat("word " * 350)).outcome == "refused"
    gate = gate_of(tmp_path, rows[0], route_to={"m": "unmeasured"})
    assert gate.decide(chat("word " * 3_000)).model == "unmeasured"


def test_a_model_without_a_policy_goes_by_the_setting(tmp_path: Path) -> None:
    body = chat("word " * 3_000, "other")
    assert gate_of(tmp_path).decide(body).error is None
    assert "no safe cap" in message_of(gate_of(tmp_path, unknown="refuse").decide(body).error)
    assert gate_of(tmp_path, models={"other": "m"}).decide(body).outcome == "refused"
    for wrong in (None, [], "text", {"messages": []}, {"model": 7}):
        assert gate_of(tmp_path).decide(wrong).error is None
        assert gate_of(tmp_path, unknown="refuse").decide(wrong).error is not None


def test_an_expired_policy_refuses_enforces_or_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = policy_row("m", expiry=(TODAY - timedelta(days=1)).isoformat())
    short, long = chat("a"), chat("word " * 3_000)
    gate = gate_of(tmp_path, old)
    assert "expired on" in message_of(gate.decide(short).error)
    assert gate.decide(short).outcome == "expired"
    assert caplog.text.count("expired on") == 1
    gate = gate_of(tmp_path, old, expired="enforce")
    assert gate.decide(short).error is None
    assert gate.decide(long).outcome == "refused"
    assert gate_of(tmp_path, old, expired="pass").decide(long).error is None


def test_a_changed_policy_holds_at_once_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate, file = gate_of(tmp_path), tmp_path / "safe-context.json"
    long = chat("word " * 3_000)
    assert gate.decide(long).outcome == "refused"
    write_policies(file, policy_row("m", 100_000))
    assert gate.decide(long).outcome == "passed"
    for content in (b"", b'[{"model": "m"}]', b"\xff", None):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        caplog.clear()
        assert [gate.decide(long).outcome for _ in range(3)] == ["passed"] * 3
        assert caplog.text.count("stay in force") == 1
    write_policies(file, policy_row("m"), policy_row("n"))
    assert gate.decide(long).outcome == "refused"


@pytest.mark.parametrize(
    ("row", "missing", "named"),
    [
        ({"tokenizer": "file:/nowhere/t.json"}, (), "'file:/nowhere/t.json'.* is no such file"),
        ({"tokenizer": "tiktoken:none"}, (), "no encoding 'none'"),
        ({"tokenizer": "tiktoken:o200k_base"}, ("tiktoken",), "pip install tiktoken bpe-openai"),
        ({}, ("tokenizers",), "'reference' needs .* pip install tokenizers"),
        ({"tokenizer_sha256": "0" * 64}, (), "reference is not the tokenizer"),
        ({"tokenizer": None}, (), "names no tokenizer"),
    ],
    ids=["no file", "unknown", "no tiktoken", "no tokenizers", "other vocabulary", "none"],
)
def test_a_gateway_that_cannot_count_does_not_start_unless_bytes_are_accepted(
    tmp_path: Path,
    row: dict[str, Any],
    missing: tuple[str, ...],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for package in missing:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PolicyError, match=f"^The gateway cannot count .*{named}") as refused:
        gate_of(tmp_path, policy_row("other"), policy_row("m", **row))
    assert "`count: bytes`" in str(refused.value)
    assert caplog.text == ""
    gate = gate_of(tmp_path, policy_row("other"), policy_row("m", **row), count="bytes")
    assert gate.decide(chat("word " * 190)).outcome == "passed"
    for model in ("m", "other", "m"):
        message = message_of(gate.decide(chat("word " * 210, model)).error)
        assert "at most 1,051 tokens by bytes may be above" in message
    assert caplog.text.count("upper bound") == 1


@given(st.text(st.characters(codec=None), max_size=400), st.integers(1, 400))
def test_no_way_to_count_passes_a_prompt_above_the_cap(tmp_path: Path, text: str, cap: int) -> None:
    for count in ("tokenizer", "bytes"):
        decision = gate_of(tmp_path, policy_row("m", cap), count=count).decide(chat(text))
        assert decision.error is not None or COUNTERS[0].count(text) <= cap


def test_a_policys_tokenizer_may_lie_elsewhere_on_this_machine(tmp_path: Path) -> None:
    where = {"m": f"file:{COUNTERS[0]._path}"}  # type: ignore[attr-defined]
    gate = gate_of(tmp_path, policy_row("m", tokenizer="file:/nowhere/t.json"), tokenizers=where)
    assert "tokens (file:/nowhere/t.json)" in message_of(gate.decide(chat("word " * 999)).error)


def test_the_cap_of_a_new_policy_holds_even_where_its_tokenizer_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = gate_of(tmp_path, policy_row("m", 5_000))
    text = chat("word " * 300)
    assert gate.decide(text).outcome == "passed"
    new = policy_row("m", 1_000, tokenizer="file:/nowhere/t.json")
    write_policies(tmp_path / "safe-context.json", new)
    for _ in range(3):
        message = message_of(gate.decide(text).error)
    assert "at most 1,501 tokens by bytes" in message
    assert caplog.text.count("upper bound") == 1


def test_an_allowance_is_for_what_every_prompt_has_besides(tmp_path: Path) -> None:
    text = chat("word " * 200)
    tokens = COUNTERS[0].count("word " * 200)
    rows = policy_row("m", tokens - 10)
    assert gate_of(tmp_path, rows, allowance_tokens=10).decide(text).outcome == "passed"
    error = gate_of(tmp_path, rows, allowance_tokens=9).decide(text).error
    assert f"{tokens - 10:,} and 9 besides the document" in message_of(error)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"polcy": "x"}, "no setting 'polcy'"),
        ({}, "needs the setting 'policy'"),
        ({"policy": "x", "unknown": "maybe"}, "pass, refuse"),
        ({"policy": "x", "expired": True}, "refuse, enforce, pass"),
        ({"policy": "x", "count": "characters"}, "tokenizer, bytes"),
        ({"policy": "x", "route_to": "large"}, "'route_to' must map names to names"),
        ({"policy": "x", "models": {"a": 1}}, "'models' must map names to names"),
        ({"policy": "x", "allowance_tokens": -1}, "'allowance_tokens' is -1"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(PolicyError, match=named):
        GateSettings.of(settings)


def test_a_gateway_does_not_start_without_a_policy(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="Cannot read the policy"):
        Gate(GateSettings.of({"policy": tmp_path / "none.json"}))


def test_counts_are_opentelemetry_metrics(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    old = policy_row("old", expiry=(TODAY - timedelta(days=1)).isoformat())
    gate = gate_of(
        tmp_path,
        policy_row("m"),
        policy_row("n"),
        old,
        route_to={"n": "x"},
        meter_provider=provider,
    )
    for body in (
        chat("a"), chat("a"), chat("word " * 3_000), chat("word " * 3_000, "n"), chat("a", "old"),
        chat("a", "callers-own"),
    ):  # fmt: skip
        gate.decide(body)
    counts, expired, shares = {}, {}, {}
    metrics = json.loads(reader.get_metrics_data().to_json())["resource_metrics"][0]  # type: ignore[union-attr]
    for metric in metrics["scope_metrics"][0]["metrics"]:
        for point in metric["data"]["data_points"]:
            named = point["attributes"]
            model = named.get("gen_ai.request.model")
            if metric["name"] == REQUESTS:
                counts[named["contextcliff.outcome"], model] = point["value"]
            elif metric["name"] == EXPIRED:
                expired[model] = point["value"]
            elif metric["name"] == CAP_SHARE:
                shares[model, named["contextcliff.counted_by"]] = point["count"], point["max"]
    assert counts == {
        ("passed", "m"): 2,
        ("refused", "m"): 1,
        ("routed", "n"): 1,
        ("expired_refused", "old"): 1,
        ("no_policy", None): 1,
    }
    assert expired == {"old": 1}
    share = COUNTERS[0].count("word " * 3_000) / 1_000
    assert shares == {
        ("m", "upper_bound"): (2, 0.002),
        ("m", "tokenizer"): (1, share),
        ("n", "tokenizer"): (1, share),
    }


def test_without_opentelemetry_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("opentelemetry", "opentelemetry.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    assert gate_of(tmp_path).decide(chat("word " * 3_000)).outcome == "refused"


def test_the_log_is_the_packages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "contextcliff_dagster.gateway"):
        gate_of(tmp_path, route_to={"m": "large"}).decide(chat("word " * 3_000))
    assert "goes to large" in caplog.text
