"""What goes over the wire is the prompt, however its document was encoded; what comes is read
whole, however it was cut."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Decoding, Timing
from contextcliff_dagster.inference.engines.openai.engine import declared_openai_identity
from contextcliff_dagster.inference.engines.openai.http_client import EventReader
from contextcliff_dagster.inference.engines.openai.wire_format import read_delta, request
from contextcliff_dagster.inference.models.entry import request_headers
from contextcliff_dagster.inference.requests.recipe import MARK, Recipe, SharedText, shared_text
from contextcliff_dagster_tests.support.records.calls import openai_entry

ENTRY = openai_entry("http://127.0.0.1:9/v1")
RECIPES = [
    Recipe(),
    Recipe(template="{question}\n{document}", system='say "yes"'),
    Recipe(mode="chat_prefill", answer_prefix="It is "),
    Recipe(mode="completion", answer_prefix="# "),
]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


@given(document=TEXTS, question=TEXTS, recipe=st.sampled_from(RECIPES))
def test_a_document_encoded_once_gives_the_same_request_and_hash(
    document: str, question: str, recipe: Recipe
) -> None:
    plain = recipe.render(document, question)
    shared = recipe.render(SharedText(document), question)
    assert shared == plain
    assert shared.hash == plain.hash
    decoding = Decoding(8)
    for prompt in (plain, shared):
        path, parts = request(ENTRY, prompt, decoding)
        body = json.loads(b"".join(parts))
        if recipe.mode == "completion":
            assert (path, body["prompt"]) == ("/completions", plain.text)
        else:
            assert (path, body["messages"]) == ("/chat/completions", plain.as_dicts())
            assert ("continue_final_message" in body) == (recipe.mode == "chat_prefill")


def test_further_keys_are_in_the_request_and_in_the_identity_and_nothing_else_changes() -> None:
    asked = {
        "extra_body": {"provider": {"order": ["a"]}},
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False},
    }
    plain, more = (openai_entry("http://127.0.0.1:9/v1", **keys) for keys in ({}, asked))
    prompt = RECIPES[0].render("a document", "a question?")
    bodies = [json.loads(b"".join(request(one, prompt, Decoding(8))[1])) for one in (plain, more)]
    sent = {**asked["extra_body"], **{k: v for k, v in asked.items() if k != "extra_body"}}
    assert bodies[1] == bodies[0] | sent
    before, after = map(declared_openai_identity, (plain, more))
    assert after == before | {"request": sent}
    tiered = openai_entry("http://127.0.0.1:9/v1", extra_headers={"X-Tier": "batch"})
    assert declared_openai_identity(tiered) == before | {"headers": {"X-Tier": "batch"}}
    assert request_headers(tiered, "It", EngineError)["X-Tier"] == "batch"


def test_two_questions_over_one_document_have_the_hashes_of_their_own() -> None:
    document = SharedText("ledger of day 217")
    for question in ("where?", "how many?", f"what is {MARK}?", ""):
        for recipe in RECIPES:
            plain = recipe.render(document.text, question)
            shared = recipe.render(document, question)
            assert shared.hash == plain.hash
            (_, parts), (_, whole) = (request(ENTRY, p, Decoding(8)) for p in (shared, plain))
            assert json.loads(b"".join(parts)) == json.loads(b"".join(whole))


def test_the_last_documents_are_kept_and_no_more() -> None:
    loaded: list[str] = []

    def load(name: str) -> str:
        loaded.append(name)
        return "x" * 20_000_000

    names = ["kept-or-not-a", "kept-or-not-b"]
    assert shared_text(names[0], load) is shared_text(names[0], load)
    shared_text(names[1], load)
    shared_text(names[0], load)
    assert loaded == [names[0], names[1], names[0]]


@given(
    events=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), max_size=6),
    newline=st.sampled_from(["\n", "\r\n"]),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    last_line_ends=st.booleans(),
)
def test_events_are_the_same_wherever_the_network_cuts_them(
    events: list[str], newline: str, cuts: list[int], last_line_ends: bool
) -> None:
    lines = [f": a comment{newline}event: x{newline}data: {event}{newline}" for event in events]
    stream = newline.join(lines) + (newline if last_line_ends else "")
    data = stream.encode()
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    reader = EventReader()
    found = [event for a, b in pairwise(places) for event in reader.feed(data[a:b])]
    assert [event.decode() for event in [*found, *reader.end()]] == events


def test_lines_of_one_event_are_joined() -> None:
    reader = EventReader()
    assert reader.feed(b'data: {"a":\ndata:1}\n\n') == [b'{"a":\n1}']


def test_chunks_that_leave_out_what_they_please_are_read() -> None:
    def chunk(**choice: Any) -> dict[str, Any]:
        return {"choices": [{"index": 0, **choice}]}

    assert read_delta({"choices": []}) is None
    assert read_delta({"choices": None, "usage": None}) is None
    assert read_delta(chunk(delta={"role": "assistant", "content": ""})) is None
    assert read_delta(chunk(text="a", finish_reason=None)).text == "a"  # type: ignore[union-attr]
    for name in ("reasoning_content", "reasoning"):
        thought = read_delta(chunk(delta={"content": None, name: "hm"}))
        assert thought is not None
        assert (thought.text, thought.reasoning) == ("", "hm")
    told = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    last = read_delta({"choices": [], "usage": told})
    assert last is not None
    assert last.usage is not None
    assert (last.usage.cached_tokens, last.usage.reasoning_tokens) == (4, 3)


def test_times_that_the_server_tells_are_read_where_they_can_be_true() -> None:
    def told(within_ms: float = 100.0, **metrics: Any) -> Timing | None:
        delta = read_delta({"choices": [], "metrics": metrics}, within_ms)
        return delta.timing if delta else None

    # As vLLM 0.32 writes it; the other times follow from these two and the duration.
    more = {"generation_time_ms": 1.5, "mean_itl_ms": 0.5, "tokens_per_second": 9.0}
    found = told(time_to_first_token_ms=80.5, queue_time_ms=12, **more)
    assert found == Timing(queue_ms=12.0, ttft_ms=80.5)
    assert told(time_to_first_token_ms=0, queue_time_ms=0.0) == Timing(0.0, 0.0)
    assert told(time_to_first_token_ms=80.5) is None
    assert told(queue_time_ms=12) is None
    assert told(time_to_first_token_ms=80.5, queue_time_ms=None) is None
    assert told(time_to_first_token_ms="80.5", queue_time_ms=12) is None
    assert told(time_to_first_token_ms=80.5, queue_time_ms=-1) is None
    assert told(time_to_first_token_ms=math.nan, queue_time_ms=1) is None
    assert told(92.0, time_to_first_token_ms=80.5, queue_time_ms=12) is None, "longer than the call"
    useless: list[Any] = [None, [], "12 ms", {}]
    for nothing in useless:
        assert read_delta({"choices": [], "metrics": nothing}) is None
