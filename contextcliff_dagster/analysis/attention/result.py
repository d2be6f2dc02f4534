"""What attention says of one model: the result with its sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.attention.entropy_threshold import fit_threshold
from contextcliff_dagster.analysis.attention.equal_length import foretell_wrong_answers
from contextcliff_dagster.analysis.attention.matched import attention_by_bin, match_attention
from contextcliff_dagster.analysis.attention.rope_failure import (
    find_entropy_change,
    predict_rope_failure,
)
from contextcliff_dagster.analysis.attention.wording import sentences
from contextcliff_dagster.contracts.results.attention import AttentionResult

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.attention.sample import AttentionSample
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings


def judge_attention(
    attention: AttentionSample | None,
    sample: Sample,
    finding: Finding,
    window_tokens: int | None,
    settings: AnalysisSettings,
) -> AttentionResult | None:
    """Attention over length and what it foretells; None where no example has score and attention.

    ``finding``: the verdict, which rests on the scores alone. ``window_tokens``: of the model, its
    own tokens.
    """
    matched = None if attention is None else match_attention(attention, sample)
    if attention is None or matched is None:
        return None
    change = find_entropy_change(matched, settings)
    threshold = None if finding.cliff is None else fit_threshold(matched, settings)
    trained = attention.trained_tokens
    heads = np.isfinite(attention.entropy).any(axis=0).sum(axis=1)
    result = AttentionResult(
        n=len(matched.examples),
        n_all=len(sample.examples),
        layers=int((heads > 0).sum()),
        layers_without=int((heads == 0).sum()),
        heads=int(heads.max()),
        trained_tokens=trained,
        longest_prompt=int(matched.prompt_tokens.max()),
        bins=attention_by_bin(matched, sample.bins, settings),
        wrong_answers=foretell_wrong_answers(matched, sample.bins, settings),
        threshold=threshold,
        change=change,
        rope=predict_rope_failure(matched, change, finding, trained, window_tokens),
        says=[],
    )
    return sentences(result)
