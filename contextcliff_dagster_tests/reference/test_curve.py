"""Intervals, the plateau and the points where it is lost."""

import math

import pytest

from contextcliff_dagster.reference.card import CardPoint
from tools.reference_models.measure import length_at_loss, plateau, wilson_interval


def point(length: int, exact_match: float) -> CardPoint:
    return CardPoint(length, 1_000, round(1_000 * exact_match), exact_match, 0.0, 1.0, None)


def test_wilson_agrees_with_the_published_example() -> None:
    # Newcombe (1998), Statistics in Medicine 17:857, table I: 81 of 263.
    low, high = wilson_interval(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)


def test_loss_points_are_interpolated_in_log_length() -> None:
    points = [point(100, 1.0), point(200, 1.0), point(400, 0.6), point(800, 0.0)]
    assert plateau(points, 300) == 1.0
    assert length_at_loss(points, 1.0, 0.2) == pytest.approx(200 * 2**0.5)
    assert length_at_loss(points, 1.0, 0.7) == pytest.approx(400 * 2**0.5)
    assert math.isnan(length_at_loss(points[:2], 1.0, 0.3))


def test_a_rise_is_pooled_with_what_comes_before_it() -> None:
    points = [point(100, 1.0), point(200, 0.2), point(400, 0.6), point(800, 0.0)]
    assert length_at_loss(points, 1.0, 0.6) == pytest.approx(200)
    assert length_at_loss(points, 1.0, 0.8) == pytest.approx(400 * 2**0.5)
