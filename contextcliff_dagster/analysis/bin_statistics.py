"""Scores and intervals of each length bin, and warnings about the underlying data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.latency import KINDS, Canary, spread_of, summary
from contextcliff_dagster.analysis.records import average_replicates
from contextcliff_dagster.analysis.robustness import SCORES
from contextcliff_dagster.analysis.statistics.intervals import mean_score
from contextcliff_dagster.analysis.statistics.permutation_scan import scan_at
from contextcliff_dagster.contracts import DROPS, FailureTag, Verdict
from contextcliff_dagster.contracts.results.json_form import BinResult, LengthUnit
from contextcliff_dagster.contracts.results.metrics import BinMetrics, ExcessByKind, Totals

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.attention import AttentionSample
    from contextcliff_dagster.analysis.cliff import Cap, Finding
    from contextcliff_dagster.analysis.control_tests import ControlAnswers
    from contextcliff_dagster.analysis.records import AnalysisSettings, Documents, Sample
    from contextcliff_dagster.analysis.statistics.falling_curve import FallingCurve
    from contextcliff_dagster.contracts.arrays import Floats
    from contextcliff_dagster.contracts.results import Cliffs, Metrics
    from contextcliff_dagster.contracts.results.cliffs import Look, SensitivityRow


@dataclass(frozen=True, slots=True)
class ProfileContext:
    """Facts about one model's records that the records do not contain.

    Attributes:
        model: serving configuration that produced the records.
        study, campaign, task, tokenizer: names, ``None`` if unknown.
        length_unit: what the lengths count.
        identity: hash of the serving identity.
        window_tokens: the model's technical window, in its own tokens.
        score_name: name of the score in ``cliffs.json``.
        primary: which of ``em``, ``f1``, ``contained`` the score is; ``None`` for a custom one.
        scorer_version: version of our scorers; ``None`` for scores from elsewhere.
        provenance: hashes, versions, seeds, times; copied into the result.
        warnings: sentences about the measurement, shown with the warnings of the analysis.
        per_bin: maximum examples asked per bin; ``None`` if the origin of the scores is unknown.
        looks: caps that were read earlier, when there were fewer examples per bin.
        copied_share: fraction of the questions whose answer occurs word for word in the document.
        controls: scored answers to the same questions without their document.
        attention: attention of the last prompt token, if measured; verdict and cap never use it.
        created_at: ISO 8601 time of the analysis; ``None`` uses the clock.
    """

    model: str
    study: str | None = None
    campaign: str | None = None
    task: str | None = None
    tokenizer: str | None = None
    length_unit: LengthUnit = "document"
    identity: str | None = None
    window_tokens: int | None = None
    score_name: str = "score"
    primary: str | None = None
    scorer_version: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    copied_share: float | None = None
    created_at: str | None = None
    per_bin: int | None = None
    looks: Sequence[Look] = ()
    controls: Sequence[ControlAnswers] = ()
    attention: AttentionSample | None = None

    @property
    def names(self) -> dict[str, Any]:
        """Return the fields that identify the result's origin: study, campaign, task etc."""
        return {name: getattr(self, name) for name in ("created_at", "study", "campaign", "model")}


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The analysis of one model, written as ``metrics.json`` and ``cliffs.json``."""

    metrics: Metrics
    cliffs: Cliffs


# Selecting a bin's rows takes time per column, and most columns are not needed here.
_OF_CALLS = ("bin_index", "answered", "failure", "ttft_ms", "duration_ms")
_OF_EXAMPLES = ("bin_index", "document", "length_tokens", "score", "score_sd", "failed")
_SUMMED = (
    "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cost_usd",
    "duration_ms",
)  # fmt: skip
_SCORES = ("em", "f1", "contained")


def bin_statistics(
    sample: Sample, settings: AnalysisSettings, canaries: Mapping[str, Canary]
) -> list[BinResult]:
    """Return the ``bins`` of ``cliffs.json``: every bin, with nulls for empty ones.

    ``n`` counts examples with an answer (replicates averaged), ``missing`` calls without one.
    ``variance`` and ``sd`` describe the example scores (population form, so that a 0/1 score has
    variance mean (1 - mean) and no SD exceeds 0.5); null below two examples. Intervals resample
    documents.
    """
    tagged = bool(sample.calls["failure"].ne("").any() or sample.calls["failed"].notna().any())
    all_calls = sample.calls[[*_OF_CALLS]].assign(ttft_excess=canaries["ttft"].excess)
    all_examples = sample.examples[[*_OF_EXAMPLES]]
    delivered = _delivered(sample)
    rows = []
    for i, length_bin in enumerate(sample.bins):
        calls = all_calls[all_calls["bin_index"] == i]
        examples = all_examples[all_examples["bin_index"] == i]
        answered = calls[calls["answered"]]
        scores = examples["score"].to_numpy(np.float64)
        lengths = examples["length_tokens"].to_numpy(np.int64)
        score = mean_score(examples, settings, i)
        low, high = score.ci_low, score.ci_high
        variance = float(scores.var()) if len(scores) > 1 else None
        tags = answered.loc[answered["failure"].ne(""), "failure"].value_counts()
        row = BinResult(
            bin=length_bin.bin,
            n=score.n,
            n_documents=examples["document"].nunique() if sample.documents_known else None,
            edge_low=length_bin.edge_low,
            edge_high=length_bin.edge_high,
            min_tokens=int(lengths.min()) if score.n else length_bin.min_tokens,
            median_tokens=int(np.median(lengths)) if score.n else length_bin.median_tokens,
            max_tokens=int(lengths.max()) if score.n else length_bin.max_tokens,
            mean=score.mean,
            ci_low=low,
            ci_high=high,
            sd=None if variance is None else float(np.sqrt(variance)),
            variance=variance,
            failure_rate=_known(examples["failed"], "mean"),
            failures={k: int(tags[k]) for k in sorted(tags.index) if tags[k]} if tagged else None,
            missing=int((~calls["answered"]).sum()),
            ci_width=None if low is None or high is None else high - low,
            rolling_variance=None,
            bimodality=bimodality(scores),
            instability=instability(examples["score_sd"].to_numpy(np.float64)),
            ttft_excess=_known(answered["ttft_excess"], "median"),
            ttft_ms=summary(answered["ttft_ms"].to_numpy(np.float64)),
            duration_ms=summary(answered["duration_ms"].to_numpy(np.float64)),
            delivered_mean=None if len(answered) == len(calls) else delivered.get(i),
        )
        rows.append(row)
    rolling = rolling_variance([r.n for r in rows], [r.variance for r in rows], settings.rolling)
    return [replace(row, rolling_variance=value) for row, value in zip(rows, rolling, strict=True)]


def _delivered(sample: Sample) -> dict[int, float]:
    """Return each bin's mean score, counting missing answers as 0; empty if none is missing.

    An example that has calls in two bins counts in one of them, so a bin may have no mean.
    """
    answered = sample.calls["answered"]
    if answered.all():
        return {}
    calls = sample.calls.assign(score=sample.calls["score"].where(answered, 0.0))
    examples = average_replicates(calls, np.ones(len(calls), bool))
    means = examples.groupby("bin_index")["score"].mean()
    return dict(zip(means.index.tolist(), means.tolist(), strict=True))


def latency_excess(sample: Sample, canaries: Mapping[str, Canary], index: int) -> ExcessByKind:
    """Return the excess of bin ``index``'s times over the law, per kind of time (`spread_of`)."""
    in_bin = (sample.calls["bin_index"] == index).to_numpy()
    return ExcessByKind(
        **{
            kind: spread_of(canaries[kind].excess[in_bin], canaries[kind].late_ms[in_bin])
            for kind in KINDS
        }
    )


