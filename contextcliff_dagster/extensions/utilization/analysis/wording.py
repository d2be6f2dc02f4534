"""Plain sentences for a comparison of formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts.values import Verdict
from contextcliff_dagster.extensions.utilization.rendering.sentences import Format
from contextcliff_dagster.reporting.wording import difference, level, listed, score, two_digits

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.results import (
        AxisProfile,
        Divergence,
        FormatVerdict,
        ScopeComparison,
    )

_NAMES: Mapping[Format, str] = {
    "jsonl": "JSON lines",
    "prose": "prose",
    "csv": "CSV",
    "markdown": "Markdown tables",
}


def format_name(name: Format) -> str:
    """Return the name of a format in sentences."""
    return _NAMES[name]


def capitalised(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def divergence_sentence(
    found: Divergence, a: Format, b: Format, margin: float, largest: int | None, *, last: bool
) -> str:
    """Return a sentence on where two formats diverge.

    ``largest``: tokens of the largest scale with answers as both, ``last``: it is the study's.
    """
    names = f"{capitalised(format_name(a))} and {format_name(b)}"
    if largest is None:
        return f"{names} have no scale in common."
    phrase = f"differ by more than {margin:g}"
    if found.better is None:
        sentence = f"{names} are not shown to {phrase} up to {largest:,} tokens of "
        sentence += f"JSON lines, the largest scale{'' if last else ' compared'}"
        if found.low_tokens is not None:
            where = f"not before {found.low_tokens:,}"
            sentence += (
                f"; if they do, it is {'beyond that' if found.low_tokens == largest else where}"
            )
        return sentence + "."
    place = _place(found)
    verb = phrase if place.startswith("already") else f"begin to {phrase}"
    return f"{names} {verb} {place}: {format_name(found.better)} ahead."


def parting_clause(found: Divergence, margin: float) -> str | None:
    """Return a clause on where two formats diverge, to append to their caps; None if not shown."""
    if found.better is None:
        return None
    ahead = f"{format_name(found.better)} ahead"
    return f"they part by more than {margin:g} {_place(found)}, {ahead}"


def _place(found: Divergence) -> str:
    if found.status == "at_smallest":
        return f"already at the smallest scale, {found.shown_at_tokens:,} tokens of JSON lines"
    low = "before the smallest scale" if found.low_tokens is None else f"{found.low_tokens:,}"
    high = "beyond the largest scale" if found.high_tokens is None else f"{found.high_tokens:,}"
    at = f"by {found.shown_at_tokens:,}"
    if found.tokens is not None:
        at = f"at about {two_digits(found.tokens):,}"
    return f"{at} tokens of JSON lines [{low} to {high}]"


def verdict_sentence(
    verdict: FormatVerdict,
    better: Format | None,
    pooled: ScopeComparison,
    benchmarks: Sequence[ScopeComparison],
    formats: tuple[Format, Format],
    margin: float,
) -> str:
    """Return the verdict on two formats as a sentence."""
    a, b = (format_name(name) for name in formats)
    test = pooled.overall
    if test.difference is None or test.ci_low is None or test.ci_high is None:
        return f"Undecided: no question has an answer as {a} and as {b}."
    span = f"[{difference(test.ci_low)}, {difference(test.ci_high)}]"
    average = f"{a} minus {b}: {difference(test.difference)} on average {span}"
    if verdict == "floor":
        return floor_sentence(pooled, formats)
    if verdict == "no_difference":
        lacking = [scale.scale for scale in pooled.scales if not scale.test.n]
        where = f"every scale compared (not {' or '.join(lacking)})" if lacking else "every scale"
        return (
            f"No difference: as {a} and as {b} the model scores alike within {margin:g} at "
            f"{where} ({average})."
        )
    if verdict == "task_dependent":
        ways = [
            f"in {scope.benchmark} it scores higher as "
            + format_name(formats[0] if way > 0 else formats[1])
            for scope in benchmarks
            if (way := shown_direction(scope)) in (-1, 1)
        ]
        return f"It depends on the benchmark: {listed(ways)} ({average})."
    if better is not None:
        ahead, behind = (a, b) if better == formats[0] else (b, a)
        scales = [s.scale for s in pooled.scales if beyond_zero(s.test.band_low, s.test.band_high)]
        at = f"shown at {listed(scales)}" if scales else "shown over all scales together"
        if 1 < len(scales) == len(pooled.scales):
            at = "shown at every scale"
        return f"As {ahead} the model scores higher than as {behind}, {at} ({average})."
    if shown_direction(pooled) == 2:
        return (
            f"Undecided: the model scores higher as {a} at some scales and as {b} at others "
            f"({average})."
        )
    return (
        f"Undecided: neither a difference between {a} and {b} nor its absence within "
        f"{margin:g} is shown ({average})."
    )


def comparison_sentences(
    verdict: FormatVerdict,
    better: Format | None,
    pooled: ScopeComparison,
    benchmarks: Sequence[ScopeComparison],
    formats: tuple[Format, Format],
    margin: float,
) -> list[str]:
    """Return the verdict and the divergence, by benchmark if the verdict depends on it."""
    sentence = verdict_sentence(verdict, better, pooled, benchmarks, formats, margin)
    if verdict in ("floor", "no_difference"):
        return [sentence]
    if verdict != "task_dependent":
        return [sentence, pooled.divergence.sentence]
    shown = [scope for scope in benchmarks if scope.divergence.better is not None]
    return [sentence, *(f"In {scope.benchmark}, {scope.divergence.sentence}" for scope in shown)]


def floor_sentence(scope: ScopeComparison, formats: tuple[Format, Format]) -> str:
    """Return a sentence on two formats in which almost no answer is right."""
    test = scope.overall
    means = zip(formats, (test.mean_a, test.mean_b), strict=True)
    scores = listed([f"{score(mean)} as {format_name(name)}" for name, mean in means])
    return (
        f"At the floor: the mean score is {scores}. With almost no right answers, "
        "neither a difference between formats nor its absence can be shown."
    )


def beyond_zero(low: float | None, high: float | None) -> int:
    """Return 1 if an interval lies above 0, -1 if below, else 0."""
    if low is not None and low > 0.0:
        return 1
    return -1 if high is not None and high < 0.0 else 0


def shown_direction(scope: ScopeComparison) -> int:
    """Return which format the band favours: 1 the first, -1 the second, 2 both, 0 neither."""
    tests = [scope.overall, *(row.test for row in scope.scales)]
    ways = {beyond_zero(test.band_low, test.band_high) for test in tests}
    return 2 if {1, -1} <= ways else sum(ways)


def cap_sentence(
    caps: Sequence[tuple[Format, AxisProfile | None, bool]],
    tolerance: float,
    confidence: float,
    parting: str | None = None,
) -> str:
    """Return a sentence on each format's cap, shortest first, on missing caps, and on where the
    first two formats diverge (`parting_clause`).

    ``caps``: each format, its profile over tokens, and whether it is at the floor.
    """
    certified = [(p.cap, name, p.longest) for name, p, _ in caps if p and p.cap is not None]
    certified.sort(key=lambda one: one[0])
    whole = len(certified) > 1 and all(cap == longest for cap, _, longest in certified)
    spans = []
    for place, (cap, name, longest) in enumerate(certified):
        of_short = "of its score on short documents " if place == 0 else ""
        keeps = f" the model keeps at least {level(1.0 - tolerance)} {of_short}up to"
        span = f"as {format_name(name)}{keeps if place == 0 else ' up to'} {cap:,} tokens"
        spans.append(span + (", the longest measured" if cap == longest and not whole else ""))
    sentences = []
    if certified:
        joint = "; " if any("longest" in span for span in spans[:-1]) else ", "
        words = joint.join(spans) + (", the longest measured of each" if whole else "")
        sentences.append(f"{capitalised(words)} ({level(confidence)} confidence)")
    for why, names in _without_cap(caps, tolerance).items():
        sentences.append(why.format(" or ".join(f"as {format_name(name)}" for name in names)))
    if parting and certified and len(sentences) == 1:
        sentences[0] += f"; {parting}"
    elif parting:
        sentences.append(capitalised(parting))
    return ". ".join(sentences) + "."


def _without_cap(
    caps: Sequence[tuple[Format, AxisProfile | None, bool]], tolerance: float
) -> dict[str, list[Format]]:
    """Return the formats without a cap by reason; a reason is a sentence with a placeholder."""
    reasons: dict[str, list[Format]] = {}
    for name, profile, floor in caps:
        if profile is None:
            why = "The model gave no answer {}"
        elif profile.cap is not None:
            continue
        elif floor:
            why = "The model answers almost nothing right {}, so there is no score to lose"
        elif profile.verdict == Verdict.INSUFFICIENT_DATA:
            why = "Too few documents to say how far the model keeps its score {} (add seeds)"
        else:
            why = f"No length {{}} is known to be safe from a loss of {level(tolerance)}"
        reasons.setdefault(why, []).append(name)
    return reasons
