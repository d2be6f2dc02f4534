"""Attention next to the scores of the same examples, and its means over length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts.results.attention import AttentionBin
from contextcliff_dagster.contracts.results.fields import MeanScore

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.attention.sample import AttentionSample
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts import LengthBin
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

RIGHT = 0.5
"""Least score of a right answer."""


@dataclass(frozen=True, slots=True)
class MatchedAttention:
    """Examples with an answer and attention, in order of length.

    Attributes:
        examples: their rows of `Sample.examples` (n), with ``entropy``, ``sinks`` and ``evidence``,
            means over layers and heads; ``evidence`` NaN where unknown.
        entropy_by_layer, evidence_by_layer: of each layer that attends, means over its heads
            (n, layers).
        prompt_tokens: in the model's own tokens (n).
    """

    examples: pd.DataFrame
    entropy_by_layer: Floats
    evidence_by_layer: Floats
    prompt_tokens: Ints

    @property
    def wrong(self) -> Bools:
        """Whether the answer is wrong (n)."""
        return self.examples["score"].to_numpy(np.float64) < RIGHT

    @property
    def length_tokens(self) -> Ints:
        """Of the documents (n)."""
        return self.examples["length_tokens"].to_numpy(np.int64)

    @property
    def document(self) -> Ints:
        """A number for each document (n)."""
        return self.examples["document"].to_numpy(np.int64)


def match_attention(attention: AttentionSample, sample: Sample) -> MatchedAttention | None:
    """The examples of ``sample`` that ``attention`` has; None without any."""
    place = {name: i for i, name in enumerate(attention.example_ids)}
    rows = sample.examples["example_id"].astype(str).map(place)
    known = rows.notna().to_numpy()
    if not known.any():
        return None
    own = rows[known].to_numpy(np.int64)
    measures = {name: getattr(attention, name)[own] for name in ("entropy", "sinks", "evidence")}
    examples = sample.examples[known].assign(
        **{name: _mean_known(values, (1, 2)) for name, values in measures.items()}
    )
    attends = np.isfinite(attention.entropy).any(axis=(0, 2))
    entropy, evidence = (
        _mean_known(measures[name][:, attends], (2,)) for name in ("entropy", "evidence")
    )
    return MatchedAttention(examples, entropy, evidence, attention.tokens[own])


def _mean_known(values: Floats, axes: tuple[int, ...]) -> Floats:
    """Mean of what is known over ``axes``; NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis=axes)
    total = np.where(known, values, 0.0).sum(axis=axes)
    out: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return out


def attention_by_bin(
    matched: MatchedAttention, bins: list[LengthBin], settings: AnalysisSettings
) -> list[AttentionBin]:
    """Means of each bin that has examples, with Student's intervals over documents."""
    rows = []
    index = matched.examples["bin_index"].to_numpy(np.int64)
    for i, length_bin in enumerate(bins):
        mine = index == i
        if not mine.any():
            continue
        own, document = matched.examples[mine], matched.document[mine]
        entropy, sinks, evidence = (
            _mean(own[name].to_numpy(np.float64), document, settings.confidence)
            for name in ("entropy", "sinks", "evidence")
        )
        rows.append(
            AttentionBin(
                bin=length_bin.bin,
                tokens=int(own["length_tokens"].median()),
                entropy=entropy,
                sinks=sinks,
                evidence=evidence,
                entropy_by_layer=_layers(matched.entropy_by_layer[mine]),
                evidence_by_layer=_layers(matched.evidence_by_layer[mine]),
            )
        )
    return rows


def _layers(values: Floats) -> list[float]:
    """Mean of each layer over the examples where it is known."""
    known = np.isfinite(values).all(axis=1)
    return [float(x) for x in values[known].mean(axis=0)] if known.any() else []


def _mean(values: Floats, document: Ints, confidence: float) -> MeanScore:
    """Mean of what is known, its interval over documents; null with a single document."""
    from scipy.special import stdtrit

    known = np.isfinite(values)
    values, document = values[known], document[known]
    if not len(values):
        return MeanScore(0, None, None, None)
    mean = float(values.mean())
    _, own = np.unique(document, return_inverse=True)
    parts = np.bincount(own, weights=values - mean) / len(values)
    count = len(parts)
    if count < 2:
        return MeanScore(len(values), mean, None, None)
    error = float(np.sqrt(parts @ parts * count / (count - 1)))
    half = float(stdtrit(count - 1, 0.5 + 0.5 * confidence)) * error
    return MeanScore(len(values), mean, max(mean - half, 0.0), min(mean + half, 1.0))
