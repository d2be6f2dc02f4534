"""What the analysis of context sizes says, in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.continuation.results import EndpointName
from contextcliff_dagster.reporting.wording import (
    difference,
    percent,
    score,
    tokens,
    two_digits,
)

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.results import (
        ArmDifference,
        ArmResult,
        ArmVerdict,
        ContinuationVerdict,
        Decline,
        Endpoint,
        NoiseFloor,
    )

NAMES: dict[EndpointName, str] = {"score": "score", "intact": "share without collapse"}


def verdict_reason(
    verdict: ContinuationVerdict, score_: Endpoint, intact: Endpoint, margin: float, alpha: float
) -> str:
    """The verdict on one arm as a sentence; ``insufficient_data`` has reasons of its own."""
    first, last = span(score_)
    if verdict in ("collapse", "decline"):
        shown = intact if verdict == "collapse" else score_
        what = "The model collapses" if verdict == "collapse" else "The prose declines"
        sentence = f"{what} as the context grows: {_strongest(shown, alpha)}."
        if verdict == "collapse" and declines(score_, alpha):
            sentence += f" The score declines as well: {_strongest(score_, alpha)}."
        return sentence
    if verdict == "no_decline":
        return (
            f"No decline from {tokens(first)} to {tokens(last)} tokens of context: one of more "
            f"than {margin:g} is excluded at every size (the limits are "
            f"{difference(score_.excluded)} of the score, {difference(intact.excluded)} of the "
            "share without collapse)."
        )
    return (
        f"Undecided from {tokens(first)} to {tokens(last)} tokens of context: no decline is shown, "
        f"and one of more than {margin:g} is not excluded (the limits are "
        f"{difference(score_.excluded, 'none')} of the score, "
        f"{difference(intact.excluded, 'none')} of the share without collapse)."
    )


def span(endpoint: Endpoint) -> tuple[int | None, int | None]:
    """Smallest and largest size with outcomes."""
    sizes = [one.context_tokens for one in endpoint.sizes if one.mean is not None]
    return (sizes[0], sizes[-1]) if sizes else (None, None)


def declines(endpoint: Endpoint, alpha: float) -> bool:
    """Whether a size or the trend is significant after Holm."""
    trend = endpoint.trend
    return first_significant(endpoint, alpha) is not None or (
        trend is not None and trend.p_holm is not None and trend.p_holm <= alpha
    )


def first_significant(endpoint: Endpoint, alpha: float) -> int | None:
    """The smallest size whose decline is significant, tokens."""
    for one in endpoint.sizes:
        if one.decline and one.decline.p_holm is not None and one.decline.p_holm <= alpha:
            return one.context_tokens
    return None


def _strongest(endpoint: Endpoint, alpha: float) -> str:
    tested = [
        (one.decline.p_holm, one.context_tokens, one.decline)
        for one in endpoint.sizes
        if one.decline is not None and one.decline.p_holm is not None
    ]
    name = NAMES[endpoint.name]
    shown = [row for row in tested if row[0] <= alpha]
    if shown:
        _, size, decline = max(shown, key=lambda row: (row[2].decline or 0.0, row[1]))
        base = span(endpoint)[0]
        return (
            f"the {name} at {tokens(size)} tokens is {_less(decline)} below that at {tokens(base)}"
        )
    slope = endpoint.trend.slope if endpoint.trend else None
    return (
        f"the {name} changes by {difference(slope)} with each doubling, though no single size "
        "shows it"
    )


def _less(decline: Decline) -> str:
    low, high = (score(end) for end in (decline.ci_low, decline.ci_high))
    return f"{score(decline.decline)} [{low}, {high}]"


def location_sentence(endpoint: Endpoint) -> str | None:
    """Where the loss lies; None where none is placed."""
    found = endpoint.location
    if found is None:
        return None
    at = "" if found.tokens is None else f"at about {tokens(two_digits(found.tokens))} tokens "
    return (
        f"Half of the loss of the {NAMES[endpoint.name]} has happened {at}"
        f"[{tokens(found.low_tokens)} to {tokens(found.high_tokens)}]."
    )


def plan_sentence(arm: ArmResult, margin: float) -> str | None:
    """Passages that would show a decline of the margin with power .8 at the study's rounds."""
    for row in arm.plan:
        same = arm.components is not None and row.rounds == max(round(arm.components.rounds), 1)
        if row.decline == margin and row.power == 0.8 and same:
            if row.n_passages is None:
                return None
            return (
                f"To show a decline of {margin:g} at one size with power 0.8, {row.n_passages:,} "
                f"passages of {row.rounds} rounds are needed; this study has {arm.n_passages:,}."
            )
    return None


def human_sentence(human: NoiseFloor, arm: ArmResult) -> str | None:
    """The model's score at the smallest size next to the authors' own."""
    first = next((one for one in arm.score.sizes if one.mean is not None), None)
    if first is None or first.mean is None:
        return None
    floor = f"{score(human.floor_low)} to {score(human.floor_high)}"
    where = "within" if human.floor_low <= first.mean <= human.floor_high else "outside"
    return (
        f"At {tokens(first.context_tokens)} tokens the model scores {score(first.mean)}, {where} "
        f"what as many human passages score on average ({floor})."
    )


def arm_sentence(
    verdict: ArmVerdict, names: tuple[str, str], rows: Sequence[ArmDifference], margin: float
) -> str:
    """What two arms have in common, or not."""
    arm, reference = names
    parts = [
        f"{NAMES[row.endpoint]} {difference(row.difference)} "
        f"[{difference(row.ci_low)}, {difference(row.ci_high)}]"
        for row in rows
        if not row.extra_decline and row.difference is not None
    ]
    by = f" ({'; '.join(parts)}, means over sizes)" if parts else ""
    if verdict == "alike":
        return f"{arm} and {reference} score alike within {margin:g} at every size{by}."
    if verdict in ("better", "worse"):
        return f"{arm} does {verdict} than {reference}{by}."
    if verdict == "mixed":
        return f"{arm} does better than {reference} in one respect and worse in another{by}."
    return (
        f"Undecided between {arm} and {reference}: neither a difference nor its absence within "
        f"{margin:g} is shown{by}."
    )


def floor_sentence(base: float, margin: float) -> str:
    """Why a low score at the smallest size leaves nothing to conclude."""
    return (
        f"The score at the smallest size is {score(base)}: too low to lose a margin of {margin:g} "
        "and keep most of it, so its absence shows nothing."
    )


def unscored_sentence(size: int, share: float, margin: float) -> str:
    """Why generations without a score leave the absence of a decline open."""
    return (
        f"{percent(share)} of the generations at {tokens(size)} tokens have no score, as they are "
        "cut off before they are long enough to be compared; what they lose is not known, and a "
        f"decline of more than {margin:g} is not excluded."
    )
