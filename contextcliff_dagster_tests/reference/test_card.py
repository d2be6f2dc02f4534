"""The cards tell the truth about the shipped weights."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import binom

from contextcliff_dagster.inference.llama import LlamaModel
from contextcliff_dagster.reference.batches import draw_batch
from contextcliff_dagster.reference.card import REFERENCE_MODELS, load_card, weights_path
from contextcliff_dagster.reference.curve import length_at_loss, plateau, wilson_interval
from contextcliff_dagster.reference.ledgers import ledger_tokens, records_for_tokens
from contextcliff_dagster.reference.measure import record_grid
from contextcliff_dagster.reference.tokenizer import END, vocabulary

STOP = vocabulary()[0][END]


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


@pytest.mark.slow
@pytest.mark.timeout(1_200)  # half a minute on an idle core
@pytest.mark.parametrize("name", REFERENCE_MODELS)
def test_fresh_documents_score_as_the_card_says(name: str) -> None:
    """Five lengths x 200 documents, each within the 99% binomial interval of the card's share.

    The card's own share is an estimate from n documents; the interval allows for both errors. One
    length in a hundred would fall outside by chance; the seed is fixed, so the test does not
    flicker.
    """
    card, model, documents = load_card(name), LlamaModel.load(weights_path(name)), 200
    for share_of_training in (0.3, 0.8, 1.3, 1.5, 2.0):
        target = share_of_training * card.training_length_tokens
        point = min(card.level(1).points, key=lambda p: abs(np.log(p.length_tokens / target)))
        rng = np.random.default_rng((3, point.length_tokens))
        records = records_for_tokens(point.length_tokens)
        batch = draw_batch(rng, documents, records, (1, 0), varied=False)
        (asked,) = batch.questions
        right = 0
        for document, prompt, answer in zip(
            batch.document, asked.prompt[:, 0], asked.answer[:, 0], strict=True
        ):
            ids = np.concatenate([document, prompt]).tolist()
            expected = answer.tolist()
            tokens = [*model.generate(ids, len(expected), {STOP}), STOP]
            right += tokens[: len(expected)] == expected
        low, high = _interval_99(point.exact_match, point.n, documents)
        assert low <= right <= high, f"{right} of {documents} at {point.length_tokens} tokens"


def _interval_99(share: float, n: int, documents: int) -> tuple[float, float]:
    """99% binomial interval of a count, widened by the card's own standard error."""
    wider = (1 + documents / n) ** 0.5
    low, high = binom.ppf([0.005, 0.995], documents, share)
    centre = documents * share
    return centre - wider * (centre - low), centre + wider * (high - centre)


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(ValueError, match="no reference model 'tiny'; there are reference-short"):
        load_card("tiny")
    with pytest.raises(KeyError, match="no curve of level 3"):
        load_card("reference-short").level(3)


def test_the_room_loads_no_heavy_library() -> None:
    rooms = "card, curve, ledgers, measure, tokenizer, train"
    code = (
        f"import sys; from contextcliff_dagster.reference import {rooms}; "
        "print({'torch', 'transformers', 'tokenizers', 'scipy'} & set(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert loaded.stdout.strip() == "set()", loaded.stderr
