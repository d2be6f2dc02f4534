"""Comparison of two measurements: differences by length, and how far the loss shifted.

Differences are B minus A: a negative difference means that B is worse. Shifts of a length are
ratios B / A with their intervals: a ratio below 1 means that B loses earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.contrast import (
    Pairs,
    Side,
    adjusted_p_values,
    at_same_lengths,
    difference_curve,
    difference_interval,
    pair_records,
)
from contextcliff_dagster.analysis.kv_costs import kv_comparison
from contextcliff_dagster.analysis.statistics.intervals import loss_lengths, resample_weights
from contextcliff_dagster.contracts import DROPS, RESULT_VERSION, ContextCliffError, Verdict
from contextcliff_dagster.contracts.results.comparison import (
    ComparedCaps,
    ComparedSide,
    Comparison,
    DifferencePoint,
    Differing,
    DifferingBin,
    KvComparison,
    KvPolicy,
    LossShift,
)
from contextcliff_dagster.contracts.results.json_form import nulls

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.contracts import LengthBin
    from contextcliff_dagster.contracts.arrays import Floats
    from contextcliff_dagster.contracts.results import Cliffs

LOSS_RESAMPLES = 300


def loss_shift(
    pairs: Pairs,
    settings: AnalysisSettings,
    weights: tuple[Floats, Floats],
    *,
    half_drop: bool = False,
) -> LossShift:
    """Return the ratio B / A of the lengths at which the score falls by the tolerance.

    Uses the percentile bootstrap over documents, with the same documents on both sides if paired. A
    side that loses less within the measured lengths bounds the ratio at one end only.

    Args:
        half_drop: compare where half of each side's drop has happened instead.
    """
    tolerance = None if half_drop else settings.tolerance
    drawn = [weight[:, : LOSS_RESAMPLES + 1] for weight in weights]
    at_a, at_b = (
        loss_lengths(of.length_tokens, of.n, of.s, weight, tolerance, settings.chance)
        for of, weight in zip((pairs.a, pairs.b), drawn, strict=True)
    )
    longest = float(np.log(min(pairs.a.length_tokens[-1], pairs.b.length_tokens[-1])))
    least = np.where(np.isinf(at_a), -np.inf, np.minimum(at_b, longest) - at_a)
    most = np.where(np.isinf(at_b), np.inf, at_b - np.minimum(at_a, longest))
    tail = 0.5 * (1.0 - settings.confidence)
    low = float(np.quantile(least[1:], tail, method="inverted_cdf"))
    high = float(np.quantile(most[1:], 1.0 - tail, method="inverted_cdf"))
    both = bool(np.isfinite(at_a[0]) and np.isfinite(at_b[0]))
    return LossShift(
        a_tokens=tokens_of(at_a[0]),
        b_tokens=tokens_of(at_b[0]),
        ratio=float(np.exp(at_b[0] - at_a[0])) if both else None,
        ci_low=float(np.exp(low)) if np.isfinite(low) else None,
        ci_high=float(np.exp(high)) if np.isfinite(high) else None,
    )


def _placed(shift: LossShift, at: tuple[int, int]) -> LossShift:
    """Return the shift between lengths ``at`` of A and B, its interval extended to the ratio."""
    ratio = at[1] / at[0]
    return LossShift(
        a_tokens=at[0],
        b_tokens=at[1],
        ratio=ratio,
        ci_low=None if shift.ci_low is None else min(shift.ci_low, ratio),
        ci_high=None if shift.ci_high is None else max(shift.ci_high, ratio),
    )


def tokens_of(log_length: float) -> int | None:
    """Return the length in tokens for its logarithm; None if infinite."""
    return round(float(np.exp(log_length))) if np.isfinite(log_length) else None


PERMUTATIONS = 4_999
RESAMPLES = 1_000
MOST_DOCUMENTS = 20_000
"""Maximum documents per side, because signs and resamples of each are held in memory."""


@dataclass(frozen=True)
class Measured:
    """One side: its display name, its records, and its ``cliffs.json`` if there is one.

    ``kv``: its KV cache policy, if known; two policies of one model are also compared by memory
    and time.
    """

    name: str
    records: pd.DataFrame
    cliffs: Cliffs | None = None
    kv: KvPolicy | None = None


def compare(
    a: Measured,
    b: Measured,
    bins: Sequence[LengthBin],
    settings: AnalysisSettings,
    *,
    notes: Sequence[str] = (),
    created_at: str | None = None,
) -> Comparison:
    """Compare two measurements and return the content of ``comparison.json``.

    Args:
        bins: bins of A's manifest; if empty, deciles of A's lengths.
        notes: sentences about the two sides, shown before the comparison's own warnings.

    Raises:
        ContextCliffError: one side has no scored example, or its records cannot be analysed.
    """
    pairs = pair_records(a.records, b.records, bins)
    for side, measured in ((pairs.a, a), (pairs.b, b)):
        if not len(side.n):
            raise ContextCliffError(
                f"{measured.name} has no scored answer to compare; measure it first."
            )
        if len(side.n) > MOST_DOCUMENTS:
            raise ContextCliffError(
                f"{measured.name} has {len(side.n):,} documents, but a comparison takes at most "
                f"{MOST_DOCUMENTS:,}; compare a sample of them."
            )
    rng = np.random.default_rng(settings.seed)
    p_values = adjusted_p_values(pairs, PERMUTATIONS, rng)
    weights_a = resample_weights(len(pairs.a.n), RESAMPLES, rng)
    weights_b = weights_a if pairs.paired else resample_weights(len(pairs.b.n), RESAMPLES, rng)
    weights = (weights_a, weights_b)
    curve = difference_curve(pairs.a, pairs.b, weights, settings.confidence)
    cap_a, cap_b = (side.cliffs.safe_cap_tokens if side.cliffs else None for side in (a, b))
    result = Comparison(
        schema_version=RESULT_VERSION,
        created_at=created_at or datetime.now(UTC).isoformat(timespec="seconds"),
        a=_named(a, pairs.a, pairs.only_a),
        b=_named(b, pairs.b, pairs.only_b),
        paired=pairs.paired,
        n=int(pairs.a.n.sum()) if pairs.paired else None,
        n_documents=len(pairs.a.n) if pairs.paired else None,
        confidence=settings.confidence,
        tolerance=settings.tolerance,
        overall=_differing(pairs, None, weights, settings, p_values[0]),
        bins=[
            DifferingBin(
                bin=bin.bin,
                edge_low=bin.edge_low,
                edge_high=bin.edge_high,
                **asdict(_differing(pairs, place, weights, settings, p_values[1 + place])),
            )
            for place, bin in enumerate(pairs.bins)
        ],
        curve=[
            DifferencePoint(int(t), float(d), float(low), float(high))
            for t, d, low, high in zip(*curve, strict=True)
        ],
        caps=ComparedCaps(cap_a, cap_b, cap_b / cap_a if cap_a and cap_b else None),
        loss_shift=_loss_shift(pairs, a, b, settings, weights),
        midpoint_shift=_midpoint_shift(pairs, a, b, settings, weights),
        kv=_kv(pairs, a, b, settings),
        warnings=[*notes, *_warnings(pairs, a, b)],
        sentence="",
    )
    return replace(result, sentence=sentence(result))


def whole_cache_first(a: Measured, b: Measured) -> bool:
    """Return whether A and B must be swapped to make A the whole cache and B the KV policy."""
    if a.kv is None or b.kv is None or a.kv.base != b.kv.base:
        return False
    return _keeps_all(b.kv) and not _keeps_all(a.kv)


def _keeps_all(kv: KvPolicy) -> bool:
    """Return whether a policy keeps the whole cache; ``f16`` is the default of llama.cpp."""
    return kv.keeps_all or kv.policy == "f16"


def _kv(pairs: Pairs, a: Measured, b: Measured, settings: AnalysisSettings) -> KvComparison | None:
    """Return what B's KV policy saves; None unless both sides have the same base model."""
    if not pairs.paired or a.kv is None or b.kv is None:
        return None
    if a.kv.base != b.kv.base or a.kv == b.kv or b.kv.keeps_all:
        return None
    own_cap = b.cliffs.safe_cap_tokens if b.cliffs else None
    return kv_comparison(pairs, (a.records, b.records), (a.kv, b.kv), own_cap, settings)


