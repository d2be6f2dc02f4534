"""A shift whose interval is open at both ends is shown as that, and not as a number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextcliff_dagster.analysis.comparison import Measured, compare, sentence
from contextcliff_dagster.analysis.profile import ProfileContext, profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts.results import Comparison
from contextcliff_dagster.contracts.results.comparison import LossShift
from contextcliff_dagster.reporting.comparison import comparison_markdown
from contextcliff_dagster.reporting.figures.comparison import draw_shift
from contextcliff_dagster.reporting.wording import ratio_words
from contextcliff_dagster_tests.support.records.planted_curves import bins_of, plant, ramp


@pytest.fixture(scope="module")
def halved() -> Comparison:
    a = plant(ramp(1_600), 1)
    b = a.assign(score=plant(ramp(800), 1)["score"])
    return compare(Measured("A", a), Measured("B", b), bins_of(a), AnalysisSettings())


def arrows(comparison: Comparison) -> list[str]:
    from matplotlib.figure import Figure

    above, below = Figure().subplots(2, 1)
    draw_shift((above, below), comparison, (None, None))
    return [text.get_text() for text in above.texts if " drop x " in text.get_text()]


def test_a_ratio_without_an_end_is_no_number(halved: Comparison) -> None:
    assert halved.loss_shift.is_bounded
    ratio = f"x {halved.loss_shift.ratio:.2f}"
    assert arrows(halved) == [f"30% drop {ratio}"]
    assert ratio in comparison_markdown(halved)
    shift = replace(halved.loss_shift, ci_low=None, ci_high=None)
    opened = replace(halved, loss_shift=shift)
    opened = replace(opened, sentence=sentence(opened))
    assert "; whether a drop of 30% comes earlier or later is open." in opened.sentence
    assert arrows(opened) == []
    assert ratio not in comparison_markdown(opened)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.4, 0.6, "x 0.50 [0.40, 0.60]"),
        (None, 0.6, "x 0.50 [open, 0.60]"),
        (None, None, "open"),
    ],
)
def test_ends(low: float | None, high: float | None, words: str) -> None:
    assert (
        ratio_words(LossShift(a_tokens=1_000, b_tokens=500, ratio=0.5, ci_low=low, ci_high=high))
        == words
    )


def test_equal_caps_have_one_label(halved: Comparison) -> None:
    from matplotlib.figure import Figure

    for caps, labels in (
        ((700, 700), ["safe cap of both 700"]),
        ((700, 300), ["safe cap 700", "safe cap 300"]),
        ((None, 300), ["safe cap 300"]),
    ):
        above, below = Figure().subplots(2, 1)
        of_caps = replace(halved.caps, a_tokens=caps[0], b_tokens=caps[1])
        draw_shift((above, below), replace(halved, caps=of_caps), (None, None))
        texts = [text.get_text() for text in above.texts]
        assert [text for text in texts if text.startswith("safe cap")] == labels


def test_the_lengths_of_the_loss_are_those_that_each_result_gives() -> None:
    a = plant(ramp(1_600), 1)
    b = a.assign(score=plant(ramp(800), 1)["score"])
    settings = AnalysisSettings()
    cliffs = [profile_model(rows, [], settings, ProfileContext("m")).cliffs for rows in (a, b)]
    sides = [Measured(name, rows, c) for name, rows, c in zip("AB", (a, b), cliffs, strict=True)]
    shift = compare(*sides, bins_of(a), settings).loss_shift
    at = [c.lost_at_tokens for c in cliffs]
    assert [shift.a_tokens, shift.b_tokens] == at
    assert at[0] is not None
    assert at[1] is not None
    assert shift.ratio == pytest.approx(at[1] / at[0])
    assert shift.ci_low is not None
    assert shift.ci_low <= shift.ratio
    further = cliffs[0].certify.further
    assert further is not None
    assert f"past {at[0]:,} tokens" in str(further.reason)