def totals_of(calls: pd.DataFrame) -> Totals:
    """Return the totals over all calls; a total is null if no record has its column."""
    sums: dict[str, Any] = {name: _known(calls[name], "sum") for name in _SUMMED}
    for name, value in sums.items():
        if name.endswith("_tokens") and value is not None:
            sums[name] = int(value)
    return Totals(**sums)


def bin_metrics(row: BinResult, excess: ExcessByKind, index: int, sample: Sample) -> BinMetrics:
    """Return a bin's row, with the means of all three scores and the cost of the bin's calls."""
    calls = sample.calls.loc[sample.calls["bin_index"] == index, [*_SUMMED]]
    examples = sample.examples.loc[sample.examples["bin_index"] == index, [*_SCORES]]
    added: dict[str, Any] = {name: _known(examples[name], "mean") for name in _SCORES}
    added |= asdict(totals_of(calls))
    del added["duration_ms"]
    return BinMetrics(
        **{column.name: getattr(row, column.name) for column in fields(BinResult)},
        **added,
        calls=len(calls),
        latency_excess=excess,
    )


def _known(column: pd.Series[Any], statistic: str) -> float | None:
    """Return the mean, median or sum of the non-null values; None if there are none."""
    known_values = column.dropna()
    return float(getattr(known_values, statistic)()) if len(known_values) else None


_LEAST_FOR_SHAPE = 8
_LEAST_BETWEEN = 0.05


def bimodality(scores: Floats) -> float | None:
    """Return Sarle's bimodality coefficient: (g^2 + 1) / (k + 3 (n - 1)^2 / ((n - 2)(n - 3))).

    g and k are the sample skewness and excess kurtosis (SAS, Cluster procedure; Pfister et al.
    2013). A uniform distribution gives 5/9; larger values suggest two modes. ``None`` if it is
    uninformative: fewer than 8 scores, no spread, or fewer than 5% strictly between 0 and 1 (0/1
    scores have two modes by construction).
    """
    n = len(scores)
    if n < _LEAST_FOR_SHAPE or np.mean((scores > 0) & (scores < 1)) < _LEAST_BETWEEN:
        return None
    centred = scores - scores.mean()
    m2 = float(np.mean(centred**2))
    if m2 < 1e-12:
        return None
    g1 = float(np.mean(centred**3)) / m2**1.5
    g2 = float(np.mean(centred**4)) / m2**2 - 3.0
    skewness = g1 * np.sqrt(n * (n - 1)) / (n - 2)
    kurtosis = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * g2 + 6)
    return float((skewness**2 + 1) / (kurtosis + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3))))