def _midpoint_shift(
    pairs: Pairs,
    a: Measured,
    b: Measured,
    settings: AnalysisSettings,
    weights: tuple[Floats, Floats],
) -> LossShift | None:
    """Return the shift of the drop's midpoint; None unless both sides have an established drop.

    The interval is that of half the drop (`loss_shift`), extended to contain the ratio.
    """
    drops = [side.cliffs.cliff if side.cliffs else None for side in (a, b)]
    if drops[0] is None or drops[1] is None:
        return None
    at = drops[0].location_tokens, drops[1].location_tokens
    return _placed(loss_shift(pairs, settings, weights, half_drop=True), at)


def _loss_shift(
    pairs: Pairs,
    a: Measured,
    b: Measured,
    settings: AnalysisSettings,
    weights: tuple[Floats, Floats],
) -> LossShift:
    """Return the shift of the loss, between the lengths that both results give, if they do."""
    if any(of.cliffs is not None and of.cliffs.verdict is Verdict.FLOOR for of in (a, b)):
        return nulls(LossShift)  # the scores at the shortest lengths are too low for a drop
    shift = loss_shift(pairs, settings, weights)
    at = [side.cliffs.lost_at_tokens if side.cliffs else None for side in (a, b)]
    if shift.ratio is None or at[0] is None or at[1] is None:
        return shift
    return _placed(shift, (at[0], at[1]))


