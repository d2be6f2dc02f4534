"""Results on the attention of the last prompt token. Verdict and cap never use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from contextcliff_dagster.contracts.results.json_form import (
    Count,
    MeanScore,
    Probability,
    Relative,
    Share,
    Spread,
    Tokens,
)

Predictor = Literal["entropy", "evidence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBin:
    """Attention in one length bin: means over heads and layers, intervals over documents."""

    bin: Annotated[str, "length bin"]
    tokens: Annotated[Tokens | None, "median length of its examples"]
    entropy: Annotated[MeanScore, "entropy / log(prompt tokens)"]
    sinks: Annotated[MeanScore, "share on the prompt's first tokens"]
    evidence: Annotated[MeanScore, "share on the evidence; of examples whose evidence is known"]
    entropy_by_layer: Annotated[
        Sequence[Share], "mean entropy of each layer that attends, in order"
    ]
    evidence_by_layer: Annotated[Sequence[Share], "mean share likewise; empty where unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongAnswers:
    """Whether a property of the attention foretells a wrong answer at equal length."""

    predictor: Annotated[Predictor, "high entropy, or a small share on the evidence"]
    n: Annotated[Count, "examples in bins with right and wrong answers"]
    n_wrong: Annotated[Count, "wrong ones of them"]
    one_class_bins: Annotated[Sequence[str], "bins left out: all answers right, or all wrong"]
    auc: Annotated[
        Share | None,
        "chance that of a wrong and a right answer in a bin the wrong one has the higher entropy, "
        "or the smaller share, each less its trend with length",
    ]
    ci_low: Annotated[Share | None, "lower limit of the AUC"]
    ci_high: Annotated[Share | None, "upper limit of the AUC"]
    p_value: Annotated[Probability | None, "of an AUC of .5, by permutation within bins; Holm's"]
    foretells: Annotated[bool | None, "p at the level of the interval, which has no .5 inside"]
    refused_because: Annotated[str | None, "why there is no AUC, a clause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedError:
    """Mean of the share of wrong answers missed and of right answers flagged."""

    value: Annotated[Share, "error"]
    ci_low: Annotated[Share, "lower limit"]
    ci_high: Annotated[Share, "upper limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyThreshold:
    """A threshold of entropy for wrong answers, fitted on half of the documents."""

    supported: Annotated[bool, "error on the other half below .5, and below that of length alone"]
    value: Annotated[Share | None, "entropy that flags an answer"]
    side: Annotated[Literal["above", "below"] | None, "side of it that is flagged"]
    n_fit: Annotated[Count, "examples of the half that it is fitted on"]
    n_test: Annotated[Count, "examples of the other half"]
    error: Annotated[BalancedError | None, "of the threshold, on the other half"]
    length_error: Annotated[BalancedError | None, "of a length fitted likewise, on the other half"]
    gain: Annotated[Relative | None, "error of length less that of entropy"]
    gain_ci_low: Annotated[Relative | None, "lower limit of the gain"]
    gain_ci_high: Annotated[Relative | None, "upper limit of the gain"]
    refused_because: Annotated[str | None, "why there is no threshold, a clause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyChange:
    """Length at which entropy departs from its smooth trend with length."""

    location_tokens: Annotated[Tokens, "first length after the change"]
    ci_low: Annotated[Tokens, "lower limit of the location"]
    ci_high: Annotated[Tokens, "upper limit of the location"]
    p_value: Annotated[Probability, "of no change anywhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeFailure:
    """Where the score drops and entropy changes alike, at lengths beyond those of the training."""

    prompt_tokens: Annotated[Tokens, "midpoint of the drop, in the model's prompt tokens"]
    share: Annotated[Spread, "of the window"]
    ci_low: Annotated[Spread, "lower limit of the share"]
    ci_high: Annotated[Spread, "upper limit of the share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionResult:
    """Attention of the last prompt token over length, and what it foretells."""

    n: Annotated[Count, "examples with an answer and attention"]
    n_all: Annotated[Count, "examples with an answer"]
    layers: Annotated[Count, "layers of the model that attend"]
    heads: Annotated[Count, "most heads of a layer"]
    trained_tokens: Annotated[Tokens | None, "length that the weights were trained to"]
    longest_prompt: Annotated[Tokens, "in the model's own tokens"]
    bins: Annotated[Sequence[AttentionBin], "by length bin"]
    wrong_answers: Annotated[Sequence[WrongAnswers], "one for each predictor"]
    threshold: Annotated[EntropyThreshold | None, "null: no degraded region was found"]
    change: Annotated[EntropyChange | None, "null: none was found"]
    rope: Annotated[RopeFailure | None, "null: not supported"]
    says: Annotated[Sequence[str], "sentences, but for that on RoPE"]
    layers_without: Annotated[Count, "layers of the model without attention weights"] = 0
