"""The longest answers speak for themselves: none of their lengths is passed on others' word."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.cliff import certified_cap, tail_confidence
from contextcliff_dagster.analysis.records import Documents
from contextcliff_dagster.analysis.statistics.falling_curve import fit_falling_curve, tail_of
from contextcliff_dagster.contracts.arrays import Floats

SHORT_END, FIRST_LONG = 5_000, 10_000
SCORES = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=60).map(np.array)
SPREAD = st.sampled_from([0.5, 0.8, 1.0])


def padded(long: Floats, short: int) -> Documents:
    """``short`` answers up to 5,000 tokens, nine of ten right, and the long ones beyond 10,000."""
    scores = np.append(np.tile([0.0] + [1.0] * 9, short // 10), long)
    lengths = np.append(
        np.arange(SHORT_END - short, SHORT_END) + 1, FIRST_LONG + 100 * np.arange(len(long))
    )
    binary = bool(np.isin(scores, (0.0, 1.0)).all())
    return Documents(lengths, np.ones(len(scores)), scores, binary)


def limit(documents: Documents, phi: float = 1.0) -> float:
    tail = tail_of(documents, np.full(len(documents.n), phi), 100)
    supported = tail.supported(0.63, 0.9)
    return np.inf if supported is None else supported


def cap(documents: Documents) -> int:
    return certified_cap(fit_falling_curve(documents, 0.15), 0.3, 0.95).tokens or 0


@given(SCORES, SPREAD)
def test_short_answers_lengthen_nothing(long: Floats, phi: float) -> None:
    assert limit(padded(long, 200), phi) == limit(padded(long, 1_000), phi)
    assert limit(padded(long, 200), phi) == limit(padded(long, 5_000), phi)


@given(SCORES, SPREAD, st.integers(0, 59))
def test_an_answer_that_turns_wrong_never_moves_the_limit_outwards(
    long: Floats, phi: float, which: int
) -> None:
    worse = long.copy()
    worse[which % len(long)] = 0.0
    assert limit(padded(worse, 200), phi) <= limit(padded(long, 200), phi)


@given(SCORES, SPREAD)
def test_documents_of_one_length_are_passed_together_or_not_at_all(
    long: Floats, phi: float
) -> None:
    documents = padded(long, 200)
    at_once = Documents(
        np.minimum(documents.length_tokens, FIRST_LONG), documents.n, documents.s, documents.binary
    )
    assert limit(at_once, phi) in (np.inf, *documents.length_tokens[:200])


def test_four_right_answers_may_be_chance_and_five_are_not() -> None:
    """All right: P(k of k) at .63 is below a tenth from five on."""
    for count, passed in ((4, False), (5, True)):
        documents = padded(np.ones(count), 200)
        assert (limit(documents) >= FIRST_LONG) is passed


@pytest.mark.parametrize("short", [200, 1_000])
@pytest.mark.parametrize("right", [[1.0], [0.0], [1.0, 0.0] * 2, [1.0] * 6 + [0.0] * 4])
def test_few_long_answers_among_many_short_ones_carry_no_cap(
    right: list[float], short: int
) -> None:
    assert 0 < cap(padded(np.array(right), short)) <= SHORT_END


def test_many_right_answers_do() -> None:
    assert cap(padded(np.ones(40), 200)) > FIRST_LONG


def test_a_wrong_answer_instead_of_a_right_one_rarely_lengthens_a_cap() -> None:
    rng = np.random.default_rng(0)
    longer = 0
    for _ in range(100):
        level, drop, place = rng.uniform(0.6, 0.95), rng.uniform(0.0, 0.8), rng.uniform(0.2, 1.0)
        mean = np.where(np.arange(200) < place * 200, level, level * (1.0 - drop))
        scores = (rng.random(200) < mean).astype(np.float64)
        flipped = scores.copy()
        flipped[rng.choice(np.flatnonzero(scores[30:]) + 30)] = 0.0
        caps = [cap(Documents(np.arange(200) + 1, np.ones(200), of, True))
                for of in (scores, flipped)]  # fmt: skip
        longer += caps[1] > caps[0] + 10
    assert longer <= 2


def test_later_looks_need_more_of_the_longest_answers() -> None:
    assert tail_confidence(0.95) == pytest.approx(0.9)
    assert tail_confidence(0.95, 0.25) == pytest.approx(0.975)