def _named(measured: Measured, side: Side, left_out: int) -> ComparedSide:
    cliffs = measured.cliffs
    names = ("study", "model", "campaign", "identity", "tokenizer")
    return ComparedSide(
        name=measured.name,
        **{name: getattr(cliffs, name, None) for name in names},
        verdict=cliffs.verdict.value if cliffs else None,
        score=cliffs.score.name if cliffs else None,
        n=int(side.n.sum()),
        n_documents=len(side.n),
        left_out=left_out,
    )


def _differing(
    pairs: Pairs,
    place: int | None,
    weights: tuple[Floats, Floats],
    settings: AnalysisSettings,
    p_value: float,
) -> Differing:
    """Return means, difference and interval for one bin, or for all examples.

    Without pairs, all examples are compared at the same mix of lengths, in the bins of both sides.
    """
    common = np.intersect1d(pairs.a.bin_index, pairs.b.bin_index)
    sides, drawn, places = [], [], []
    for side, weight in zip((pairs.a, pairs.b), weights, strict=True):
        if place is not None:
            inside = side.bin_index == place
        elif pairs.paired:
            inside = np.ones(len(side.n), bool)
        else:
            inside = np.isin(side.bin_index, common[common >= 0])
        sides.append(np.array([side.n[inside], side.s[inside]]))
        drawn.append(weight[inside])
        places.append(side.bin_index[inside])
    n_a, n_b = (int(side[0].sum()) for side in sides)
    if not n_a or not n_b:
        return nulls(Differing, n_a=n_a, n_b=n_b)
    if place is None and not pairs.paired:
        sides, drawn = at_same_lengths(sides, drawn, places)
    one, other = sides
    mean_a, mean_b = (float(side[1].sum() / side[0].sum()) for side in sides)
    differs = not np.isnan(p_value) and p_value <= 1.0 - settings.confidence
    low, high = difference_interval(one, other, (drawn[0], drawn[1]), settings.confidence)
    return Differing(
        n_a=n_a,
        n_b=n_b,
        mean_a=mean_a,
        mean_b=mean_b,
        difference=mean_b - mean_a,
        # The interval must contain 0 if the test is not significant.
        ci_low=min(low, mean_b - mean_a, *([] if differs else [0.0])),
        ci_high=max(high, mean_b - mean_a, *([] if differs else [0.0])),
        p_value=None if np.isnan(p_value) else float(p_value),
    )


