"""``cliffs.json``, one file per model: verdict, caps and the evidence for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from contextcliff_dagster.contracts.results.attention import AttentionResult
from contextcliff_dagster.contracts.results.json_form import (
    BinResult,
    Count,
    Delay,
    Dollars,
    Milliseconds,
    Probability,
    Ratio,
    Relative,
    ResultHead,
    Score,
    Share,
    Spread,
    Tokens,
)
from contextcliff_dagster.contracts.results.questions import (
    Confounds,
    ControlResult,
    EvidenceCurve,
    LevelResult,
    OptionalMix,
)
from contextcliff_dagster.contracts.values import Verdict


@dataclass(frozen=True, slots=True)
class CapAtTolerance:
    """The cap that the same data give at another tolerance."""

    tolerance: Annotated[Share, "of the baseline"]
    safe_cap_tokens: Annotated[Tokens | None, "certified cap"]


@dataclass(frozen=True, slots=True)
class LastOctave:
    """Lengths from half of the cap up to it."""

    answers: Annotated[Count, "examples with an answer"]
    documents: Annotated[Count | None, "documents of these examples; null: unknown"]


@dataclass(frozen=True, slots=True)
class Look:
    """A cap that was read of the campaign, at the examples there were."""

    per_bin: Annotated[Count, "examples asked a bin at most"]
    n: Annotated[Count, "scored examples"]
    safe_cap_tokens: Annotated[Tokens | None, "certified cap"]


@dataclass(frozen=True, slots=True)
class MoreData:
    """What a budget would buy, spread evenly over the lengths."""

    tokens: Annotated[Tokens, "of the budget"]
    usd: Annotated[Dollars | None, "of the budget; null where calls have no price"]
    examples: Annotated[Count, "that the budget buys"]
    per_bin: Annotated[Count, "of these examples"]
    expected_cap_tokens: Annotated[Tokens | None, "median cap with the examples added"]
    expected_cap_now: Annotated[
        Tokens | None, "median cap of data sets like this one; of older files only"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherData:
    """What has to be measured besides, at the lengths and the cost of what was measured."""

    goal: Annotated[Literal["p90_cap", "verdict"], "a cap that reaches goal_tokens; any verdict"]
    goal_tokens: Annotated[Tokens | None, "90th percentile of the examples' lengths"]
    examples: Annotated[Count | None, "further examples; 0: reached; null: no number is known"]
    documents: Annotated[Count | None, "further documents; null where documents are unknown"]
    tokens: Annotated[Tokens | None, "of their prompts; of the documents where not counted"]
    usd: Annotated[Dollars | None, "of their calls; null where calls have no price"]
    reason: Annotated[str | None, "why no number of examples is given"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certify:
    """What would certify more."""

    n_needed: Annotated[
        Count | None, "examples per bin to certify the longest length; of older files only"
    ] = None
    n_for_a_cap: Annotated[Count | None, "examples per bin for any cap, where there is none"] = None
    assumes: Annotated[Literal["flat", "fitted"] | None, "the curve assumed to be true"] = None
    reason: Annotated[str | None, "why no n is given"] = None
    more: Annotated[Sequence[MoreData], "what a budget would buy"] = ()
    further: Annotated[
        FurtherData | None, "for a cap at the 90th percentile, or a verdict; absent in older files"
    ] = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """What the cap assumes of drops that recover at longer lengths, and what holds without."""

    assumption: Annotated[Literal["falling", "any"], "any: the cap holds for them, too"]
    cap_tokens: Annotated[Tokens | None, "the cap that holds for them, too; null: none"]
    share: Annotated[Share, "of the examples that such a drop covers at least"]
    excluded_drop: Annotated[
        Relative | None, "least such drop that is excluded up to the cap; null: none is"
    ]


@dataclass(frozen=True, slots=True)
class MissingByLength:
    """Calls without an answer that become more with length."""

    rises_at_tokens: Annotated[Tokens, "length at which half of the rise has happened"]
    ci_low: Annotated[Tokens, "lower end of its interval"]
    ci_high: Annotated[Tokens, "upper end of its interval"]
    share_short: Annotated[Share, "of the calls on the shortest 15%"]
    share_long: Annotated[Share, "of the calls on the longest 15%"]
    cap_tokens: Annotated[Tokens | None, "the cap if each scores 0; null: none"]


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Calls on documents longer than ``last_normal_tokens`` take longer than the law says."""

    p_value: Annotated[Probability, "of a slowdown as clear anywhere, without any"]
    last_normal_tokens: Annotated[Tokens, "longest scored length before the most likely change"]
    earliest_tokens: Annotated[Tokens, "the same for the first likely change"]
    latest_tokens: Annotated[Tokens, "the same for the last likely change"]
    excess: Annotated[Relative, "share by which calls beyond take longer"]
    excess_low: Annotated[Relative, "lower limit at 95%, at the most likely place"]
    excess_high: Annotated[Relative, "upper limit"]
    calls: Annotated[Count, "usable calls beyond; documents, where several calls share one"]
    excess_ms: Annotated[Delay | None, "at earliest_tokens; null in older files"] = None


