"""The caps in ``cliffs.json`` next to the certified one, and what more data would buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from contextcliff_dagster.contracts.results.fields import Count, Dollars, Relative, Share, Tokens


@dataclass(frozen=True, slots=True)
class CapAtTolerance:
    """The cap that the same data give at another tolerance."""

    tolerance: Annotated[Share, "of the baseline"]
    safe_cap_tokens: Annotated[Tokens | None, "certified cap"]


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
    expected_cap_now: Annotated[Tokens | None, "median cap of data sets like this one"]
    expected_cap_tokens: Annotated[Tokens | None, "median cap with the examples added"]


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

    n_needed: Annotated[Count | None, "examples per bin to certify the longest length, 80% power"]
    n_for_a_cap: Annotated[Count | None, "the same for any cap at all, where there is none"] = None
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
class JointCap:
    """The cap that both scores and times respect."""

    tokens: Annotated[Tokens | None, "cap"]
    limited_by: Annotated[Literal["accuracy", "latency"], "which is the smaller"]
