"""Numbers and results in words, spelled the same way in every output.

Tokens, scores, shares and intervals have one spelling each. Every function reads ``None`` (and any
number that is not finite) as "not measured or not supported" and says so instead of printing it.

The terminal, the Markdown page and the picture share these sentences. They claim no more than a
black-box measurement supports: where the score drops, not why.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from contextcliff_dagster.contracts import ASKED_BY, DROPS, Verdict
from contextcliff_dagster.contracts import level as written_level
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.contracts.results.attention import AttentionResult
from contextcliff_dagster.contracts.results.cliffs import FurtherData
from contextcliff_dagster.contracts.results.comparison import LossShift
from contextcliff_dagster.contracts.results.json_form import LengthUnit, Missing
from contextcliff_dagster.contracts.results.questions import CategoryMix, Control

FIRST_STRONG_ISOLATE, POP_ISOLATE = "\u2068", "\u2069"
_WORD = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]+"
_RIGHT_TO_LEFT = re.compile(f"{_WORD}(?: {_WORD})*")


def isolated(text: str) -> str:
    """Return `text` with right-to-left words between Unicode isolates (U+2068, U+2069, UAX #9).

    Without isolates, a number after such a word is displayed in front of it.
    """
    if text.isascii():
        return text
    return _RIGHT_TO_LEFT.sub(f"{FIRST_STRONG_ISOLATE}\\g<0>{POP_ISOLATE}", text)


def isolated_whole(text: str) -> str:
    """Return `text` in one pair of isolates if any word runs right to left; used for code."""
    if text.isascii() or not _RIGHT_TO_LEFT.search(text):
        return text
    return f"{FIRST_STRONG_ISOLATE}{text}{POP_ISOLATE}"


def columns_of(text: str) -> int:
    """Count the terminal columns of ``text``; wide characters take two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def padded(text: str, columns: int) -> str:
    """Return `text`, padded on the right to a width of ``columns``."""
    return text + " " * (columns - columns_of(text))


def _columns(character: str) -> int:
    if character in (FIRST_STRONG_ISOLATE, POP_ISOLATE):
        return 0
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


NOT_MEASURED = "not measured"


def no_times(result: Cliffs) -> str:
    """Return the words for call times that ``result`` does not have."""
    identity = result.provenance.get("identity") or {}
    in_batches = identity.get(f"server_{ASKED_BY}") == "batch"
    return f"{NOT_MEASURED} (batch)" if in_batches else NOT_MEASURED


def number(value: Any) -> float | None:
    """Return ``value`` as a finite float; None for anything else, booleans and text included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def tokens(value: Any, missing: str = NOT_MEASURED) -> str:
    """Return a token count: ``1,234``."""
    finite = number(value)
    return missing if finite is None else f"{round(finite):,}"


def score(value: Any, missing: str = NOT_MEASURED) -> str:
    """Return a score, SD or variance to two decimals: ``0.98``."""
    finite = number(value)
    return missing if finite is None else f"{finite:.2f}"


def difference(value: Any, missing: str = NOT_MEASURED) -> str:
    """Return a score difference with its sign: ``+0.31``, ``-0.05``; zero is ``0.00``."""
    finite = number(value)
    return missing if finite is None else f"{round(finite, 2) + 0.0:+.2f}".replace("+0.00", "0.00")


def limits(low: float | None, high: float | None) -> str:
    """Return the interval of a difference: ``[-0.05, +0.31]``, or ``(no interval)``."""
    if low is None or high is None:
        return "(no interval)"
    return f"[{difference(low)}, {difference(high)}]"


def with_limits(value: float | None, low: float | None, high: float | None) -> str:
    """Return a difference with its interval: ``+0.31 [-0.05, +0.41]``."""
    return NOT_MEASURED if value is None else f"{difference(value)} {limits(low, high)}"


def p_value(value: float | None) -> str | None:
    """Return a p-value to three decimals or as ``< 0.001``; None for a missing value."""
    if value is None:
        return None
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def percent(value: Any, missing: str = NOT_MEASURED) -> str:
    """Return a measured share (0..1) as a percentage: ``43.2%``."""
    finite = number(value)
    return missing if finite is None else f"{100 * finite:.1f}%"


def level(value: Any, missing: str = "unstated") -> str:
    """Return a configured share, such as a confidence level, as `contracts.level` writes it."""
    finite = number(value)
    return missing if finite is None else written_level(finite)


def milliseconds(value: Any, missing: str = NOT_MEASURED) -> str:
    """Return a duration: ``12 ms`` or ``3.4 s``."""
    finite = number(value)
    if finite is None:
        return missing
    return f"{finite / 1000:,.1f} s" if finite >= 1000 else f"{finite:.0f} ms"


def two_digits(tokens: float) -> int:
    """Round to two significant digits; more would suggest a precision that intervals lack."""
    return int(float(f"{tokens:.1e}"))


def located(at: Any, low: Any, high: Any) -> str:
    """Return a length in tokens with its interval: ``575 [477, 701]``, else ``575 or less``."""
    if number(low) is None or number(high) is None:
        return f"{tokens(at)} or less"
    return f"{tokens(at)} [{tokens(low)}, {tokens(high)}]"


def estimate(mean: Any, low: Any, high: Any) -> str:
    """Return a mean with its interval: ``0.98 [0.93, 0.99]`` or ``0.98 (no interval)``."""
    if number(mean) is None:
        return NOT_MEASURED
    bounded = number(low) is not None and number(high) is not None
    return f"{score(mean)} {f'[{score(low)}, {score(high)}]' if bounded else '(no interval)'}"


def count(value: Any, noun: str) -> str:
    """Return ``1 answer``, ``200 answers`` or, for None, ``an unknown number of answers``."""
    finite = number(value)
    if finite is None:
        return f"an unknown number of {noun}s"
    return f"{round(finite):,} {noun}{'' if round(finite) == 1 else 's'}"


def named(noun: str, names: Sequence[str]) -> str:
    """Return ``campaign 2026-11-21`` or ``campaigns 2026-11-21, 2026-11-22``."""
    return f"{noun}{'' if len(names) == 1 else 's'} {', '.join(names)}"


def listed(names: Sequence[str]) -> str:
    """Return names as a list in words: ``a``, ``a and b``, ``a, b and c``; empty without any."""
    return "".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"


def ratio_words(shift: LossShift) -> str:
    """Return ``x 0.51 [0.38, open]``, or ``open`` if neither end is known."""
    if not shift.is_bounded:
        return "open"
    low, high = (f"{end:.2f}" if end else "open" for end in (shift.ci_low, shift.ci_high))
    return f"x {score(shift.ratio, '?')} [{low}, {high}]"


RIGHT_OR_WRONG = frozenset({"em", "contained"})
"""Scores that are 0 or 1 for each answer, so their mean is the fraction of right answers."""


def is_all_or_nothing(result: Cliffs) -> bool:
    """Return whether every score is 0 or 1: then the SD of each bin follows from its mean."""
    known = [(b.mean, b.sd) for b in result.bins if b.mean is not None]
    alike = (sd is not None and abs(sd**2 - mean * (1 - mean)) < 1e-6 for mean, sd in known)
    return bool(known) and all(alike)


def usefulness(result: Cliffs) -> str:
    """Return how good the answers up to the cap are: ``right 76% of the time``; empty if unknown.

    Adds that this is below the study's ``min_score``.
    """
    if (mean := result.cap_score) is None:
        return ""
    share = "more than 99%" if 0.995 <= mean < 1 else f"{mean:.0%}"
    is_share = result.score.name in RIGHT_OR_WRONG or is_all_or_nothing(result)
    words = f"right {share} of the time" if is_share else f"mean {score_name(result)} {score(mean)}"
    if is_useless(result):
        words += f", below the {score(result.min_score)} that `min_score` asks for"
    return words


def is_useless(result: Cliffs) -> bool:
    """Return whether the answers up to the cap score less than the study's ``min_score``."""
    mean, least = result.cap_score, result.min_score
    return mean is not None and least is not None and mean < least


_MOST_EXAMPLES = 6
"""Maximum number of models for which a tolerance sentence lists figures."""
_OUT_OF = (10, 20, 100)


def lost_of(tolerance: float) -> tuple[int, int]:
    """Return ``tolerance`` (0..1) as "k of n" right answers that may be lost, rounded down.

    >>> lost_of(0.3), lost_of(0.05), lost_of(0.125)
    ((3, 10), (1, 20), (125, 1000))
    """
    for base in _OUT_OF:
        if abs(tolerance * base - round(tolerance * base)) < 1e-9:
            return round(tolerance * base), base
    return int(tolerance * 1000 + 1e-9), 1000


def reference_score(result: Cliffs) -> float | None:
    """Return the baseline that the cap is relative to: fitted, or measured without a fit."""
    return result.baseline.mean if result.baseline.fitted is None else result.baseline.fitted


def least_score(result: Cliffs, baseline: float) -> float:
    """Return the score at which all of the tolerance is lost, measured above guessing."""
    return baseline - result.tolerance * max(baseline - result.chance, 0.0)


def tolerance_sentences(results: Sequence[Cliffs], names: Sequence[str]) -> list[str]:
    """Return one sentence for each tolerance and kind of score in ``results``."""
    groups: dict[tuple[float, str], dict[str, list[str]]] = {}
    for name, result in zip(names, results, strict=True):
        kind = result.score.name if result.score.name in {*RIGHT_OR_WRONG, "f1"} else ""
        key = result.tolerance, "right" if kind in RIGHT_OR_WRONG else kind
        falls = groups.setdefault(key, {})
        base, mean = result.baseline, reference_score(result)
        floor = result.verdict is Verdict.FLOOR  # nothing can be lost there
        if mean is not None and not floor and len(results) <= _MOST_EXAMPLES:
            ends = score(mean), score(least_score(result, mean))
            if ends[0] != ends[1]:
                fitted = base.mean is not None and score(base.mean) != ends[0]
                by = " by the fitted curve" if fitted else ""
                falls.setdefault(f"from {ends[0]} to {ends[1]}{by}", []).append(name)
    return [_sentence(*key, falls) for key, falls in groups.items()]


def _sentence(tolerance: float, kind: str, falls: Mapping[str, Sequence[str]]) -> str:
    head, effect = f"A tolerance of {level(tolerance)} means", ""
    if len(falls) == 1:
        effect = f", at worst {next(iter(falls))}"
    elif falls:
        parts = [f"{', '.join(whose)} {fall}" for fall, whose in falls.items()]
        effect = f" ({'; '.join(parts)})"
    if kind == "right":
        lost, of = lost_of(tolerance)
        return (
            f"{head}: of every {of:,} answers that are right on short documents, up to {lost:,} "
            f"may be lost{effect}."
        )
    if kind == "f1":
        return (
            f"{head}: token F1, the overlap in words with the accepted answer, may fall to "
            f"{level(1 - tolerance)} of its mean on short documents{effect}. Partly right "
            "answers count partly."
        )
    return (
        f"{head}: the mean score may fall to {level(1 - tolerance)} of its mean on short "
        f"documents{effect}."
    )


def latency_limit_sentence(cliffs: Cliffs) -> str | None:
    """Return a sentence on the longest length within the user's latency limit; None without it."""
    if (limit := cliffs.latency_limit) is None:
        return None
    from contextcliff_dagster.analysis.latency import SHARE, least_documents

    ms, documents = limit.ttft_ms_p95, limit.n_documents
    within = f"within {ms:g} ms" if ms < 1_000 else f"within {ms / 1_000:g} s"
    if documents < (needed := least_documents(cliffs.confidence)):
        return (
            f"First token {within}: not known from {count(documents, 'document')} with a time; "
            f"{level(SHARE)} of the calls at {level(cliffs.confidence)} confidence need {needed}."
        )
    reach = f"First token {within} up to {tokens(limit.tokens)} tokens"
    if limit.tokens is None:
        reach = f"First token {within}: shown at no measured length"
    elif limit.tokens == limit.longest_tokens:
        reach = f"First token {within} over the whole range, to {tokens(limit.tokens)} tokens"
    by = limit.passed_by_tokens
    passed = "" if by is None else f" The limit is exceeded from {tokens(by)} tokens on."
    sure = f"{level(SHARE)} of the calls, {level(cliffs.confidence)} confidence"
    return f"{reach} ({sure}, n = {count(documents, 'document')}).{passed}"


def joint_cap_sentence(cliffs: Cliffs) -> str | None:
    """Return a sentence on the cap that score and latency both allow; None if untested."""
    joint = cliffs.joint_cap
    if joint is None:
        return None
    if joint.tokens is None:
        limiter = "score" if joint.limited_by == "accuracy" else "limit on time to first token"
        return f"Joint cap of score and latency: none, because the {limiter} supports no cap."
    expected = "stays within its limit" if cliffs.latency_limit else "stays normal"
    limit = {
        "accuracy": f"the score: up to there, time to first token {expected}.",
        "latency": "latency: beyond that, time to first token is higher than expected.",
        "latency_limit": "latency: beyond that, time to first token may exceed its limit.",
    }[joint.limited_by]
    return f"Joint cap of score and latency: {tokens(joint.tokens)} tokens, limited by {limit}"


MOSTLY_COPIED = 0.9
"""Least fraction of copied answers at which a cap is described as a cap for copying text."""
MANY_MODELS = 5
"""Least number of models for which a comparison states the expected false alarms."""
_TESTED = (Verdict.STABLE, *DROPS)
SCORE_NAMES = {"em": "exact match", "f1": "token F1", "contained": "containment"}
SCORE_SHORT = {"em": "EM", "f1": "F1", "contained": "containment"}

LENGTHS_ARE: Mapping[LengthUnit, str] = {
    "document": (
        "Lengths are tokens of the document alone, in the tokenizer named in the table. The "
        "method sends every document whole: nothing cut, padded or inserted."
    ),
    "prompt": "Lengths are tokens of the whole prompt, with instructions and question.",
    "words": "Lengths are words, not tokens: read every number of tokens here as words.",
    "characters": (
        "Lengths are characters, not tokens: read every number of tokens here as characters."
    ),
    "as given": "Lengths are those of the file. Whether they include the prompt is unknown.",
}

LENGTHS_OF: Mapping[LengthUnit, str] = {
    "document": "documents",
    "prompt": "prompts",
    "words": "lengths in words",
    "characters": "lengths in characters",
    "as given": "lengths",
}
LENGTH_AXIS: Mapping[LengthUnit, str] = {
    "document": "document length in tokens",
    "prompt": "prompt length in tokens",
    "words": "length in words",
    "characters": "length in characters",
    "as given": "length in tokens",
}


def length_axis(results: Sequence[Cliffs]) -> str:
    """Return what the lengths of all ``results`` are, with their unit."""
    names = dict.fromkeys(LENGTH_AXIS[result.length_unit] for result in results)
    return next(iter(names)) if len(names) == 1 else "length in tokens"


VERDICT_PHRASE = {
    Verdict.STABLE: "no large drop found",
    Verdict.GRADUAL_DECLINE: "gradual decline",
    Verdict.DECLINE: "decline",
    Verdict.CLIFF: "cliff",
    Verdict.DIP: "dip, recovers further out",
    Verdict.FLOOR: "at the floor from the start",
    Verdict.INSUFFICIENT_DATA: "too few data",
}


def score_name(cliffs: Cliffs, *, short: bool = False) -> str:
    """Return the primary score's name in words (``exact match``) or short (``EM``)."""
    name = cliffs.score.name or "score"
    return (SCORE_SHORT if short else SCORE_NAMES).get(name, name)


def labels(results: Sequence[Cliffs]) -> list[str]:
    """Return one unique name per result; repeated names get their campaign or a number."""
    names = [r.model or "unnamed model" for r in results]
    counts = Counter(names)
    unique = [
        f"{name} ({r.campaign})" if counts[name] > 1 and r.campaign else name
        for name, r in zip(names, results, strict=True)
    ]
    again, numbers = Counter(unique), Counter[str]()
    for i, name in enumerate(unique):
        if again[name] > 1:
            numbers[name] += 1
            unique[i] = f"{name} #{numbers[name]}"
    return unique


def measured_range(cliffs: Cliffs) -> tuple[int, int] | None:
    """Return the shortest and longest scored document in tokens; None if nothing is scored."""
    rows = [b for b in cliffs.bins if b.mean is not None]
    lows = [b.min_tokens for b in rows if b.min_tokens is not None]
    highs = [b.max_tokens for b in rows if b.max_tokens is not None]
    return (min(lows), max(highs)) if lows and highs else None


def amount(cliffs: Cliffs) -> str:
    """Return ``200 examples over 200 documents``; replicates of an example count once.

    A table of means without n has no examples to count: ``6 means of unknown n``.
    """
    means = [b for b in cliffs.bins if b.mean is not None]
    if cliffs.n == 0 and means:
        return f"{count(len(means), 'mean')} of unknown n"
    text = count(cliffs.n, "example")
    documents = cliffs.n_documents
    return text if documents is None else f"{text} over {count(documents, 'document')}"


def instability_sentence(cliffs: Cliffs) -> str:
    """Return how much scores vary by wording; empty if each question had one wording."""
    spreads = [(b.instability, b.n) for b in cliffs.bins if b.instability is not None and b.n]
    if not spreads:
        return ""
    mean = sum(sd * n for sd, n in spreads) / sum(n for _, n in spreads)
    return (
        f"The scores of one question differ between wordings by an SD of {mean:.2f} on average; "
        "they are averaged, and the question counts once."
    )


def last_octave_phrase(cliffs: Cliffs) -> str | None:
    """Return the data below the cap: ``41 answers on 12 documents of more than 191 tokens``."""
    octave, cap = cliffs.last_octave, cliffs.safe_cap_tokens
    if octave is None or cap is None:
        return None
    documents = octave.documents
    on = f" on {count(documents, 'document')}" if documents is not None else ""
    return f"{count(octave.answers, 'answer')}{on} of more than {tokens(cap // 2)} tokens"


def baseline_phrase(cliffs: Cliffs) -> str:
    """Return the baseline: ``0.98 [0.93, 0.99] (n = 80, documents up to 264 tokens)``."""
    base = cliffs.baseline
    if base.mean is None:
        return "that was not measured"
    text = estimate(base.mean, base.ci_low, base.ci_high)
    notes = f"n = {base.n:,}"
    if base.to_tokens is not None:
        notes += f", documents up to {tokens(base.to_tokens)} tokens"
    if base.fitted is None or score(base.fitted) == score(base.mean):
        return f"{text} ({notes})"
    return f"{score(base.fitted)} by the fitted curve (measured: {text}, {notes})"


def window_share(cliffs: Cliffs) -> float | None:
    """Return the cliff's location as a fraction of the window; None if either is unknown."""
    critical = cliffs.critical_threshold
    return critical.share if critical and cliffs.cliff and cliffs.window_tokens else None


def sentence(text: str | None) -> str:
    """Return ``text`` on one line with a full stop at its end; empty text stays empty."""
    line = " ".join((text or "").split())
    return line if not line or line.endswith((".", "!", "?")) else f"{line}."


def half_drop_sentence(cliffs: Cliffs) -> str:
    """Return the report's last line: the midpoint of the drop, or why it is unknown."""
    if cliffs.verdict_note and cliffs.verdict is Verdict.STABLE:
        return cliffs.verdict_note
    return f"{_half_drop(cliffs)} {cliffs.verdict_note or ''}".rstrip()


def _half_drop(cliffs: Cliffs) -> str:
    verdict, reach, window = cliffs.verdict, measured_range(cliffs), cliffs.window_tokens
    if verdict is Verdict.INSUFFICIENT_DATA:
        if cliffs.n == 0 and reach:
            return f"Without n, a drop cannot be distinguished from chance ({amount(cliffs)})."
        return f"Too few data to distinguish a drop from chance ({amount(cliffs)})."
    if verdict is Verdict.FLOOR:
        base = cliffs.baseline
        short = f"{estimate(base.mean, base.ci_low, base.ci_high)}, n = {base.n:,}"
        return (
            f"The score is at the floor from the shortest documents on ({short}): no drop can be "
            "measured."
        )
    after = "; the score recovers further out" if verdict is Verdict.DIP else ""
    landmark = "start of the dip" if verdict is Verdict.DIP else "midpoint of the drop"
    less = " or less" if cliffs.cliff and cliffs.cliff.ci_low is None else ""
    if (share := window_share(cliffs)) is not None:
        return f"The {landmark} is at {percent(share)} of the window{less}{after}."
    if cliffs.cliff is not None:
        at = f"{tokens(cliffs.cliff.location_tokens)} tokens{less}{after}"
        return f"The {landmark} is at {at}; the context window is unknown."
    if verdict is not Verdict.STABLE or reach is None:
        return "These data do not locate the midpoint of the drop."
    of_window = f" ({percent(reach[1] / window)} of the window)" if window else ""
    no_drop = f"No drop of {level(cliffs.tolerance)} was found at the measured lengths"
    return f"{no_drop}, up to {tokens(reach[1])} tokens{of_window}."


def assumption_sentence(cliffs: Cliffs) -> str | None:
    """Return a sentence on what the cap assumes about temporary drops; None without a cap."""
    recovery = cliffs.recovery
    if recovery is None or cliffs.safe_cap_tokens is None or cliffs.verdict is Verdict.DIP:
        return None
    if recovery.assumption == "any" or recovery.cap_tokens == cliffs.safe_cap_tokens:
        return "The cap also holds for a drop that recovers at longer lengths."
    drop, over = recovery.excluded_drop, level(recovery.share)
    dips = (
        f"A temporary dip over {over} of the examples may have gone unseen."
        if drop is None
        else f"A temporary dip of {level(drop)} would have shown if it covered {over} of the "
        "examples."
    )
    robust, joint = recovery.cap_tokens, cliffs.joint_cap
    if robust is not None and joint is not None and joint.limited_by == "latency_limit":
        robust = min(robust, joint.tokens or 0) or None
    without = "these data show no cap" if robust is None else f"the cap is {tokens(robust)} tokens"
    return (
        "The cap assumes that a model that fails at a length also fails at longer ones. "
        f"{dips} For a model that may recover, {without}."
    )


def looks_sentence(cliffs: Cliffs) -> str | None:
    """Return a sentence on how often this campaign's cap was read; None if only once."""
    if len(cliffs.looks) < 2:
        return None
    *earlier, last = (f"{look.n:,}" for look in cliffs.looks)
    return (
        f"The cap was read {len(cliffs.looks)} times, from {', '.join(earlier)} and {last} "
        "examples. A cap longer than all earlier ones needs more certainty, so that the longest "
        "one keeps the stated confidence."
    )


def copies_sentence(cliffs: Cliffs) -> str | None:
    """Return a caution if answers are copied from the document and there is a cap; else None."""
    share = cliffs.copied_share
    if cliffs.safe_cap_tokens is None or share is None or share < MOSTLY_COPIED:
        return None
    return (
        f"In {share:.0%} of the questions the answer occurs word for word in the document: "
        "the cap holds for finding and copying text; reasoning often fails at shorter lengths."
    )


def certify_sentence(cliffs: Cliffs) -> str | None:
    """Return how many more examples would help, or why no number would; None if not computed."""
    certify, reach = cliffs.certify, measured_range(cliffs)
    if reach is None:
        return _further_sentence(certify.further)
    parts = []
    if (per_bin := certify.n_for_a_cap) is not None:
        needed = f"About {count(per_bin, 'example')} per bin"
        parts.append(f"{needed} would give a cap, with a chance of 80%.")
    further, cap = certify.further, cliffs.safe_cap_tokens
    if text := _further_sentence(further):
        parts.append(text)
    elif (cap is None or cap < reach[1]) and certify.reason:
        parts.append(sentence(certify.reason))
    return " ".join(parts) or None


def _further_sentence(further: FurtherData | None) -> str | None:
    """Return what a verdict or a cap at the 90th percentile still needs; None if nothing."""
    if further is None or further.examples == 0:
        return None
    goal = "A verdict"
    if further.goal == "p90_cap":
        goal = f"A cap at {tokens(further.goal_tokens)} tokens, the 90th percentile of the lengths,"
    if further.examples is None:
        return sentence(further.reason)
    documents = further.documents
    on = "" if not documents else f" on {count(documents, 'further document')}"
    about = "" if further.goal == "verdict" else "about "
    cost = [] if further.tokens is None else [f"about {tokens(further.tokens)} tokens"]
    if (usd := further.usd) is not None:
        cost.append("less than 0.01 USD" if usd < 0.01 else f"{usd:,.2f} USD")
    price = f" ({', '.join(cost)})" if cost else ""
    chance = "" if further.goal == "verdict" else ", with a chance of 80%"
    return f"{goal} needs {about}{count(further.examples, 'further example')}{on}{price}{chance}."


def not_comparable(results: Sequence[Cliffs]) -> list[str]:
    """Return the differing settings that make lengths or scores of the results incomparable."""
    settings: dict[str, set[str | None]] = {
        "studies": {r.study for r in results},
        "tasks": {r.task for r in results},
        "tokenizers": {r.tokenizer for r in results},
        "scores": {r.score.name for r in results},
    }
    return [words for words, values in settings.items() if len(values) > 1]


def comparison(results: Sequence[Cliffs]) -> str:
    """Return all models' caps in one sentence, in their order; empty for fewer than two results."""
    if len(results) < 2:
        return ""
    pairs = list(zip(labels(results), results, strict=True))
    text = "Safe cap: " + ", ".join(
        f"{name} none supported"
        if r.safe_cap_tokens is None
        else f"{name} {tokens(r.safe_cap_tokens)} tokens"
        + (f" ({words})" if (words := usefulness(r)) else "")
        for name, r in pairs
    )
    drops = [(name, r.cliff) for name, r in pairs if r.cliff is not None]
    if len(drops) >= 2:
        spots = ", ".join(
            f"{name} {located(drop.location_tokens, drop.ci_low, drop.ci_high)}"
            for name, drop in drops
        )
        spans = sorted(
            (drop.ci_low or 0, drop.ci_high or drop.location_tokens) for _, drop in drops
        )
        disjoint = all(span[1] < following[0] for span, following in pairwise(spans))
        overlap = "the intervals do not overlap" if disjoint else "some of the intervals overlap"
        text += f"; midpoint of the drop: {spots}; {overlap}"
    if differing := not_comparable(results):
        text += f". Different {' and '.join(differing)}: not directly comparable"
    return f"{text}. {false_alarms(results)}".strip()


def false_alarms(results: Sequence[Cliffs]) -> str:
    """Return a sentence on how many drops to expect by chance; empty below five verdicts."""
    chances = [1 - r.confidence for r in results if r.verdict in _TESTED]
    if len(chances) < MANY_MODELS:
        return ""
    any_alarm = 1 - math.prod(1 - chance for chance in chances)
    dropped = sum(r.cliff is not None for r in results)
    return (
        f"{dropped} of {len(chances)} models {'shows' if dropped == 1 else 'show'} a drop. Chance "
        f"alone would show up to {sum(chances):.1f} on average, and at least one with a "
        f"probability of up to {any_alarm:.0%}."
    )


def deciding_cap(cliffs: Cliffs) -> int | None:
    """Return the cap in document tokens, from the scores and, if set, the latency limit."""
    joint = cliffs.joint_cap
    if joint is not None and joint.limited_by == "latency_limit":
        return joint.tokens
    return cliffs.safe_cap_tokens


def one_line(cliffs: Cliffs) -> str:
    """Return ``safe up to 12,300 tokens (95%); cliff at 15,000 [13,000, 17,400]; n=1,000``."""
    cap = deciding_cap(cliffs)
    words = "no safe cap" if cap is None else f"safe up to {tokens(cap)} tokens"
    if cap is None and (base := cliffs.baseline_cap_tokens) is not None:
        words = f"nothing longer than the baseline's own {tokens(base)} tokens shown"
    return f"{words} ({level(cliffs.confidence)}); {drop_clause(cliffs)}; n={cliffs.n:,}"


def drop_clause(cliffs: Cliffs) -> str:
    """Return the verdict with its location: ``cliff at 15,000 [13,000, 17,400]``."""
    verdict, drop = cliffs.verdict, cliffs.cliff
    words = VERDICT_PHRASE[verdict]
    if verdict is Verdict.STABLE:
        reach = measured_range(cliffs)
        return f"{words} up to {tokens(reach[1])}" if reach else words
    if drop is None:
        return words
    at = located(drop.location_tokens, drop.ci_low, drop.ci_high)
    return f"{words.partition(',')[0]} at {at}"


def rope_sentence(attention: AttentionResult | None) -> str | None:
    """Return a sentence on where in the window RoPE is predicted to fail; None if unsupported."""
    if attention is None or (rope := attention.rope) is None:
        return None
    return (
        f"RoPE extrapolation failure predicted at about {rope.share:.0%} of the window "
        f"[{rope.ci_low:.0%}, {rope.ci_high:.0%}], {tokens(rope.prompt_tokens)} prompt "
        "tokens: the score drops and attention entropy changes there, and the weights were trained "
        f"to {tokens(attention.trained_tokens)} tokens."
    )


def attention_sentences(attention: AttentionResult) -> list[str]:
    """Return all sentences on a model's attention, RoPE last."""
    return [sentence(text) for text in (*attention.says, rope_sentence(attention)) if text]


CONTROL_WORDS: dict[Control, str] = {"no_context": "no document", "oracle": "evidence alone"}
"""Control -> words for the input that replaces the document."""


def shown_mix(result: Cliffs) -> CategoryMix | None:
    """Return the category whose equal-mix curve differs most from the measured one, or None."""

    def moved(row: CategoryMix) -> float:
        pairs = ((b.mean, b.standardised) for b in row.bins)
        return max((abs(a - b) for a, b in pairs if a is not None and b is not None), default=-1.0)

    rows = [row for row in result.mix if moved(row) >= 0]
    return max(rows, key=moved, default=None)


def unanswered_sentence(missing: Missing, answered: int) -> str | None:
    """Return a sentence on how many calls have no answer, and why; None if all have one."""
    why = {
        "did not fit the window": missing.context_overflow,
        "were cut by the server": missing.invalid_truncated,
        "failed on the way": missing.transport_error,
        "were withheld by a content filter": missing.content_filter,
    }
    reasons = [f"{n:,} {words}" for words, n in why.items() if n]
    if not reasons:
        return None
    calls = f"{missing.total:,} of {missing.total + answered:,} calls"
    if len(reasons) == 1:
        return f"{calls} {reasons[0].partition(' ')[2]}."
    return f"{calls} have no answer: {', '.join(reasons)}."