def _warnings(pairs: Pairs, a: Measured, b: Measured) -> list[str]:
    warnings = []
    if not pairs.paired:
        warnings.append(
            "Unpaired: no example in common, so the documents differ too and the comparison is "
            "weaker than one on the same sample. Both are given the same mix of lengths."
        )
        outside = [int(side.n[side.bin_index < 0].sum()) for side in (pairs.a, pairs.b)]
        if any(outside):
            warnings.append(
                f"{outside[0]:,} examples of {a.name} and {outside[1]:,} of {b.name} are longer or "
                f"shorter than the bins of {a.name}, and count for the curves alone."
            )
    elif pairs.only_a or pairs.only_b:
        warnings.append(
            f"Only examples answered by both are compared: {pairs.only_a:,} examples of {a.name} "
            f"and {pairs.only_b:,} of {b.name} are left out."
        )
    if pairs.averaged:
        warnings.append(
            "Paired by document: answers that name no example are averaged over their document."
        )
    names = [side.cliffs.score.name if side.cliffs else None for side in (a, b)]
    if None not in names and names[0] != names[1]:
        warnings.append(f"{a.name} is scored by {names[0]}, {b.name} by {names[1]}.")
    return warnings


def sentence(result: Comparison) -> str:
    """Return the comparison in one sentence."""
    a, b, overall = result.a.name, result.b.name, result.overall
    alpha = 1.0 - result.confidence
    difference = overall.difference
    span = f"{overall.ci_low or 0:+.2f} to {overall.ci_high or 0:+.2f}"
    sure = [row for row in result.bins if row.p_value is not None and row.p_value <= alpha]
    lower, higher = (
        ", ".join(row.bin for row in sure if sign * (row.difference or 0) > 0) for sign in (-1, 1)
    )
    if difference is None:
        sentence = f"{b} and {a} have no length bin in common, so their scores are not compared"
    elif overall.p_value is not None and overall.p_value <= alpha:
        sentence = f"{b} scores {'lower' if difference < 0 else 'higher'} than {a} by "
        sentence += f"{abs(difference):.2f} on average ({span}, p = {overall.p_value:.2g})"
        bins_alike, reverse = (lower, higher) if difference < 0 else (higher, lower)
        sentence += f", significantly so in {bins_alike}" if bins_alike else ""
        sentence += f", and significantly the reverse in {reverse}" if reverse else ""
    elif sure:
        sentence = f"{b} and {a} differ at some lengths (overall {difference:+.2f}, {span}): {b} "
        parts = [f"scores lower in {lower}"] * bool(lower)
        parts += [f"scores higher in {higher}"] * bool(higher)
        sentence += " and ".join(parts)
    else:
        sentence = f"No difference detected between {b} and {a} (overall {difference:+.2f}, {span})"
    shift = result.loss_shift
    shown = [
        side
        for side, at in ((result.a, shift.a_tokens), (result.b, shift.b_tokens))
        if (at is not None if side.verdict is None else side.verdict in DROPS)
    ]
    baseline = " from its own baseline" if result.kv is not None else ""
    drop = f"a drop of {result.tolerance:.0%}{baseline}"
    floor = [side.name for side in (result.a, result.b) if side.verdict == Verdict.FLOOR.value]
    if floor:
        sentence += f"; no shift of the drop is measured, since {' and '.join(floor)} "
        sentence += f"{'has' if len(floor) == 1 else 'have'} nothing to lose at any length"
    elif not shown:
        sentence += f"; neither shows {drop} within the measured lengths"
    elif len(shown) == 1:
        sentence += f"; only {shown[0].name} shows a drop with length"
    elif shift.ratio is None or not shift.is_bounded:
        sentence += f"; whether {drop} comes earlier or later is open"
    else:
        low, high = (f"{v:.2f}" if v else "open" for v in (shift.ci_low, shift.ci_high))
        sentence += (
            f"; {drop} is reached at {shift.b_tokens:,} tokens instead of "
            f"{shift.a_tokens:,} (ratio {shift.ratio:.2f}, {low} to {high})"
        )
    return sentence + "."