def instability(replicate_sd: Floats) -> float | None:
    """Return the mean SD between the replicates of an example; ``None`` without replicates.

    Args:
        replicate_sd: sample SD of each example's replicates, NaN for a single one.

    >>> instability(np.array([0.25, 0.75, np.nan]))
    0.5
    """
    known_values = replicate_sd[np.isfinite(replicate_sd)]
    return float(known_values.mean()) if len(known_values) else None


def rolling_variance(
    counts: list[int], variances: list[float | None], window: int
) -> list[float | None]:
    """Return within-bin variances, pooled by n over each bin and the ``window - 1`` before it."""
    pooled: list[float | None] = []
    for end in range(1, len(counts) + 1):
        at = slice(max(0, end - window), end)
        near = [(n, v) for n, v in zip(counts[at], variances[at], strict=True) if v is not None]
        total = sum(n for n, _ in near)
        pooled.append(sum(n * v for n, v in near) / total if total else None)
    return pooled


_ENDS, _REFUSED, _OTHERS = 1 / 3, 0.1, 0.25
"""Thresholds for refusals: fraction of answers compared at either end, smallest rise that counts,
and largest rise of other wrong answers relative to that of refusals."""
_MISSING_WORTH_A_WARNING = 0.05
_HELD, _LEAST_WRONG = 0.10, 10
"""The score is doubted if at least this fraction of wrong answers contain an accepted answer, and
there are at least this many wrong answers."""
_NARROW, _GAP = 4.0, 10.0
"""Length ratios that need no warning: between the longest and shortest document at least the first,
between neighbouring documents at most the second."""
_TWINS, _EQUAL, _LENGTHS = 0.8, 0.9, 20
"""Documents may be copies if this fraction of them share their length with another document, this
fraction of those lengths have equal scores, and there are at least this many such lengths."""


def data_warnings(
    sample: Sample,
    rows: list[BinResult],
    finding: Finding,
    cap: Cap,
    context: ProfileContext,
    settings: AnalysisSettings,
) -> list[str]:
    """Return the warnings about the data, one sentence each."""
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
    """Return a warning if the score may judge wording rather than content, else None.

    It warns if at least `_HELD` of the wrong answers contain an accepted answer, or if a drop shows
    in only one of score and containment.
    """
    examples, primary = sample.examples, context.primary
    hits = examples["contained"].fillna(0.0).to_numpy() >= 1.0
    wrong = examples["failed"].fillna(0.0).to_numpy() > 0
    other = next((row for row in varied if row.value == SCORES["contained"]), None)
    if primary in (None, "contained") or other is None or wrong.sum() < _LEAST_WRONG:
        return None
    disagree = (other.verdict in DROPS) != (verdict in DROPS) and other.verdict is not Verdict.FLOOR
    if (share := float(hits[wrong].mean())) < _HELD and not (disagree and share > 0):
        return None
    cap = other.safe_cap_tokens
    instead = "no safe cap" if cap is None else f"a safe cap of {cap:,} tokens"
    command = "--score contained" if context.study is None else f"{context.study} --score contained"
    return (
        f"{int((hits & wrong).sum())} of {int(wrong.sum())} wrong answers contain an accepted one: "
        f"{SCORES[str(primary)]} may judge how the model speaks. From the shortest fifth of the "
        f"documents to the longest it is {_fifths(examples, 'score')}, containment "
        f"{_fifths(examples, 'contained')}. Containment gives {instead}; "
        f"`contextcliff report {command}` shows its curve, without a call."
    )


def _fifths(examples: pd.DataFrame, column: str) -> str:
    """Return a column's mean in each fifth of the examples, in order of length."""
    ordered = examples.sort_values("length_tokens", kind="stable")[column].to_numpy(np.float64)
    return ", ".join(f"{np.nanmean(part):.2f}" for part in np.array_split(ordered, 5))


def early_drop(curve: FallingCurve) -> float:
    """Return the fitted loss from the first cell to the end of the baseline region, 0..1."""
    fitted = curve.mean(0.5)[: curve.cells.baseline_cells]
    guessing = curve.documents.chance
    return float(1.0 - (fitted[-1] - guessing) / (fitted[0] - guessing))


def _refusals(sample: Sample, settings: AnalysisSettings) -> str | None:
    """Return a warning if refusals and empty answers rise with length but wrong answers do not."""
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
    """Yield a warning if documents look like copies: repeated answers are not new evidence."""
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
