"""A server that shortens prompts shows in all calls together, an honest one never does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.scoring.evaluate import refusal, truncations, unchecked

LENGTHS = [100, 220, 350, 480, 610, 790, 900, 1_100]


def rows(
    prompt_tokens: list[int | None],
    lengths: list[int] | None = None,
    failures: list[str | None] | None = None,
    *,
    own: bool = True,
    model: str = "m",
) -> list[dict[str, Any]]:
    given_lengths = lengths or LENGTHS[: len(prompt_tokens)]
    tags = failures or [None] * len(prompt_tokens)
    return [
        {
            "model": model,
            "document_id": f"d{i}",
            "length_tokens": length,
            "prompt_tokens": tokens,
            "own_prompt_tokens": length + 9 if own else None,
            "failure": tag,
        }
        for i, (length, tokens, tag) in enumerate(
            zip(given_lengths, prompt_tokens, tags, strict=True)
        )
    ]


natural = st.lists(st.integers(20, 50_000), min_size=1, max_size=40, unique=True)
ratios = st.floats(0.5, 2.0)


@given(natural, ratios, st.integers(0, 40))
def test_a_server_that_reads_everything_is_never_suspected(
    lengths: list[int], ratio: float, template: int
) -> None:
    counts: list[int | None] = [int(ratio * length) + template for length in lengths]
    (truncation,) = truncations(rows(counts, lengths, own=False))
    assert (truncation.at_ceiling, truncation.too_many) == (0, False)


@given(natural.filter(lambda lengths: len(lengths) >= 12), ratios, st.integers(0, 40))
def test_a_cut_at_one_length_is_found_without_a_count_of_our_own(
    lengths: list[int], ratio: float, template: int
) -> None:
    true = [int(ratio * length) + template for length in lengths]
    at_most = sorted(true)[len(true) // 2]
    cut = [length for length, tokens in zip(lengths, true, strict=True) if tokens >= at_most]
    counts: list[int | None] = [min(tokens, at_most) for tokens in true]
    (truncation,) = truncations(rows(counts, lengths, own=False))
    if max(cut) - min(cut) > 0.05 * max(cut):
        assert (truncation.at_ceiling, truncation.ceiling_tokens) == (len(cut), at_most)
        assert truncation.from_tokens == min(cut)
        assert truncation.too_many
    else:
        assert truncation.at_ceiling == 0


def test_documents_of_one_size_are_no_ceiling() -> None:
    padded = [4_000, 4_010, 4_050, 4_090, 2_000]
    (truncation,) = truncations(rows([4_096, 4_096, 4_096, 4_096, 2_050], padded))
    assert truncation.at_ceiling == 0


def test_one_number_for_everything_is_no_count() -> None:
    (truncation,) = truncations(rows([99_999] * 8))
    assert truncation.at_ceiling == 0


def test_many_questions_on_one_document_are_no_ceiling() -> None:
    same = rows([700] * 6, [600] * 6)
    for row in same:
        row["document_id"] = "d"
    (truncation,) = truncations(same)
    assert truncation.at_ceiling == 0


@pytest.mark.parametrize(("marked", "too_many"), [(1, False), (2, True)])
def test_one_call_in_a_hundred_may_be_cut(marked: int, too_many: bool) -> None:
    tags: list[str | None] = ["invalid_truncated"] * marked + [None] * (100 - marked)
    (truncation,) = truncations(rows(list(range(100, 200)), list(range(100, 200)), tags))
    assert truncation.marked == marked
    assert truncation.too_many is too_many


def test_calls_that_were_never_answered_count_neither_way() -> None:
    tags = ["context_overflow", "transport_error", None, "hallucination"]
    (truncation,) = truncations(rows([None, None, 350, 480], failures=tags))
    assert (truncation.calls, truncation.without_usage, truncation.marked) == (2, 0, 0)


def test_the_refusal_says_what_where_and_what_to_do() -> None:
    tags: list[str | None] = [None] * 4 + ["invalid_truncated"] * 4
    (truncation,) = truncations(rows([109, 229, 359, 489, 512, 512, 512, 512], failures=tags))
    said = refusal(truncation, "contracts")
    assert "'m'" in said
    assert "4 of 8 calls of study 'contracts' (50.0%; limit 1%)" in said
    assert "from documents of 610 tokens on (longer prompts are all read as 512 tokens)" in said
    assert "window_tokens in models.yaml" in said
    assert "contextcliff campaign new contracts" in said


def test_what_could_not_be_checked_is_said() -> None:
    (silent,) = truncations(rows([None] * 3, own=False))
    assert [said.split(":")[0] for said in unchecked(silent)] == [
        "The server of m reported no prompt tokens for 3 of 3 answers"
    ]
    (uncounted,) = truncations(rows([109, 229, 359], own=False))
    assert "could not count the prompt tokens" in unchecked(uncounted)[0]
    (checked,) = truncations(rows([109, 229, 359]))
    assert unchecked(checked) == []