@dataclass(frozen=True, slots=True)
class SlowdownTest:
    """The test for a slowdown."""

    p_value: Annotated[Probability, "of the test"]
    slowdown: Annotated[Slowdown | None, "null: none found"]


@dataclass(frozen=True, slots=True)
class SlowdownByKind:
    """The test by kind of time; null: not testable."""

    ttft: Annotated[SlowdownTest | None, "time to the first token"]
    duration: Annotated[SlowdownTest | None, "time to the last token"]


@dataclass(frozen=True, slots=True)
class LatencyLimit:
    """How far the 95th percentile of the time to the first token keeps to the user's limit."""

    ttft_ms_p95: Annotated[Milliseconds, "the limit"]
    tokens: Annotated[Tokens | None, "longest length up to which it is kept; null: none is known"]
    passed_by_tokens: Annotated[
        Tokens | None, "shortest length from which on it is exceeded; null: none is known"
    ]
    longest_tokens: Annotated[Tokens | None, "longest document with a time"]
    n_documents: Annotated[Count, "documents with a time"]


@dataclass(frozen=True, slots=True)
class JointCap:
    """The cap that both scores and times respect."""

    tokens: Annotated[Tokens | None, "cap"]
    limited_by: Annotated[
        Literal["accuracy", "latency", "latency_limit"],
        "which is the smaller: the scores' cap, a slowdown, or the user's limit",
    ]
    prompt_tokens: Annotated[
        Tokens | None, "cap in the model's own prompt tokens; absent in older files"
    ] = None


Factor = Literal[
    "as reported", "tolerance", "baseline", "bins", "score", "tokenizer", "replicates", "missing"
]
ZoneName = Literal["stable", "transition", "degraded", "not_shown"]


@dataclass(frozen=True, slots=True)
class ScoreName:
    """The score that everything is about."""

    name: Annotated[str, "em, f1, contained, or a scorer's own"]
    scale: Annotated[Literal[1], "largest score"]


