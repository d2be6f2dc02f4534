"""The caps in ``cliffs.json`` next to the certified one, and what more data would buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from contextcliff_dagster.contracts.results.fields import (
    Count,
    Delay,
    Dollars,
    Milliseconds,
    Probability,
    Relative,
    Share,
    Tokens,
)


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
