"""Usage by evidence, texts that came damaged, and what stands in the place of an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import PromptCount, TransportError, Usage
from contextcliff_dagster.inference.engines.openai.wire_format import read_delta
from contextcliff_dagster.inference.execution.checks import (
    CallSize,
    believed,
    was_truncated,
    whole_prompt,
)
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster_tests.support.records.calls import (
    LedgerSample,
    on_a_thread,
    openai_entry,
    plan_of,
)
from contextcliff_dagster_tests.support.servers.strange_server import (
    KINDS,
    TOKENIZER,
    Asked,
    Kind,
    StrangeServer,
    answer,
)


@given(st.text(st.characters(), max_size=20), st.integers(0, 500))
def test_no_more_output_is_believed_than_bytes_came_whatever_text_it_is(
    text: str, counted: int
) -> None:
    size = CallSize(
        prompt_tokens=40,
        estimated_tokens=40,
        least_prompt_tokens=1,
        output_tokens=8,
        most_reasoning=0,
    )
    came = len(text.encode("utf-8", "surrogatepass"))
    kept = believed(Usage(40, counted, 0, 0), size, text).completion_tokens
    assert kept == min(counted, max(8, came))
    for half in ("\ud83d", "\udc80"):  # of a character: a paid answer was lost by it
        assert believed(Usage(40, 2, 0, 0), size, text + half).completion_tokens == 2


def usage_of(prompt: int, cached: int, completion: int, total: int | None) -> Usage | None:
    told = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    chunk = {"usage": {**told, "prompt_tokens_details": {"cached_tokens": cached}}}
    read = read_delta(chunk)
    return read and read.usage


@given(
    st.integers(1, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**4),
    st.sampled_from(["within", "apart", "apart, in the total"]),
)
def test_a_prompt_is_as_long_wherever_its_cached_tokens_are_counted(
    new: int, cached: int, completion: int, way: str
) -> None:
    prompt = new + cached
    if way == "within":
        usage = usage_of(prompt, cached, completion, prompt + completion)
    elif way == "apart":
        usage = usage_of(new, cached, completion, None)
    else:
        usage = usage_of(new, cached, completion, prompt + completion)
    assert usage
    settled = whole_prompt(usage, PromptCount(prompt))
    assert settled.prompt_tokens == prompt
    assert not was_truncated(PromptCount(prompt), settled.prompt_tokens)


@given(st.integers(1_000, 10**5), st.integers(1, 500), st.floats(0.1, 0.5))
def test_a_prompt_that_was_cut_stays_cut_whatever_was_cached_of_it(
    sent: int, cached: int, kept: float
) -> None:
    own, read = PromptCount(sent), int(kept * sent)
    usage = whole_prompt(Usage(read, 4, min(cached, read, sent - read - 300)), own)
    assert was_truncated(own, usage.prompt_tokens)


@pytest.mark.parametrize("content", [7, True, {"text": "a"}, 1.5])
def test_a_text_of_another_type_is_no_answer(content: object) -> None:
    with pytest.raises(TransportError, match="text was a"):
        read_delta({"choices": [{"delta": {"content": content}}]})


@pytest.mark.parametrize(
    ("choices", "instead"),
    [
        ([{"delta": {"content": None, "refusal": "no"}}], ("refusal", "no")),
        ([{"delta": {"tool_calls": [{"id": 1}]}}], ("tool_calls", '[{"id":1}]')),
        ([None, {"index": 1, "delta": {"content": "b"}}], ("another_choice", "b")),
        ([{"index": 1, "delta": {"content": "a"}}], None),
    ],
)
def test_what_stands_in_the_place_of_an_answer_is_none(
    choices: list[object], instead: tuple[str, str] | None
) -> None:
    delta = read_delta({"choices": choices})
    assert delta
    assert delta.instead == instead
    assert bool(delta.text) is (instead is None)


def rows_of(kind: Kind, folder: Path, sample: LedgerSample, **keys: object) -> list[dict]:
    with (
        on_a_thread(StrangeServer(kind).handle) as url,
        Ledger.open(folder / "state.db") as ledger,
    ):
        entry = openai_entry(url, concurrency=1, revision="r1", tokenizer=TOKENIZER, **keys)
        plan = plan_of(sample, 6)
        measure(plan, entry, ledger)
        return prediction_rows(plan, entry.name, ledger)


def test_a_server_that_counts_new_tokens_alone_has_cut_nothing(tmp_path: Path) -> None:
    """Questions on one document share all but their end, which is what the server read anew."""
    read: set[str] = set()

    def counts_new(one: Asked) -> bytes:
        known = one.text[300:500] in read
        read.add(one.text[300:500])
        return answer(one, prompt_tokens=24 if known else one.tokens)

    rows = rows_of(counts_new, tmp_path, LedgerSample(1, 3, questions=2))
    assert {row["no_answer"] for row in rows} == {None}
    assert [row["prompt_tokens"] for row in rows].count(None) == 3


def test_a_server_that_cuts_is_found_whatever_else_it_read(tmp_path: Path) -> None:
    rows = rows_of(lambda one: answer(one, prompt_tokens=24), tmp_path, LedgerSample(1, 6))
    assert {row["no_answer"] for row in rows} == {"invalid_truncated"}


@pytest.mark.parametrize("kind", KINDS["mixed"].values(), ids=KINDS["mixed"].keys())
def test_a_pinned_model_is_refused_another_answerer_and_keeps_what_it_has(
    kind: Kind, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match=r"is pinned to .*, but"):
        rows_of(kind, tmp_path, LedgerSample(1, 6), pin=True)
    with Ledger.open(tmp_path / "state.db") as ledger:
        assert ledger.stats()["answers"] == 2


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "thinking", "thinking": "7 or 9"}, {"type": "text", "text": "9"}]},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "7 or 9"}]},
                {"type": "text", "text": "9"},
            ]
        },
        {
            "content": [
                {"type": "reasoning", "text": "7 or 9"},
                {"type": "output_text", "text": "9"},
            ]
        },
        {"content": "9", "thinking_blocks": [{"type": "thinking", "thinking": "7 or 9"}]},
        {"content": "9", "reasoning_details": [{"type": "reasoning.text", "text": "7 or 9"}]},
        {"content": "9", "reasoning_details": [{"type": "reasoning.summary", "summary": "7 or 9"}]},
        {"content": "9", "reasoning": "7 or 9", "reasoning_details": [{"text": "7 or 9"}]},
    ],
)
def test_thoughts_in_parts_of_a_reply_are_no_answer(message: dict[str, object]) -> None:
    delta = read_delta({"choices": [{"message": message}]})
    assert delta
    assert (delta.text, delta.reasoning) == ("9", "7 or 9")
