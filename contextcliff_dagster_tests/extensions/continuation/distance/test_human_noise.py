"""The score: uniform for human passages, 0 for what no human passage is as far from."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.extensions.continuation.noise import (
    DISTANCE_METRICS,
    HumanNoise,
    ledoit_wolf,
)
from contextcliff_dagster.extensions.continuation.prose.metrics import ProseMetrics, metrics_of
from contextcliff_dagster.extensions.continuation.prose.words import read_prose
from contextcliff_dagster_tests.support.requirements import novels

RNG = np.random.default_rng(7)
MIXING = RNG.normal(size=(len(DISTANCE_METRICS), len(DISTANCE_METRICS)))


def drawn(rng: np.random.Generator, count: int, away: float = 0.0) -> list[ProseMetrics]:
    """Passages of a made-up author: correlated metrics, ``away`` from those of others."""
    level = rng.normal(size=len(DISTANCE_METRICS))
    rows = level + away + 0.05 * rng.normal(size=(count, len(DISTANCE_METRICS))) @ MIXING
    return [
        ProseMetrics(300.0, 20.0, **dict(zip(DISTANCE_METRICS, np.exp(0.2 * row), strict=True)))
        for row in rows
    ]


@pytest.mark.parametrize("passages", [24, 60])
def test_the_score_of_human_text_is_uniform(passages: int) -> None:
    rng, scores = np.random.default_rng(passages), []
    for _ in range(25):
        texts = {name: drawn(rng, passages + 20) for name in ("one", "other")}
        noise = HumanNoise.fit({name: of[:passages] for name, of in texts.items()})
        for of in texts.values():
            rest = of[passages:]
            scores += [noise.score(*pair) for pair in zip(rest[::2], rest[1::2], strict=True)]
    assert None not in scores
    assert kstest(np.array(scores, float), "uniform").statistic < 0.08
    assert np.mean(np.array(scores, float) < 0.05) < 0.09


def test_what_is_further_than_any_human_passage_scores_0_and_the_same_text_1() -> None:
    rng = np.random.default_rng(1)
    of = drawn(rng, 41)
    noise = HumanNoise.fit({"text": of[:40]})
    assert noise.score(drawn(rng, 1, away=5.0)[0], of[40]) == 0.0
    assert noise.score(of[40], of[40]) == 1.0
    assert noise.score(ProseMetrics(0.0, 0.0), of[40]) == 0.0


def test_missing_metrics_stay_missing_and_humans_are_compared_on_the_same_ones() -> None:
    rng = np.random.default_rng(2)
    of = drawn(rng, 60)
    noise = HumanNoise.fit({"text": of[:40]})
    without = [replace(one, rhythm=None, pronouns=None) for one in of]
    noise_without = HumanNoise.fit({"text": without[:40]})
    for a, b in zip(of[40::2], of[41::2], strict=True):
        shared = noise.score(replace(a, rhythm=None, pronouns=None), b)
        assert shared == pytest.approx(noise_without.score(a, b))
    few = dict.fromkeys(DISTANCE_METRICS[:15])
    assert noise.score(replace(of[40], **few), of[41]) == 0.0  # type: ignore[arg-type]
    assert noise.score(of[40], replace(of[41], **few)) is not None  # type: ignore[arg-type]
    assert noise.score(of[40], ProseMetrics(0.0, 0.0)) is None


def test_a_metric_that_never_varies_among_humans_is_left_out() -> None:
    rng = np.random.default_rng(3)
    of = [replace(one, dashes=0.0) for one in drawn(rng, 42)]
    noise = HumanNoise.fit({"text": of[:40]})
    assert noise.score(replace(of[40], dashes=9.0), of[41]) == noise.score(of[40], of[41])


@pytest.mark.parametrize("texts", [{}, {"a": 19}, {"a": 40, "b": 3}])
def test_too_few_passages_are_one_sentence(texts: dict[str, int]) -> None:
    rng = np.random.default_rng(4)
    with pytest.raises(DataError, match="do not show how far an author is from himself"):
        HumanNoise.fit({name: drawn(rng, count) for name, count in texts.items()})


def test_shrinkage_is_the_sample_with_many_rows_and_can_be_inverted_with_few() -> None:
    rng = np.random.default_rng(5)
    mixing = rng.normal(size=(8, 8))
    many = rng.normal(size=(200_000, 8)) @ mixing
    np.testing.assert_allclose(ledoit_wolf(many), mixing.T @ mixing, rtol=0.05, atol=0.15)
    few = rng.normal(size=(4, 8)) @ mixing
    assert np.linalg.cond(ledoit_wolf(few)) < 1e3
    np.testing.assert_allclose(ledoit_wolf(few).trace(), (few**2).sum() / 4)


def test_on_novels_the_score_is_uniform_and_broken_text_scores_low() -> None:
    text = novels()["emma"]
    words = re.findall(r"\S+", text)
    passages = [words[at : at + 190] for at in range(0, 76_000, 190)]
    random.Random(0).shuffle(passages)
    metrics = [metrics_of(read_prose(" ".join(one))) for one in passages]
    noise = HumanNoise.fit({"emma": metrics[:200]})
    pairs = list(zip(metrics[200:300], metrics[300:400], strict=True))
    human = [noise.score(a, b) for a, b in pairs]
    assert kstest(np.array(human, float), "uniform").statistic < 0.15

    def broken(one: list[str], how: str) -> str:
        half = len(one) // 2
        if how == "looped":
            return " ".join([*one[:half], *(one[half : half + 12] * 20)[:half]])
        if how == "shuffled":
            return " ".join(random.Random(1).sample(one, len(one)))
        return " ".join(w.strip(';,:"') + "." * (i % 8 == 7) for i, w in enumerate(one))

    for how, most in (("looped", 0.01), ("simplified", 0.02), ("shuffled", 0.15)):
        scores = [
            noise.score(metrics_of(read_prose(broken(one, how))), b)
            for one, (_, b) in zip(passages[200:240], pairs[:40], strict=True)
        ]
        assert np.mean(np.array(scores, float)) < most, how
