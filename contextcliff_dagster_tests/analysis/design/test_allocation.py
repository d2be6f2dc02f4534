"""Targeted sampling: where a token is most informative, when to stop, and what rounds ask."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.design.allocation import (
    Aim,
    Target,
    apportion,
    information,
    plan_round,
    take_aim,
    weigh,
)
from contextcliff_dagster.analysis.design.error_rates import Design, Pool, simulate_pool
from contextcliff_dagster.analysis.design.true_curves import (
    Curve,
    LossPlace,
    locate_loss,
    rank_cells,
)
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster_tests.support.examples import examples

BINS = 10
SETTINGS = AnalysisSettings()
DROP = 0.255
NOTHING = Documents(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), True)


def pool_of(curve: Curve, seed: int, design: Design | None = None) -> Pool:
    return simulate_pool(design or Design(), curve, np.random.default_rng(seed))


def sample(pool: Pool, per_bin: int, seed: int = 0) -> Documents:
    """The first ``per_bin`` questions of every bin, in an order of ``seed``."""
    order = np.random.default_rng(seed).permutation(len(pool.score))
    bins = order * BINS // len(order)
    return pool.documents(np.concatenate([order[bins == b][:per_bin] for b in range(BINS)]))


def aim_of(posterior: LossPlace) -> Aim:
    return take_aim(posterior, 0.05, 0.95, 0.97)


def test_before_any_score_the_prior_stands() -> None:
    cells = rank_cells(np.arange(1, 1_001))
    prior = locate_loss(NOTHING, cells, DROP)
    assert prior.place.sum() + prior.none == pytest.approx(1.0)
    assert 0.3 < prior.none < 0.7
    assert prior.place[:15].sum() == 0  # the baseline region
    # Beyond it no length is likelier than another by much.
    assert prior.place[16:].max() < 2.0 * prior.place[16:].min()


@pytest.mark.parametrize("place", [0.3, 0.55, 0.8])
def test_plenty_of_data_find_a_step_where_it_is(place: float) -> None:
    pool = pool_of(Curve("step", 0.7, 0.6, place), 1)
    cells = rank_cells(pool.length_tokens)
    aim = aim_of(locate_loss(sample(pool, 100), cells, DROP))
    assert aim.done == "located"
    low, high = cells.starts[aim.window.first], cells.starts[aim.window.last + 1]
    assert low - 0.005 <= place <= high + 0.005
    assert high - low <= 0.10 + 1e-9
    inside = pool.length_tokens[int(place * len(pool.score))]
    assert aim.window.from_tokens * 0.98 <= inside <= aim.window.to_tokens * 1.02


def test_plenty_of_data_without_a_loss_say_so() -> None:
    pool = pool_of(Curve("flat", 0.9), 2)
    aim = aim_of(locate_loss(sample(pool, 20), rank_cells(pool.length_tokens), DROP))
    assert aim.done == "no_loss"


def test_of_two_losses_the_first_is_located() -> None:
    """A second, deeper one draws no rounds: the cap ends at the first."""
    pool = pool_of(Curve("step", 0.9, 0.45, 0.4), 3, Design(binary=True))
    score = pool.score * (np.random.default_rng(0).random(len(pool.score)) < 0.2)
    stairs = replace(pool, score=np.where(pool.share < 0.7, pool.score, score))
    cells = rank_cells(stairs.length_tokens)
    window = aim_of(locate_loss(sample(stairs, 60), cells, DROP)).window
    assert cells.starts[window.first] - 0.03 <= 0.4 <= cells.starts[window.last + 1] + 0.03


def test_cells_without_an_example_only_pass_on_what_others_say() -> None:
    pool = pool_of(Curve("step", 0.9, 0.8, 0.5), 4, Design(binary=True))
    cells = rank_cells(pool.length_tokens)
    rng = np.random.default_rng(1)
    ends = np.flatnonzero((pool.share < 0.3) | (pool.share > 0.7))
    posterior = locate_loss(pool.documents(np.sort(rng.choice(ends, 120, False))), cells, DROP)
    between = posterior.place[31:69]
    assert between.sum() > 0.9
    assert between.max() < 2.5 * between.min()


@given(
    st.lists(st.floats(0.0, 1.0), min_size=30, max_size=60),
    st.integers(0, 10_000),
    st.floats(0.05, 0.5),
)
@examples(40)
def test_whatever_the_scores_probabilities_sum_to_one(
    scores: list[float], seed: int, drop: float
) -> None:
    lengths = np.sort(np.random.default_rng(seed).integers(1, 5_000, len(scores)))
    documents = Documents(lengths, np.ones(len(scores)), np.array(scores), False)
    posterior = locate_loss(documents, rank_cells(lengths), drop)
    assert posterior.place.sum() + posterior.none == pytest.approx(1.0)
    assert (posterior.place >= -1e-12).all()
    assert ((posterior.mean >= 0.0) & (posterior.mean <= 1.0)).all()
    # Of the drawn curves as many have lost it as the exact chance says.
    drawn = (posterior.first < len(posterior.place)).mean()
    assert drawn == pytest.approx(1.0 - posterior.none, abs=0.15)
    nats = information(posterior, posterior.window(0.05))
    assert np.isfinite(nats).all()
    assert (nats >= 0).all()
    assert (nats <= np.log(3.0)).all()


def test_a_score_tells_most_where_the_loss_may_lie_and_tokens_are_cheap() -> None:
    pool = pool_of(Curve("step", 0.7, 0.6, 0.5), 4)
    cells = rank_cells(pool.length_tokens)
    posterior = locate_loss(sample(pool, 10), cells, DROP)
    window = posterior.window(0.05)
    nats = information(posterior, window)
    near = slice(max(window.first - 10, 0), window.last + 11)
    assert nats[near].sum() > 0.6 * nats.sum()
    weight = weigh(posterior, window, np.arange(len(cells.share)) * BINS // len(cells.share), BINS)
    assert weight.sum() == pytest.approx(1.0)
    assert weight[0] < 0.10  # what is known costs little, and tells nothing
    assert weight[3:7].sum() > 0.7


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 30)), min_size=1, max_size=12),
    st.integers(1, 60),
)
def test_a_batch_is_whole_and_never_more_than_there_is(
    groups: list[tuple[float, int]], batch: int
) -> None:
    weight, left = (np.array(side) for side in zip(*groups, strict=True))
    given_ = apportion(weight.astype(float), left.astype(np.int64), batch)
    assert given_.sum() == min(batch, left.sum())
    assert (given_ <= left).all()
    assert (given_ >= 0).all()


def rounds_of(pool: Pool, target: Target, per_bin: int) -> tuple[list[int], list[str]]:
    """Examples a bin after each round, and the sentences."""
    order = np.random.default_rng(0).permutation(len(pool.score))
    bins = order * BINS // len(order)
    planned = {f"b{b:02d}": order[bins == b][:per_bin] for b in range(BINS)}
    candidates = {bin: pool.length_tokens[of] for bin, of in planned.items()}
    asked: dict[str, int] = {}
    said = []
    for number in range(1, 200):
        taken = np.concatenate([of[: asked.get(bin, 0)] for bin, of in planned.items()])
        documents = pool.documents(taken.astype(np.int64)) if len(taken) else NOTHING
        plan = plan_round(documents, candidates, asked, target, SETTINGS)
        said.append(plan.sentence(number))
        if plan.done:
            assert plan.more == {}
            return list(asked.values()), said
        assert plan.samples == {bin: asked.get(bin, 0) + n for bin, n in plan.more.items()}
        asked |= plan.samples
    raise AssertionError("it never ends")


def test_the_pilot_is_the_same_for_each_bin_and_rounds_go_where_the_loss_is() -> None:
    pool = pool_of(Curve("step", 0.7, 0.5, 0.45), 5)
    asked, reasons = rounds_of(pool, Target(5, 0.05, 10), 100)
    assert reasons[0].startswith("Pilot: 50 examples in b00, b01, b02")
    assert reasons[1].startswith("Round 2: 10 more examples in b0")
    assert reasons[-1].startswith(
        f"Done after {sum(asked)} examples: a drop of 26% is reached between "
    )
    assert min(asked) >= 5
    # Around the loss, and where a token is cheap; next to nothing far beyond it.
    assert asked[4] + asked[5] >= 40
    assert sum(asked[7:]) <= 20


def test_without_a_loss_the_longest_are_asked_until_they_show_it_themselves() -> None:
    pool = pool_of(Curve("flat", 0.95), 3, Design(binary=True))
    asked, reasons = rounds_of(pool, Target(5, 0.05, 10), 100)
    assert asked == [5] * 9 + [15]
    assert "and nowhere with 98%" in reasons[1]
    assert "no drop of 26% over the range" in reasons[2]


def test_where_none_of_the_longest_is_left_rounds_end_without_a_false_word() -> None:
    pool = pool_of(Curve("flat", 0.95), 3, Design(binary=True))
    order = np.random.default_rng(0).permutation(len(pool.score))
    bins = order * BINS // len(order)
    planned = {f"b{b:02d}": order[bins == b][: 5 if b >= 8 else 10] for b in range(BINS)}
    candidates = {bin: pool.length_tokens[of] for bin, of in planned.items()}
    documents = pool.documents(np.concatenate([of[:5] for of in planned.values()]))
    asked = dict.fromkeys(planned, 5)
    plan = plan_round(documents, candidates, asked, Target(5, 0.01, 10), SETTINGS)
    assert (plan.more, plan.done) == ({}, "no_loss")


def test_a_small_sample_ends_with_itself() -> None:
    pool = pool_of(Curve("flat", 0.5), 6, Design(binary=True))
    asked, reasons = rounds_of(pool, Target(5, 0.05, 20), 8)
    assert sum(asked) == 80
    assert reasons[-1].startswith("All 80 examples are measured")


def test_rounds_cost_less_than_asking_every_bin_alike() -> None:
    """A few sets, so a wide margin: benchmarks/sequential.py has the figures."""
    spent = []
    for seed in range(8):
        pool = pool_of(Curve("step", 0.65, 0.6, 0.3 + 0.05 * seed), 10 + seed)
        cells = rank_cells(pool.length_tokens)
        asked, _ = rounds_of(pool, Target(5, 0.05, 10), 100)
        uniform = next(
            n
            for n in range(5, 101)
            if n == 100 or aim_of(locate_loss(sample(pool, n), cells, DROP)).done
        )
        spent.append((sum(asked), BINS * uniform))
    targeted, alike = np.sum(spent, axis=0)
    assert targeted < 0.85 * alike


def test_documents_of_one_length_are_asked_without_an_aim() -> None:
    candidates = {"b00": np.full(12, 700)}
    first = plan_round(NOTHING, candidates, {}, Target(5, 0.05, 20), SETTINGS)
    assert first.more == {"b00": 12}
    asked = Documents(np.full(12, 700), np.ones(12), np.ones(12), True)
    assert plan_round(asked, candidates, {"b00": 12}, Target(), SETTINGS).done == "exhausted"


@pytest.mark.parametrize("values", [(5, 0.004, 20), (5, 0.3, 20), (0, 0.05, 20), (5, 0.05, 0)])
def test_a_target_that_cannot_be_met_is_refused(values: tuple[int, float, int]) -> None:
    with pytest.raises(StudyError):
        Target(*values)
