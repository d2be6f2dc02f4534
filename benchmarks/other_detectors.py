"""Drops found by other detectors: ``python benchmarks/other_detectors.py FILE``.

FILE has a format that ``contextcliff analyze`` reads. The output is JSON: for each model, the
verdict and each detector's finding.

Each is a rule of thumb in the manner of the literature on critical context lengths, or, for
``ruptures``, a change-point algorithm with a penalty. None has an error rate: they show whether the
location depends on the method, and add no confidence.

Four read the bins' means m_1..m_K at their median lengths L_1..L_K; x = log L, m_0 the baseline:

- ``gradient``: the steepest fall (m_(k+1) - m_k) / (x_(k+1) - x_k) of all neighbours, at
  sqrt(L_k L_(k+1)); found where that one step loses at least the tolerance of the baseline.
- ``second_derivative``: the bin at which the curve bends down most, the least
  (slope after - slope before) / (half the distance of its neighbours), means first smoothed over
  three bins; at L_k; found where the fall from there to the end is at least the tolerance.
- ``binned_statistics``: the first bin whose interval lies wholly below (1 - tolerance) m_0, at its
  lower edge of lengths.
- ``percentile_threshold``: the first bin whose mean, and every later one's, lies below the tenth
  percentile of the baseline region's means of five neighbouring documents and below
  (1 - tolerance) m_0; at L_k.

Two read the documents in order of length:

- ``sliding_window``: windows of 10% of the documents; the first whose mean is below
  (1 - tolerance) m_0, and still is half and a whole window later; at its middle.
- ``ruptures``: PELT with the squared-error cost (Killick, Fearnhead and Eckley 2012, Journal of the
  American Statistical Association 107, 1590-1598; library: Truong, Oudre and Vayatis 2020, Signal
  Processing 167, 107299) on means of at most 100 groups of neighbours, penalty 3 s^2 log n with s^2
  half the mean squared difference of neighbours; the largest fall among the changes found, where
  it is at least ``LEAST_STEP`` of the baseline.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import ruptures

from contextcliff_dagster.analysis.profile import AnalysisSettings, ProfileContext, profile_model
from contextcliff_dagster.analysis.records import clean_records
from contextcliff_dagster.contracts import ContextCliffError, Verdict
from contextcliff_dagster.contracts.results.cliffs import Detector
from contextcliff_dagster.score_files.logs.answers import LogOptions
from contextcliff_dagster.score_files.reader import read_scores

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records import Documents
    from contextcliff_dagster.contracts.arrays import Floats
    from contextcliff_dagster.contracts.results.cliffs import Baseline, Cliff
    from contextcliff_dagster.contracts.results.json_form import BinResult


LEAST_STEP = 0.15
"""Least share of the baseline that the largest fall of ``ruptures`` must lose."""
_LEAST_BINS = 4
_LEAST_DOCUMENTS = 20
_WINDOW = 0.10
_NEIGHBOURS = 5
_GROUPS = 100


def second_opinions(
    documents: Documents,
    rows: Sequence[BinResult],
    baseline: Baseline,
    tolerance: float,
    verdict: Verdict,
    cliff: Cliff | None,
) -> list[Detector]:
    """Return where each detector finds a drop, and whether it agrees with the verdict.

    It agrees if its place lies in the cliff's interval, or if it finds none and the verdict is
    stable; null if the verdict has nothing to agree with, or the data are too few for the detector.

    Args:
        rows: rows of ``bins``.
        cliff: ``cliff`` of ``cliffs.json``.
    """
    places = _by_bins(rows, baseline, documents, tolerance)
    places |= _by_documents(documents, baseline.mean, tolerance)
    return [
        Detector(
            name,
            None if place is None else round(place),
            _agrees(place, verdict, cliff) if able else None,
        )
        for name, (able, place) in places.items()
    ]


Found = dict[str, tuple[bool, float | None]]
"""Detector -> whether it had enough data, and the length at which it finds a drop."""


def _agrees(place: float | None, verdict: Verdict, cliff: Cliff | None) -> bool | None:
    if verdict is Verdict.STABLE:
        return place is None
    if cliff is None:
        return None
    return place is not None and cliff.ci_low <= round(place) <= cliff.ci_high


def _by_bins(
    rows: Sequence[BinResult],
    baseline: Baseline,
    documents: Documents,
    tolerance: float,
) -> Found:
    names = ("gradient", "second_derivative", "binned_statistics", "percentile_threshold")
    scored = [r for r in rows if r.mean is not None]
    tokens = np.array([r.median_tokens for r in scored], dtype=np.float64)
    mean = np.array([r.mean for r in scored], dtype=np.float64)
    base = baseline.mean
    if len(scored) < _LEAST_BINS or not base or (np.diff(tokens) <= 0).any():
        return dict.fromkeys(names, (False, None))
    level = (1.0 - tolerance) * base
    x = np.log(tokens)

    steepest = int(np.argmin(np.diff(mean) / np.diff(x)))
    falls = mean[steepest] - mean[steepest + 1] >= tolerance * base
    gradient = float(np.sqrt(tokens[steepest] * tokens[steepest + 1])) if falls else None

    smooth = np.convolve(np.pad(mean, 1, mode="edge"), np.full(3, 1 / 3), mode="valid")
    slope = np.diff(smooth) / np.diff(x)
    bend = int(np.argmin(np.diff(slope) / (0.5 * (x[2:] - x[:-2])))) + 1
    bends = smooth[bend] - smooth[bend:].min() >= tolerance * base
    second = float(tokens[bend]) if bends else None

    below = [i for i, r in enumerate(scored) if r.ci_high is not None and r.ci_high < level]
    binned = float(scored[below[0]].edge_low) if below else None

    inside = documents.length_tokens <= (baseline.to_tokens or 0)
    usual = _moving_means(documents.n[inside], documents.s[inside], _NEIGHBOURS)
    low = mean < min(float(np.quantile(usual, 0.10)), level)
    stays = np.flatnonzero(np.logical_and.accumulate(low[::-1])[::-1])
    percentile = float(tokens[stays[0]]) if len(stays) else None
    return dict(
        zip(names, ((True, p) for p in (gradient, second, binned, percentile)), strict=True)
    )


def _by_documents(documents: Documents, base: float | None, tolerance: float) -> Found:
    lengths = documents.length_tokens.astype(np.float64)
    count = len(lengths)
    if count < _LEAST_DOCUMENTS or not base:
        return {"sliding_window": (False, None), "ruptures": (False, None)}
    return {
        "sliding_window": (True, _sliding_window(documents, (1.0 - tolerance) * base)),
        "ruptures": (True, _ruptures(documents, base)),
    }


def _sliding_window(documents: Documents, level: float) -> float | None:
    count = len(documents.n)
    width = max(round(_WINDOW * count), 5)
    mean = _moving_means(documents.n, documents.s, width)
    start = np.arange(len(mean))
    last = len(mean) - 1
    low = mean < level
    for later in (width // 2, width):
        low = low & (mean < level)[np.minimum(start + later, last)]
    hits = np.flatnonzero(low)
    return float(documents.length_tokens[hits[0] + width // 2]) if len(hits) else None


def _moving_means(n: Floats, s: Floats, width: int) -> Floats:
    """Return mean scores of all runs of ``width`` neighbours, or of all if there are fewer."""
    width = min(width, len(n))
    cum_n, cum_s = (np.concatenate([[0.0], np.cumsum(side)]) for side in (n, s))
    out: Floats = (cum_s[width:] - cum_s[:-width]) / (cum_n[width:] - cum_n[:-width])
    return out


def _ruptures(documents: Documents, base: float) -> float | None:
    count = len(documents.n)
    group = np.arange(count) * min(count, _GROUPS) // count
    first = np.flatnonzero(np.diff(group, prepend=-1))
    signal = np.add.reduceat(documents.s, first) / np.add.reduceat(documents.n, first)
    noise = 0.5 * float(np.mean(np.diff(signal) ** 2))
    if noise < 1e-12 and np.ptp(signal) < 1e-12:
        return None
    penalty = 3.0 * max(noise, 1e-6) * np.log(len(signal))
    # The linear kernel is the squared-error cost, in C.
    search = ruptures.KernelCPD(kernel="linear", min_size=5).fit(signal)
    ends = [int(end) for end in search.predict(pen=float(penalty))]
    starts = [0, *ends[:-1]]
    means = [float(signal[a:b].mean()) for a, b in zip(starts, ends, strict=True)]
    falls = [
        (before - after, at) for before, after, at in zip(means, means[1:], ends, strict=False)
    ]
    deepest, at = max(falls, default=(0.0, 0))
    if deepest < LEAST_STEP * base:
        return None
    edge = first[at]
    return float(np.sqrt(documents.length_tokens[edge - 1] * float(documents.length_tokens[edge])))


def main(arguments: Sequence[str]) -> int:
    """Print the detectors' findings for each file; return 2 if a file cannot be read."""
    settings = AnalysisSettings(second_opinions=False)
    try:
        for path in map(Path, arguments):
            for scores in read_scores(path, LogOptions()):
                model = scores.model or path.name
                cliffs = profile_model(scores.frame, [], settings, ProfileContext(model)).cliffs
                found = second_opinions(
                    clean_records(scores.frame, []).documents(),
                    cliffs.bins,
                    cliffs.baseline,
                    settings.tolerance,
                    cliffs.verdict,
                    cliffs.cliff,
                )
                detectors = [asdict(detector) for detector in found]
                print(json.dumps({"model": model, "verdict": cliffs.verdict, "found": detectors}))
    except ContextCliffError as error:
        print(f"contextcliff: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