@dataclass(frozen=True, slots=True)
class CriticalThreshold:
    """The midpoint of the drop, in tokens and in the model's window."""

    tokens: Annotated[Tokens, "midpoint of the drop"]
    share: Annotated[Spread | None, "of window_tokens, in the model's tokens where known"]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The region that everything else is compared with."""

    mean: Annotated[Score | None, "mean score"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]
    n: Annotated[Count, "examples"]
    to_tokens: Annotated[Tokens | None, "longest length of the region"]
    fitted: Annotated[
        Score | None, "its mean by the fitted curve, to which the cap is relative; null: no curve"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """Where and how far the score drops."""

    location_tokens: Annotated[Tokens, "midpoint of the drop"]
    ci_low: Annotated[
        Tokens | None, "lower limit of the location; null: the drop may lie in the baseline region"
    ]
    ci_high: Annotated[Tokens | None, "upper limit of the location; null likewise"]
    drop: Annotated[Relative, "relative to the baseline"]
    drop_ci_low: Annotated[Relative, "lower limit of the drop"]
    drop_ci_high: Annotated[Relative, "upper limit of the drop"]
    p_value: Annotated[Probability, "of no drop anywhere"]


@dataclass(frozen=True, slots=True)
class Zone:
    """A region of the length axis."""

    name: Annotated[ZoneName, "region"]
    from_tokens: Annotated[Tokens, "first length"]
    to_tokens: Annotated[Tokens, "first length after it"]
    mean: Annotated[Score | None, "mean score of its examples"]
    n: Annotated[Count | None, "its examples; null in older files"] = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The fitted curve at one length."""

    tokens: Annotated[Tokens, "length"]
    mean: Annotated[Score, "fitted mean"]
    ci_low: Annotated[Score, "lower end of its interval"]
    ci_high: Annotated[Score, "upper end of its interval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A threshold rule as people write it, shown with the verdict and never as it."""

    name: Annotated[str, "rule"]
    fired: Annotated[bool, "whether it fires"]
    at_bin: Annotated[str | None, "first bin at which it fires"]
    reachable: Annotated[bool, "whether it can fire on these data at all"]
    value: Annotated[Ratio | None, "of the firing bin, else the most extreme"]
    threshold: Annotated[Ratio | None, "that fires the rule"]


@dataclass(frozen=True, slots=True)
class EffectiveLength:
    """The longest length that meets a published definition."""

    tokens: Annotated[Tokens | None, "length; null with < where none meets it"]
    censored: Annotated[Literal["<", ">"] | None, "whether the measured lengths end before it"]
    threshold: Annotated[Ratio | None, "least score that meets it"]


@dataclass(frozen=True, slots=True)
class LongScoreAt:
    """LongScore at one length."""

    tokens: Annotated[Tokens, "length"]
    value: Annotated[Relative, "(score - base) / base"]


@dataclass(frozen=True, slots=True)
class LongScore:
    """LongScore of 100-LongBench."""

    base: Annotated[Score | None, "mean score of the short lengths"]
    base_tokens: Annotated[Sequence[Tokens], "the short lengths"]
    by_length: Annotated[Sequence[LongScoreAt], "the longer ones"]
    mean: Annotated[Relative | None, "over the longer ones"]


@dataclass(frozen=True, slots=True)
class Definitions:
    """Other people's effective lengths, on the same data."""

    ruler_85_6: Annotated[EffectiveLength, "score of at least .856 (RULER)"]
    nolima_0_85: Annotated[EffectiveLength, "score of at least .85 of the base (NoLiMa)"]
    mecw_5pct: Annotated[EffectiveLength, "before the first 5% below the shortest (MECW)"]
    drop_30pct: Annotated[EffectiveLength, "before the first 30% below the baseline"]
    longscore: Annotated[LongScore, "LongScore"]


@dataclass(frozen=True, slots=True)
class Detector:
    """Where another method sees a drop."""

    name: Annotated[str, "method"]
    location_tokens: Annotated[Tokens | None, "null: none"]
    agrees: Annotated[bool | None, "with the verdict; null where there is nothing to agree with"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityRow:
    """Cap and verdict with one choice of the analysis made otherwise."""

    factor: Annotated[Factor, "choice"]
    value: Annotated[str, "in words"]
    reported: Annotated[bool, "whether it is the choice of the result"]
    n: Annotated[Count, "examples"]
    verdict: Annotated[Verdict, "what the length axis shows"]
    safe_cap_tokens: Annotated[Tokens | None, "certified cap"]
    location_tokens: Annotated[Tokens | None, "midpoint of the drop"]
    baseline: Annotated[Score | None, "fitted mean of its baseline; of factor score only"] = None
    curve: Annotated[Sequence[CurvePoint], "its fitted curve; of factor score only"] = ()
    caps_by_tolerance: Annotated[
        Sequence[CapAtTolerance], "its caps; of factor score only, empty in older files"
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceSignal:
    """Scatter of scores beyond mean x (1 - mean)."""

    p_value: Annotated[Probability | None, "of no more scatter anywhere; null: not tested"]
    from_tokens: Annotated[Tokens | None, "window that scatters most, half-open"]
    to_tokens: Annotated[Tokens | None, "first length after the window"]
    inside: Annotated[Spread | None, "mean of (score - mean)^2 / (mean (1 - mean)) in the window"]
    outside: Annotated[Spread | None, "the same elsewhere"]
    refused_because: Annotated[str | None, "why there is no test, a clause"]


OptionalVarianceSignal = Annotated[
    VarianceSignal | None, "scatter of scores beyond mean x (1 - mean); absent in older files"
]


@dataclass(frozen=True, slots=True)
class BinRatio:
    """Server's tokens for one of the study's in one bin."""

    bin: Annotated[str, "length bin"]
    n: Annotated[Count, "calls"]
    median: Annotated[Ratio | None, "median of the calls"]
    low: Annotated[Ratio | None, "least of the calls"]
    high: Annotated[Ratio | None, "largest of the calls"]


@dataclass(frozen=True, slots=True)
class TokenRatio:
    """The server's tokens of a document for one of the study's."""

    template_tokens: Annotated[Tokens, "tokens taken for the chat template's own"]
    spread: Annotated[Spread | None, "largest / smallest median - 1, of bins with 3 calls or more"]
    bins: Annotated[Sequence[BinRatio], "in order of length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliffs(ResultHead):
    """Tokens are integers of the document alone unless stated otherwise, times ms, scores, shares
    and tolerances 0..1; null: not measured or not supported."""

    score: Annotated[ScoreName, "the primary score"]
    verdict: Annotated[Verdict, "what the length axis shows"]
    safe_cap_tokens: Annotated[Tokens | None, "certified cap; null where no length is safe"]
    safe_cap_reason: Annotated[str, "what the cap means, or why there is none"]
    verdict_note: Annotated[str | None, "a sentence that qualifies the verdict"] = None
    score_doubt: Annotated[
        str | None, "why the score may judge how a model speaks, or more than one model"
    ] = None
    cap_basis: Annotated[
        Literal["shown", "baseline"] | None,
        "what shows a cap: answers beyond the baseline region, or only those in it; null: neither",
    ] = None
    baseline_cap_tokens: Annotated[
        Tokens | None, "end of the baseline region where nothing longer is shown"
    ] = None
    last_octave: Annotated[
        LastOctave | None, "what lies just below the cap; null: no cap, absent in older files"
    ] = None
    cap_prompt_tokens: Annotated[Tokens | None, "the cap in the model's own prompt tokens"]
    cap_score: Annotated[
        Score | None, "mean score up to the cap; null: no cap, absent in older files"
    ] = None
    lost_at_tokens: Annotated[
        Tokens | None, "where the fitted curve loses the tolerance; null: nowhere, or older files"
    ] = None
    min_score: Annotated[
        Score | None, "least cap_score with which the cap is of use; null: none is set"
    ] = None
    critical_threshold: Annotated[CriticalThreshold | None, "midpoint of the drop"]
    confidence: Annotated[Share, "of the cap and every interval"]
    tolerance: Annotated[Share, "loss of the baseline that still counts as safe"]
    chance: Annotated[
        Share, "mean score of guessing, above which all losses are measured; absent in older files"
    ] = 0.0
    caps_by_tolerance: Annotated[Sequence[CapAtTolerance], "10, 20 and 30%"]
    looks: Annotated[
        Sequence[Look], "caps read of the campaign, this one last; empty: scores of unknown origin"
    ] = ()
    recovery: Annotated[
        Recovery | None, "drops that recover; null: no fit bears a cap, absent in older files"
    ] = None
    missing_by_length: Annotated[
        MissingByLength | None, "null: the missing share does not rise; absent in older files"
    ] = None
    copied_share: Annotated[
        Share | None, "questions whose answer occurs word for word in the document; null: unknown"
    ] = None
    length_time_correlation: Annotated[
        Relative | None, "Spearman's, of the answers' lengths and times; null: times unknown"
    ] = None
    certify: Annotated[Certify, "what would certify more"]
    baseline: Annotated[Baseline, "the shortest examples"]
    cliff: Annotated[Cliff | None, "the drop; null where none was found"]
    zones: Annotated[Sequence[Zone], "half-open, gap-free, from the shortest scored length on"]
    curve: Annotated[Sequence[CurvePoint], "fitted mean with an interval at each length"]
    bins: Annotated[Sequence[BinResult], "by length"]
    rules: Annotated[Sequence[Rule], "threshold rules of practice"]
    definitions: Annotated[Definitions, "published effective lengths"]
    detectors: Annotated[Sequence[Detector], "other methods; of older files only"] = ()
    sensitivity: Annotated[Sequence[SensitivityRow], "one choice changed; first row: the result"]
    variance_signal: OptionalVarianceSignal = None
    token_ratio: Annotated[
        TokenRatio | None, "server / study tokens by bin; null: unknown, absent in older files"
    ] = None
    slowdown: Annotated[SlowdownByKind | None, "tests for a slowdown; absent in older files"] = None
    latency_limit: Annotated[LatencyLimit | None, "null: none set; absent in older files"] = None
    joint_cap: Annotated[JointCap | None, "null where times cannot be tested"]
    confounds: Annotated[Confounds, "whether it is length at all"]
    mix: OptionalMix = ()
    controls: Annotated[Sequence[ControlResult], "by control; absent in older files"] = ()
    by_position: Annotated[
        EvidenceCurve | None, "score by evidence position; null: unknown, absent in older files"
    ] = None
    by_distance: Annotated[
        EvidenceCurve | None, "score by evidence distance; null: unknown, absent in older files"
    ] = None
    attention: Annotated[
        AttentionResult | None,
        "attention of the last prompt token; null: not measured, absent in older files",
    ] = None
    levels: Annotated[Sequence[LevelResult], "by kind of level; absent in older files"] = ()
    warnings: Annotated[Sequence[str], "sentences"]
