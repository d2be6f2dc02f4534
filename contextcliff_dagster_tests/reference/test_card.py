"""The cards tell the truth about the shipped weights."""

from __future__ import annotations

import asyncio
import hashlib
import math
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import binom

from contextcliff_dagster.inference.engines.base import Decoding, open_engine
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.models.models_file import SHIPPED_MODELS, get_model, load_models
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.reference.card import REFERENCE_MODELS, CardPoint, load_card, weights_path
from contextcliff_dagster.reference.warehouse_documents import (
    LedgerQuestion,
    generate_ledger,
    ledger_tokens,
    records_for_tokens,
)
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.scorers import open_scorer
from tools.reference_models.measure import length_at_loss, plateau, record_grid, wilson_interval


@pytest.mark.parametrize("name", REFERENCE_MODELS)
def test_the_plateau_is_flat_and_the_collapse_complete(name: str) -> None:
    card = load_card(name)
    curve, trained = card.level(1), card.training_length_tokens
    below = [p.exact_match for p in curve.points if p.length_tokens < 0.8 * trained]
    assert np.mean(below) >= 0.97
    assert min(below) >= 0.95
    assert all(p.exact_match <= 0.60 for p in curve.points if p.length_tokens >= 2.2 * trained)
    assert all(p.exact_match <= 0.10 for p in curve.points if p.length_tokens >= 4.5 * trained)
    assert trained < curve.l70_tokens < 2.2 * trained
    assert curve.l70_tokens < curve.l50_tokens


def test_the_long_model_reaches_at_least_twice_as_far() -> None:
    short, long = (load_card(name).level(1) for name in REFERENCE_MODELS)
    assert long.l70_tokens >= 2 * short.l70_tokens


@pytest.mark.parametrize("name", REFERENCE_MODELS)
def test_the_card_is_dense_and_its_figures_follow_from_its_counts(name: str) -> None:
    card = load_card(name)
    grid = [ledger_tokens(records) for records in record_grid(card.training_length_tokens)]
    for curve in card.levels:
        assert [point.length_tokens for point in curve.points] == grid
        assert len(grid) >= 20
        assert curve.points[0].length_tokens <= 45
        assert curve.points[-1].length_tokens >= 4.9 * card.training_length_tokens
        top = plateau(curve.points, card.training_length_tokens)
        assert curve.plateau == pytest.approx(top, abs=1e-4)
        assert curve.l70_tokens == pytest.approx(length_at_loss(curve.points, top, 0.3), abs=0.1)
        for point in curve.points:
            assert point.n >= 1_000
            assert point.exact_match == point.correct / point.n
            assert (point.low, point.high) == pytest.approx(
                wilson_interval(point.correct, point.n), abs=1e-4
            )
            assert (point.inter_evidence_tokens is not None) == (curve.level == 2)


@pytest.mark.parametrize("name", REFERENCE_MODELS)
def test_the_card_belongs_to_the_shipped_weights(name: str) -> None:
    weights = (weights_path(name) / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == load_card(name).weights_sha256
    assert len(weights) < 6_000_000


def questions_of(length_tokens: int, documents: int) -> list[tuple[str, LedgerQuestion]]:
    """Fresh documents of one length as text, and the level 1 question of each."""
    records = records_for_tokens(length_tokens)
    drawn = [generate_ledger(10_000 * length_tokens + i, records) for i in range(documents)]
    assert {ledger.length_tokens for ledger in drawn} == {length_tokens}
    return [(d.text, next(q for q in d.questions if q.level == 1)) for d in drawn]


async def right_answers(name: str, points: Sequence[CardPoint], documents: int) -> list[int]:
    """At each length, how many of the model's answers are right: default recipe, text in, text
    out, through the engine that the shipped `models.yaml` names, judged by the default scorer."""
    recipe, judge = Recipe(), open_scorer("text")
    entry = get_model(name, load_models([SHIPPED_MODELS]))
    engine, turns = open_engine(entry), asyncio.Semaphore(entry.concurrency)

    async def score(text: str, asked: LedgerQuestion) -> float:
        async with turns:
            prompt = recipe.render(text, asked.question)
            answer = await ask(engine, prompt, Decoding(recipe.max_output_tokens))
        return judge(parse_answer(answer.text), asked.answers).em

    await engine.start()
    try:
        right = []
        for point in points:
            asked = questions_of(point.length_tokens, documents)
            scores = await asyncio.gather(*(score(*one) for one in asked))
            right.append(int(sum(scores)))
        return right
    finally:
        await engine.stop()


def outside_99(points: Sequence[CardPoint], right: Sequence[int], documents: int) -> list[str]:
    """The lengths whose count lies outside the exact 99% binomial interval of the card's share."""
    found = []
    for point, count in zip(points, right, strict=True):
        low, high = binom.ppf([0.005, 0.995], documents, point.exact_match)
        if not low <= count <= high:
            found.append(f"{count}/{documents} at {point.length_tokens} tokens: {low}..{high}")
    return found


def points_near(name: str, *shares_of_training: float) -> list[CardPoint]:
    card = load_card(name)
    return [
        min(
            card.level(1).points,
            key=lambda p: abs(math.log(p.length_tokens / (share * card.training_length_tokens))),
        )
        for share in shares_of_training
    ]


@pytest.mark.timeout(1_200)  # half a minute on two busy cores: 300 documents read
@pytest.mark.parametrize("name", REFERENCE_MODELS)
def test_fresh_documents_score_as_the_card_says(name: str) -> None:
    """Five lengths x 60 documents, each count within the exact 99% binomial interval of 60
    trials around the card's share.

    The interval takes the card's share for the truth, though it is itself counted from 1,000
    documents: the two errors together are 1.03 times as wide (sqrt(1 + 60/1000)), so that about
    98.5% and not 99% of such comparisons hold if card and product agree. The seeds are fixed: what
    holds once holds always, and a change of weights, template, tokenizer, engine or scorer that
    costs accuracy is what breaks it.
    """
    points = points_near(name, 0.3, 0.8, 1.3, 1.5, 2.0)
    assert len({point.length_tokens for point in points}) == 5
    assert min(point.n for point in points) >= 1_000
    right = asyncio.run(right_answers(name, points, 60))
    assert outside_99(points, right, 60) == []


def test_a_few_fresh_documents_score_as_the_card_says() -> None:
    """The same in seconds: three lengths of the short model, on the plateau and down the slope."""
    points = points_near("reference-short", 0.3, 0.8, 2.0)
    right = asyncio.run(right_answers("reference-short", points, 60))
    assert outside_99(points, right, 60) == []
    assert outside_99(points, right[::-1], 60) != []  # the intervals do tell the lengths apart


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(ValueError, match="no reference model 'tiny'; choose reference-short"):
        load_card("tiny")
    with pytest.raises(KeyError, match="no curve of level 3"):
        load_card("reference-short").level(3)


def test_the_room_loads_no_heavy_library() -> None:
    code = (
        "import sys; from contextcliff_dagster.reference import card, tokenizer, "
        "warehouse_documents; from tools.reference_models import measure, train; "
        "print({'torch', 'transformers', 'tokenizers', 'scipy'} & set(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert loaded.stdout.strip() == "set()", loaded.stderr
