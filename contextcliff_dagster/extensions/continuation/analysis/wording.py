"""Sentences that state the findings over context sizes."""

from __future__ import annotations

from collections.abc import Sequence

from contextcliff_dagster.extensions.continuation.results import (
    ArmDifference,
    ArmResult,
    ArmVerdict,
    ContinuationVerdict,
    Endpoint,
    EndpointName,
    NoiseFloor,
)
from contextcliff_dagster.reporting.wording import difference, percent, score, tokens, two_digits

NAMES: dict[EndpointName, str] = {"score": "score", "intact": "share without collapse"}


def verdict_reason(
    verdict: ContinuationVerdict, score_: Endpoint, intact: Endpoint, margin: float, alpha: float
) -> str:
    """State the verdict on one arm, other than ``insufficient_data`` (see `arm`), in a sentence."""
    reach = f"from {measured_span(score_, ' tokens of context')}"
    if verdict in ("collapse", "decline"):
        endpoint = intact if verdict == "collapse" else score_
        what = "The model collapses" if verdict == "collapse" else "The prose declines"
        sentence = f"{what} as the context grows: {_strongest(endpoint, alpha)}."
        if verdict == "collapse" and declines(score_, alpha):
            sentence += f" The score declines as well: {_strongest(score_, alpha)}."
        return sentence
    if verdict == "no_decline":
        return (
            f"No decline {reach}: a loss "
            f"of more than {margin:g} is ruled out at every size (limits: "
            f"score {difference(score_.excluded)}, share without collapse "
            f"{difference(intact.excluded)})."
        )
    return (
        f"Undecided {reach}: no decline shows, "
        f"but one of more than {margin:g} is not ruled out (limits: "
        f"score {difference(score_.excluded, 'none')}, "
        f"share without collapse {difference(intact.excluded, 'none')})."
    )


def measured_span(endpoint: Endpoint, unit: str = "") -> str:
    """Return the sizes with outcomes, and those without: ``2,048 to 8,192 (not measured: 16,384)``.

    ``unit`` follows the sizes with outcomes.
    """
    known, unknown = (
        [tokens(row.context_tokens) for row in endpoint.sizes if (row.mean is None) is missing]
        for missing in (False, True)
    )
    reach = f"{known[0]} to {known[-1]}{unit}" if known else "no size"
    if len(known) == 1:
        reach = f"{known[0]}{unit} only"
    return f"{reach} (not measured: {', '.join(unknown)})" if unknown else reach


def declines(endpoint: Endpoint, alpha: float) -> bool:
    """Return whether the decline at any size, or the trend, is significant after Holm."""
    trend = endpoint.trend
    return first_significant(endpoint, alpha) is not None or (
        trend is not None and trend.p_holm is not None and trend.p_holm <= alpha
    )


def first_significant(endpoint: Endpoint, alpha: float) -> int | None:
    """Return the smallest size (tokens) whose decline is significant, or None."""
    for row in endpoint.sizes:
        if row.decline and row.decline.p_holm is not None and row.decline.p_holm <= alpha:
            return row.context_tokens
    return None


def _strongest(endpoint: Endpoint, alpha: float) -> str:
    tested = [
        (item.decline.p_holm, item.context_tokens, item.decline)
        for item in endpoint.sizes
        if item.decline is not None and item.decline.p_holm is not None
    ]
    name = NAMES[endpoint.name]
    significant = [row for row in tested if row[0] <= alpha]
    if significant:
        _, size, decline = max(significant, key=lambda row: (row[2].decline or 0.0, row[1]))
        base = next(row.context_tokens for row in endpoint.sizes if row.mean is not None)
        low, high = (score(end) for end in (decline.ci_low, decline.ci_high))
        return (
            f"the {name} at {tokens(size)} tokens is {score(decline.decline)} [{low}, {high}] "
            f"lower than at {tokens(base)}"
        )
    slope = endpoint.trend.slope if endpoint.trend else None
    return (
        f"the {name} changes by {difference(slope)} with each doubling, although no single "
        "size shows it"
    )


def location_sentence(endpoint: Endpoint) -> str | None:
    """Return where the loss lies as a sentence, or None if it is not located."""
    place = endpoint.location
    if place is None:
        return None
    at = "" if place.tokens is None else f"at about {tokens(two_digits(place.tokens))} tokens "
    return (
        f"Half of the loss in the {NAMES[endpoint.name]} occurs {at}"
        f"[{tokens(place.low_tokens)} to {tokens(place.high_tokens)}]."
    )


def plan_sentence(arm: ArmResult, margin: float) -> str | None:
    """Return a sentence on the passages needed to detect a decline of the margin with power .8."""
    for row in arm.plan:
        usual = arm.components is not None and row.rounds == max(round(arm.components.rounds), 1)
        if row.decline == margin and row.power == 0.8 and usual:
            if row.n_passages is None:
                return None
            return (
                f"Showing a decline of {margin:g} at one size with power 0.8 takes "
                f"{row.n_passages:,} passages of {row.rounds} rounds; there are {arm.n_passages:,}."
            )
    return None


def human_sentence(human: NoiseFloor, arm: ArmResult) -> str | None:
    """Return a sentence that compares the model's score at the smallest size with human scores."""
    first = next((row for row in arm.score.sizes if row.mean is not None), None)
    if first is None or first.mean is None:
        return None
    floor = f"{score(human.floor_low)} to {score(human.floor_high)}"
    where = "within" if human.floor_low <= first.mean <= human.floor_high else "outside"
    return (
        f"At {tokens(first.context_tokens)} tokens the model scores {score(first.mean)}, {where} "
        f"what as many human passages average ({floor})."
    )


def arm_sentence(
    verdict: ArmVerdict, names: tuple[str, str], rows: Sequence[ArmDifference], margin: float
) -> str:
    """Return the verdict on two arms as a sentence."""
    arm, reference = names
    parts = [
        f"{NAMES[row.endpoint]} {difference(row.difference)} "
        f"[{difference(row.ci_low)}, {difference(row.ci_high)}]"
        for row in rows
        if not row.extra_decline and row.difference is not None
    ]
    evidence = f" ({'; '.join(parts)}, means over sizes)" if parts else ""
    if verdict == "alike":
        return f"{arm} and {reference} score alike within {margin:g} at every size{evidence}."
    if verdict in ("better", "worse"):
        return f"{arm} does {verdict} than {reference}{evidence}."
    if verdict == "mixed":
        return f"{arm} does better than {reference} in one respect and worse in another{evidence}."
    return (
        f"Undecided between {arm} and {reference}: neither a difference nor equality within "
        f"{margin:g} is shown{evidence}."
    )


def floor_sentence(base: float, margin: float) -> str:
    """Return a sentence saying why a low score at the smallest size allows no conclusion."""
    return (
        f"The score at the smallest size is {score(base)}: too low for a decline of {margin:g} "
        "to show, so its absence means nothing."
    )


def unscored_sentence(size: int, share: float, margin: float) -> str:
    """Return a sentence saying why a decline is possible if generations have no score."""
    return (
        f"{percent(share)} of the generations at {tokens(size)} tokens have no score because "
        "they were cut off before they were long enough to compare; their loss is unknown, so a "
        f"decline of more than {margin:g} is not ruled out."
    )
