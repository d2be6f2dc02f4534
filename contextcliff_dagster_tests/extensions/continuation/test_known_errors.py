"""Texts that Context-Tester judges wrongly: the conclusion here, and its own next to it.

A readable text that turns longer and straight in its quotation marks; a collapse to one phrase
without a full stop; the same text in another typography, and cut shorter.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.extensions.continuation.analysis.model import analyse_model
from contextcliff_dagster.extensions.continuation.compat.metrics import text_metrics
from contextcliff_dagster.extensions.continuation.compat.statistics import (
    averaged,
    degradation_statistics,
    trend_analysis,
)
from contextcliff_dagster.extensions.continuation.noise import Authors
from contextcliff_dagster.extensions.continuation.prose.metrics import metrics_of
from contextcliff_dagster.extensions.continuation.prose.words import read_prose
from contextcliff_dagster.extensions.continuation.results import ContinuationResult
from contextcliff_dagster.extensions.continuation.scoring import score_rows
from contextcliff_dagster_tests.extensions.continuation.prose.tales import curly, tale
from contextcliff_dagster_tests.support.requirements import novels

SIZES = (2048, 4096, 8192, 16384)
POINTS, ROUNDS, WORDS, LONGEST = 16, 2, 240, 400

Continue = Callable[[str, int], str]
"""What a model writes: from a passage of the author and the number of the size."""


class Library:
    """Passages of the same authors: of the noise floor, after the points, and continuations."""

    def __init__(self, texts: Sequence[str]) -> None:
        each = POINTS // len(texts)
        after, human, self.written = {}, {}, []
        for number, text in enumerate(texts):
            words = text.split()
            pieces = [
                " ".join(words[at : at + LONGEST])
                for at in range(0, (6 + each * (1 + ROUNDS)) * LONGEST, LONGEST)
            ]
            human[str(number)] = [read_prose(one).first(WORDS) for one in pieces[:6]]
            for piece in pieces[6 : 6 + each]:
                after[str(len(after))] = read_prose(piece).first(WORDS)
            self.written += pieces[6 + each :]
        self.authors = Authors(after, human)
        self.familiar = frozenset(word for one in texts for word in read_prose(one).words)

    def text(self, point: int, turn: int) -> str:
        return self.written[point * ROUNDS + turn]


@pytest.fixture(scope="module", params=["tales", "novels"])
def library(request: pytest.FixtureRequest) -> Library:
    if request.param == "novels":  # prose of an author, where it is there
        return Library(list(novels().values())[:4])
    return Library([tale(seed, 20 * LONGEST) for seed in range(4)])


def ours(library: Library, write: Continue) -> tuple[list[dict[str, Any]], ContinuationResult]:
    """Records and result of the study, by the way of every study."""
    examples, rows = {}, []
    for point in range(POINTS):
        for place, size in enumerate(SIZES):
            name = f"{point} at {size}"
            metadata = {"text": str(point % 4), "passage": str(point), "context_tokens": size}
            examples[name] = Example(name, name, "", (), "continuation", metadata | {"arm": "base"})
            for turn in range(ROUNDS):
                text = write(library.text(point, turn), place)
                rows.append({"example_id": name, "replicate": turn, "raw_output": text})
    records = score_rows(rows, examples, library.authors)
    return records, analyse_model(pd.DataFrame(records))


def theirs(library: Library, write: Continue) -> tuple[dict[str, Any], list[Any]]:
    """Context-Tester's statistics and degradation points of one point's continuations."""
    rounds = {
        size: [
            text_metrics(write(library.text(point, turn), place), library.familiar, embed)
            for point in range(4)
            for turn in range(ROUNDS)
        ]
        for place, size in enumerate(SIZES)
    }
    averages = {size: averaged(of) for size, of in rounds.items()}
    return degradation_statistics(rounds), trend_analysis(averages)["degradation_points"]


def embed(sentences: Sequence[str]) -> list[list[float]]:
    """Words of each sentence, counted in 64 places."""
    rows = np.zeros((len(sentences), 64))
    for row, sentence in zip(rows, sentences, strict=True):
        np.add.at(row, [zlib.crc32(w.encode()) % 64 for w in sentence.lower().split()], 1.0)
    return rows.tolist()


def longer_and_straight(text: str, place: int) -> str:
    """The same text, of more words at each size, and in straight typography at the larger two."""
    words = text.split()[: WORDS + 20 + place * (LONGEST - WORDS - 20) // (len(SIZES) - 1)]
    return curly(" ".join(words)) if place < 2 else " ".join(words)


def one_phrase(text: str, place: int) -> str:
    """Prose at the smaller two sizes; at the others one phrase for ever, without a full stop."""
    words = text.split()
    if place < 2:
        return " ".join(words)
    return " ".join([*words[:6], *(["over", "and", "over", "the", "same", "way"] * LONGEST)[:394]])


def test_a_readable_text_that_turns_longer_and_straight_is_no_decline(library: Library) -> None:
    records, result = ours(library, longer_and_straight)
    assert {record["collapse"] for record in records} == {""}
    assert result.verdict == "no_decline", result.headline
    statistics, points = theirs(library, longer_and_straight)
    assert statistics["summary"]["degradation_detected"]
    assert points


def test_a_collapse_to_one_phrase_without_full_stops_is_one(library: Library) -> None:
    records, result = ours(library, one_phrase)
    tags = {size: {r["collapse"] for r in records if r["context_tokens"] == size} for size in SIZES}
    assert tags == dict(zip(SIZES, ({""}, {""}, {"loop"}, {"loop"}), strict=True))
    assert result.verdict == "collapse", result.headline
    location = result.arms[0].intact.location
    assert location is not None
    assert (location.low_tokens, location.high_tokens) == (SIZES[1], SIZES[2])
    statistics, _ = theirs(library, one_phrase)
    assert not statistics["summary"]["degradation_detected"]
    composite = [statistics["composite_scores"][size]["mean"] for size in SIZES]
    # Higher is worse there: prose is worse than one phrase for ever.
    assert composite[-1] < composite[0]


def test_typography_moves_no_metric_here(library: Library) -> None:
    moves = []
    for text in library.written:
        assert metrics_of(read_prose(curly(text))) == metrics_of(read_prose(text))
        straight, other = (text_metrics(t, library.familiar) for t in (text, curly(text)))
        moves.append(straight["cloze_score"] - other["cloze_score"])
    assert np.mean(moves) > 2.0  # 3 is a degradation point, whatever the number of rounds


def test_length_moves_diversity_within_the_noise_here(library: Library) -> None:
    ours_, theirs_ = [], []
    for text in library.written:
        short = " ".join(text.split()[: int(0.6 * LONGEST)])
        pairs = [metrics_of(read_prose(one)).diversity_50 for one in (text, short)]
        ours_.append(pairs)
        theirs_.append(
            [text_metrics(one, library.familiar)["vocabulary_diversity"] for one in (text, short)]
        )
    whole, cut = np.array(ours_, np.float64).T
    assert abs((cut - whole).mean()) < 0.25 * whole.std()
    whole, cut = np.array(theirs_, np.float64).T
    assert (cut - whole).mean() > 0.05  # a degradation point
    assert (cut - whole).mean() > whole.std()


def test_a_model_that_gives_up_is_not_left_out(library: Library) -> None:
    def gives_up(text: str, place: int) -> str:
        return text if place < 2 else "He went home that day, and so did she."

    records, result = ours(library, gives_up)
    assert {row["collapse"] for row in records if row["context_tokens"] >= SIZES[2]} == {"short"}
    assert {row["score"] for row in records if row["context_tokens"] >= SIZES[2]} == {0.0}
    assert result.arms[0].verdict == "collapse"


def test_what_is_cut_off_early_has_no_score(library: Library) -> None:
    example = Example(
        "e", "e", "", (), "continuation",
        {"text": "0", "passage": "0", "context_tokens": 1024, "arm": "base"},
    )  # fmt: skip
    row = {"example_id": "e", "replicate": 0, "raw_output": "He went home that day."}
    (cut,) = score_rows([row | {"finish_reason": "length"}], {"e": example}, library.authors)
    assert (cut["collapse"], cut["score"]) == ("", None)
