"""What is said of times: the user's limit on the first token, and the cap that keeps to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.latency import SHARE, least_documents
from contextcliff_dagster.reporting.wording.number_format import count, level, tokens

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs


def latency_limit_sentence(cliffs: Cliffs) -> str | None:
    """Up to which length the first token keeps to the user's limit; ``None`` where none is set."""
    if (limit := cliffs.latency_limit) is None:
        return None
    ms, documents = limit.ttft_ms_p95, limit.n_documents
    within = f"within {ms:g} ms" if ms < 1_000 else f"within {ms / 1_000:g} s"
    if documents < (least := least_documents(cliffs.confidence)):
        return (
            f"First token {within}: not known from {count(documents, 'document')} with a time; "
            f"{level(SHARE)} of the calls at {level(cliffs.confidence)} confidence need {least}."
        )
    reach = f"First token {within} up to {tokens(limit.tokens)} tokens"
    if limit.tokens is None:
        reach = f"At no measured length is the first token known to come {within}"
    elif limit.tokens == limit.longest_tokens:
        reach = f"First token {within} over the whole range, to {tokens(limit.tokens)} tokens"
    by = limit.passed_by_tokens
    passed = "" if by is None else f" The limit is exceeded from {tokens(by)} tokens on."
    sure = f"{level(SHARE)} of the calls, {level(cliffs.confidence)} confidence"
    return f"{reach} ({sure}, n = {count(documents, 'document')}).{passed}"


def joint_cap_sentence(cliffs: Cliffs) -> str | None:
    """The cap that scores and times respect, and which binds; None where no time was tested."""
    joint = cliffs.joint_cap
    if joint is None:
        return None
    if joint.tokens is None:
        none = "score" if joint.limited_by == "accuracy" else "limit on the time to first token"
        return f"Joint cap of score and latency: none, because the {none} supports none."
    expected = "keeps to its limit" if cliffs.latency_limit else "is never 25% and 50 ms too high"
    limit = {
        "accuracy": f"the score: up to there, time to first token {expected}.",
        "latency": "latency: beyond that, time to first token is higher than expected.",
        "latency_limit": "latency: beyond that, time to first token may exceed its limit.",
    }[joint.limited_by]
    return f"Joint cap of score and latency: {tokens(joint.tokens)} tokens, limited by {limit}"
