"""What in the data of a profile limits its result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.permutation_scan import scan_at
from contextcliff_dagster.analysis.records.samples import average_replicates
from contextcliff_dagster.analysis.robustness.sensitivity import SCORES
from contextcliff_dagster.contracts import DROPS, FailureTag, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from contextcliff_dagster.analysis.cliff.cap import Cap
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.curves.falling_curve import FallingCurve
    from contextcliff_dagster.analysis.profile.context import ProfileContext
    from contextcliff_dagster.analysis.records.samples import Documents, Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.results.cliffs import SensitivityRow
    from contextcliff_dagster.contracts.results.fields import BinResult

_ENDS, _REFUSED, _OTHERS = 1 / 3, 0.1, 0.25
"""Refusals are compared over this share of the answers at either end, count from this rise on, and
replace wrong answers where those rise by at most this share of it."""
_MISSING_WORTH_A_WARNING = 0.05
_HELD, _LEAST_WRONG = 0.10, 10
"""Share of the wrong answers that contain an accepted one from which the score is in doubt, and the
least number of wrong answers."""
_NARROW, _GAP = 4.0, 10.0
"""Factors of length: the least between the shortest and the longest document, and the largest
between neighbours, without a warning."""
_TWINS, _EQUAL, _LENGTHS = 0.8, 0.9, 20
"""Documents are copies where this share has another of its length, this share of such lengths has
equal scores, and there are at least so many lengths."""


def data_warnings(
    sample: Sample,
    rows: list[BinResult],
    finding: Finding,
    cap: Cap,
    context: ProfileContext,
    settings: AnalysisSettings,
) -> list[str]:
    """Return a sentence for each."""
    warnings = []
    calls = sample.calls
    unanswered = int((~calls["answered"]).sum())
    if len(calls) and unanswered / len(calls) > _MISSING_WORTH_A_WARNING:
        warnings.append(
            f"{unanswered} of {len(calls)} planned calls have no answer "
            f"({unanswered / len(calls):.0%}): the result uses the others."
        )
    empty = [row.bin for row in rows if row.n == 0]
    if empty:
        warnings.append(f"No answer was scored in {', '.join(empty)}.")
    early = 0.0 if finding.curve is None else early_drop(finding.curve)
    unseen = finding.verdict is Verdict.STABLE and not finding.visible
    if unseen and cap.tokens is None and early < settings.tolerance:
        warnings.append(
            "No drop is visible, but there are too few examples to call any length safe."
        )
    first = next((row for row in rows if row.sd is not None), None)
    if first and first.sd == 0 and len(rows) > 1:
        warnings.append(f"All answers of {first.bin} score alike; ignore the two rules on spread.")
    if len(sample.examples):
        documents = sample.documents()
        warnings += [*_range_warnings(documents), *_copies(documents)]
    floor = finding.verdict is Verdict.FLOOR
    if finding.curve is not None and early >= settings.tolerance and not floor:
        end = int(finding.curve.cells.high[finding.curve.cells.baseline_cells - 1])
        warnings.append(
            f"The score drops by some {early:.0%} within the baseline region already (up to "
            f"{end:,} tokens), and the cap is relative to that region's mean: measure shorter "
            "documents."
        )
    if refused := _refusals(sample, settings):
        warnings.append(refused)
    if context.window_tokens and len(sample.examples):
        longest = int(sample.examples["length_tokens"].max())
        if longest < 0.5 * context.window_tokens:
            warnings.append(
                f"The longest scored document has {longest:,} tokens, "
                f"{longest / context.window_tokens:.0%} of the window: nothing was measured beyond."
            )
    return warnings


def score_doubt(
    sample: Sample, varied: Sequence[SensitivityRow], verdict: Verdict, context: ProfileContext
) -> str | None:
    """Why the score may judge how the model speaks: wrong answers that hold an accepted one.

    Where at least `_HELD` of the wrong answers do, or where containment shows a drop and the score
    none, or the other way round.
    """
    examples, primary = sample.examples, context.primary
    held = examples["contained"].fillna(0.0).to_numpy() >= 1.0
    wrong = examples["failed"].fillna(0.0).to_numpy() > 0
    other = next((row for row in varied if row.value == SCORES["contained"]), None)
    if primary in (None, "contained") or other is None or wrong.sum() < _LEAST_WRONG:
        return None
    disagree = (other.verdict in DROPS) != (verdict in DROPS) and other.verdict is not Verdict.FLOOR
    if (share := float(held[wrong].mean())) < _HELD and not (disagree and share > 0):
        return None
    cap = other.safe_cap_tokens
    instead = "no safe cap" if cap is None else f"a safe cap of {cap:,} tokens"
    again = "--score contained" if context.study is None else f"{context.study} --score contained"
    return (
        f"{int((held & wrong).sum())} of {int(wrong.sum())} wrong answers contain an accepted one: "
        f"{SCORES[str(primary)]} may judge how the model speaks. From the shortest fifth of the "
        f"documents to the longest it is {_fifths(examples, 'score')}, containment "
        f"{_fifths(examples, 'contained')}. Containment gives {instead}; "
        f"`contextcliff report {again}` shows its curve, without a call."
    )


def _fifths(examples: pd.DataFrame, column: str) -> str:
    """Means of a column over fifths of the examples, in order of length."""
    ordered = examples.sort_values("length_tokens", kind="stable")[column].to_numpy(np.float64)
    return ", ".join(f"{np.nanmean(part):.2f}" for part in np.array_split(ordered, 5))


def early_drop(curve: FallingCurve) -> float:
    """What the fitted curve loses from its first cell to the end of the baseline region, 0..1."""
    fitted = curve.mean(0.5)[: curve.cells.baseline_cells]
    guessing = curve.documents.chance
    return float(1.0 - (fitted[-1] - guessing) / (fitted[0] - guessing))


def _refusals(sample: Sample, settings: AnalysisSettings) -> str | None:
    """Whether answers that are refused or empty, and no others, take the place of right ones."""
    calls = sample.calls[sample.calls["answered"]]
    if not len(calls):
        return None
    silent = calls["failure"].isin([FailureTag.REFUSAL, FailureTag.EMPTY]).to_numpy(np.float64)
    lost = np.where(silent > 0, 0.0, 1.0 - calls["score"].to_numpy(np.float64))
    ends = max(round(_ENDS * len(calls)), 1)
    before, beyond = silent[:ends].mean(), silent[-ends:].mean()
    wrong, wrong_beyond = lost[:ends].mean(), lost[-ends:].mean()
    rise = beyond - before
    if rise < _REFUSED or wrong_beyond - wrong > _OTHERS * rise:
        return None
    examples = average_replicates(calls.assign(score=1.0 - silent), np.ones(len(calls), bool))
    documents = replace(sample, examples=examples, chance=0.0).documents()
    alpha = 1.0 - settings.confidence
    scan = scan_at(documents, alpha, settings)
    if scan is None or scan.step.p_value > alpha:
        return None
    return (
        f"Refusals and empty answers rise with length, from {before:.0%} of the answers on the "
        f"shortest third of the documents to {beyond:.0%} on the longest; other wrong answers do "
        f"not ({wrong:.0%}, {wrong_beyond:.0%}): the model declines to answer rather than errs, so "
        "a drop may be one of willingness, not of ability."
    )


def _range_warnings(documents: Documents) -> Iterator[str]:
    lengths = documents.length_tokens
    shortest, longest = int(lengths[0]), int(lengths[-1])
    if shortest < longest < _NARROW * shortest:
        yield (
            f"All scored documents have {shortest:,} to {longest:,} tokens, a factor of "
            f"{longest / shortest:.1f}: a drop that takes longer cannot be seen."
        )
    steps = lengths[1:] / lengths[:-1]
    if len(steps) and steps.max() >= _GAP:
        low, high = (int(of) for of in lengths[np.argmax(steps) :][:2])
        yield f"No document between {low:,} and {high:,} tokens was scored: a drop there is unseen."


def _copies(documents: Documents) -> Iterator[str]:
    """Whether documents come several times: their answers are no new evidence."""
    lengths, group = np.unique(documents.length_tokens, return_inverse=True)
    count, mean = np.bincount(group), documents.s / documents.n
    shared = count > 1
    if len(lengths) < _LENGTHS or shared[group].mean() < _TWINS:
        return
    highest, lowest = np.zeros(len(lengths)), np.ones(len(lengths))
    np.maximum.at(highest, group, mean)
    np.minimum.at(lowest, group, mean)
    spread = len(np.unique(mean)) > 1
    if spread and (highest == lowest)[shared].mean() >= _EQUAL:
        yield (
            f"{int(count[shared].sum()):,} of {len(mean):,} documents have another of the same "
            "length and with the same scores. If they are copies under other names, every "
            "confidence is too high: measure each document once."
        )
