"""What a compressed KV cache costs and saves: a part of ``comparison.json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from contextcliff_dagster.contracts.results.fields import (
    Count,
    Probability,
    Relative,
    Score,
    Share,
    Tokens,
    Unit,
)

Quantity = Literal["kv_bytes", "kv_prefill_ms", "kv_press_ms", "kv_question_ms", "kv_decode_ms"]
Measure = Annotated[float, Unit("bytes or ms", 0)]

UNPRESSED = "unpressed"
"""Policy of a model whose engine presses nothing."""


class KvPolicy(NamedTuple):
    """How a model's KV cache is kept. ``base``: the model; ``budget``: the share that is kept."""

    base: str
    policy: str
    budget: float = 1.0

    @property
    def keeps_all(self) -> bool:
        """Whether it is no policy but what others are compared with."""
        return self.policy in ("none", UNPRESSED)

    @property
    def label(self) -> str:
        """``snapkv at 20%``; without a budget the policy alone."""
        return self.policy if self.budget == 1 else f"{self.policy} at {100 * self.budget:g}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualWindow:
    """Neighbouring documents, and whether the drop in their mean score is below the margin."""

    from_tokens: Annotated[Tokens, "shortest document"]
    to_tokens: Annotated[Tokens, "longest document"]
    n_documents: Annotated[Count, "documents that both answered"]
    drop: Annotated[Relative, "mean score of A minus that of B, over documents"]
    p_value: Annotated[Probability, "of a drop of the margin or more"]
    equal: Annotated[
        bool,
        "A scores more than the margin, and a drop of it is excluded, up to here",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualScore:
    """Up to which length B is shown to score like A."""

    margin: Annotated[Share, "a mean drop below it counts as equal, in units of the score"]
    confidence: Annotated[Share, "of all windows together, one-sided"]
    tokens: Annotated[Tokens | None, "longest document of the last equal window; null: none is"]
    windows: Annotated[Sequence[EqualWindow], "in order of length"]


@dataclass(frozen=True, slots=True)
class KvCap:
    """B against A's baseline, from the documents that both answered; null lengths: not within the
    measured ones."""

    tokens: Annotated[
        Tokens | None, "B's safe cap against A's baseline, never beyond its own; null: none"
    ]
    baseline: Annotated[Score, "mean score of A's shortest documents"]
    lost_tokens: Annotated[Tokens | None, "length at which B has lost the tolerance of it"]
    lost_low: Annotated[Tokens | None, "lower limit of that length"]
    lost_high: Annotated[Tokens | None, "upper limit of that length"]


@dataclass(frozen=True, slots=True)
class Median:
    """Median of one value a document; the limits are order statistics, null for few documents."""

    n: Annotated[Count, "documents"]
    median: Annotated[Measure, "median"]
    ci_low: Annotated[Measure | None, "lower limit of the median"]
    ci_high: Annotated[Measure | None, "upper limit of the median"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCost:
    """One quantity of both sides in one length bin; null where a side did not measure it."""

    quantity: Annotated[
        Quantity,
        "memory of the kept entries; time to read the document, to choose entries, to read "
        "the question up to the first token of the answer, for each further one",
    ]
    bin: Annotated[str, "length bin"]
    edge_low: Annotated[Tokens, "first length of the bin"]
    edge_high: Annotated[Tokens, "first length after the bin; the last bin is closed"]
    a: Annotated[Median | None, "of A"]
    b: Annotated[Median | None, "of B"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvComparison:
    """What a KV policy saves, and up to which length the score shows no price of it."""

    base: Annotated[str, "the model whose cache is kept so"]
    policy: Annotated[str, "policy of B"]
    budget: Annotated[Share, "share of the document's entries that B keeps"]
    policy_a: Annotated[str, "policy of A"]
    budget_a: Annotated[Share, "share that A keeps"]
    saved_share: Annotated[
        Relative | None, "median over documents of 1 - bytes of B / bytes of A, up to the length"
    ]
    equal: Annotated[EqualScore, "up to which length the score is equal"]
    costs: Annotated[Sequence[KvCost], "memory and times over length"]
    sentence: Annotated[str, "the statement on memory and score"]
    cap: Annotated[KvCap | None, "against A's baseline; absent in older files"] = None
