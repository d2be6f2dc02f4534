"""The cap that both scores and times respect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.latency.bin_latency import KINDS
from contextcliff_dagster.analysis.latency.slowdown import find_slowdown
from contextcliff_dagster.contracts.results.caps import (
    JointCap,
    LatencyLimit,
    Slowdown,
    SlowdownByKind,
    SlowdownTest,
)

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.latency.bin_latency import Canary
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints

ERROR_SHARE = 0.5
"""Share of the error rate at which times are tested: a slowdown of a half is found at far less
(``benchmarks/latency_caps.py``), so the other half would buy nothing but false caps."""
WORTH_A_WARNING, WORTH_MS = 0.25, 50.0
"""A delay that a user notices: at least this share, and as much time."""
KNOWN_WITHIN = 4.0
"""Factor of length within which a slowdown's place must be known to limit a cap."""


def slowdowns_of(
    sample: Sample, canaries: Mapping[str, Canary], settings: AnalysisSettings
) -> SlowdownByKind:
    """The test per kind of time, over the calls that its law rests on; ``None``: not testable."""
    calls = sample.calls
    lengths = calls["length_tokens"].to_numpy(np.float64)
    documents = sample.document_of_calls()
    tests: dict[str, SlowdownTest | None] = {}
    for kind, canary in canaries.items():
        usable = np.isfinite(canary.excess)
        tests[kind] = find_slowdown(
            *by_document(
                lengths[usable],
                calls[f"{kind}_ms"].to_numpy(np.float64)[usable],
                documents[usable],
            ),
            alpha=ERROR_SHARE * (1.0 - settings.confidence),
            permutations=settings.permutations,
            seed=settings.seed,
        )
    return SlowdownByKind(**tests)


def by_document(lengths: Floats, ms: Floats, document: Ints) -> tuple[Floats, Floats]:
    """Length and geometric mean time of each document: calls on one document are late together.

    ``document``: a number for each, the same for all calls on it (N).
    """
    _, first, unit = np.unique(document, return_index=True, return_inverse=True)
    mean = np.bincount(unit, weights=np.log(ms)) / np.maximum(np.bincount(unit), 1)
    return lengths[first], np.exp(mean)


def slowdown_sentences(tests: SlowdownByKind) -> list[str]:
    """A sentence per kind of time that has a slowdown."""
    sentences = []
    for kind, words in KINDS.items():
        test = getattr(tests, kind)
        if test is None or (slow := noticed(test)) is None:
            continue
        sentences.append(
            f"Beyond {slow.last_normal_tokens:,} tokens [{slow.earliest_tokens:,}, "
            f"{slow.latest_tokens:,}] {words} is higher than any law a + b L + c L^2 of the length "
            f"L predicts: {slow.excess_ms:+,.0f} ms, {slow.excess:+.0%} [{slow.excess_low:+.0%}, "
            f"{slow.excess_high:+.0%}], "
            f"n = {slow.calls} documents, p = {test.p_value:.3f}."
        )
    return sentences


def noticed(test: SlowdownTest) -> Slowdown | None:
    """The slowdown, if it is one that a user notices at a length that is known.

    At least 25% and 50 ms, its place within a factor of 4; else it is a row in a table.
    """
    slow = test.slowdown
    if slow is None or slow.excess < WORTH_A_WARNING or (slow.excess_ms or 0.0) < WORTH_MS:
        return None
    return slow if slow.latest_tokens <= KNOWN_WITHIN * slow.earliest_tokens else None


def joint_cap(
    accuracy_cap: int | None, test: SlowdownTest | None, limit: LatencyLimit | None = None
) -> JointCap | None:
    """The ``joint_cap`` of ``cliffs.json``; ``None`` without a limit where no time can be tested.

    The smaller of the certified cap of the scores and, with the user's ``limit``, the length up to
    which it is kept; without one, the longest length before the first likely place of a slowdown
    that is `noticed`. Without a cap of the scores there is none: speed makes no length safe.
    """
    if limit is None and test is None:
        return None
    if accuracy_cap is None:
        return JointCap(None, "accuracy")
    if limit is not None:
        if limit.tokens is None or limit.tokens < accuracy_cap:
            return JointCap(limit.tokens, "latency_limit")
    elif test is not None and (slow := noticed(test)) and slow.earliest_tokens < accuracy_cap:
        return JointCap(slow.earliest_tokens, "latency")
    return JointCap(accuracy_cap, "accuracy")
