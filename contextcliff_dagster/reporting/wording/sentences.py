"""What a result says, in words: shared by the terminal, the Markdown page and the picture.

The sentences claim no more than a black-box measurement supports: where the score drops, not why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from contextcliff_dagster.reporting.wording.number_format import (
    count,
    estimate,
    level,
    number,
    percent,
    tokens,
)

Cliffs = Mapping[str, Any]

SCORE_NAMES = {"em": "exact match", "f1": "token F1", "contained": "containment"}
SCORE_SHORT = {"em": "EM", "f1": "F1", "contained": "containment"}

VERDICT_PHRASE = {
    "stable": "no drop found",
    "gradual_decline": "gradual decline",
    "cliff": "cliff",
    "dip": "dip, recovers further out",
    "floor": "at the floor from the start",
    "insufficient_data": "too few data",
}


def part(cliffs: Cliffs, name: str) -> Mapping[str, Any]:
    """A nested object of the contract; an absent or null one reads as empty."""
    found = cliffs.get(name)
    return found if isinstance(found, Mapping) else {}


def parts(cliffs: Cliffs, name: str) -> list[Mapping[str, Any]]:
    """A list of objects of the contract; an absent or null one reads as empty."""
    found = cliffs.get(name)
    items = found if isinstance(found, list | tuple) else ()
    return [item for item in items if isinstance(item, Mapping)]


def word(cliffs: Cliffs, name: str) -> str | None:
    """A name of the contract; None where it is absent, null, empty or no text."""
    found = cliffs.get(name)
    return found if isinstance(found, str) and found else None


def score_name(cliffs: Cliffs, *, short: bool = False) -> str:
    """The primary score in words (``exact match``) or short (``EM``)."""
    name = word(part(cliffs, "score"), "name") or "score"
    return (SCORE_SHORT if short else SCORE_NAMES).get(name, name)


def labels(results: Sequence[Cliffs]) -> list[str]:
    """One name per result; a model that appears twice is told apart by campaign or place."""
    names = [word(r, "model") or "unnamed model" for r in results]
    counts = Counter(names)
    told = [
        f"{name} ({word(r, 'campaign')})" if counts[name] > 1 and word(r, "campaign") else name
        for name, r in zip(names, results, strict=True)
    ]
    again, seen = Counter(told), Counter[str]()
    for i, name in enumerate(told):
        if again[name] > 1:
            seen[name] += 1
            told[i] = f"{name} #{seen[name]}"
    return told


def measured_range(cliffs: Cliffs) -> tuple[float, float] | None:
    """Shortest and longest scored document in tokens, by the bins; None where nothing is scored."""
    rows = [b for b in parts(cliffs, "bins") if number(b.get("mean")) is not None]
    lows = [v for b in rows if (v := number(b.get("min_tokens"))) is not None]
    highs = [v for b in rows if (v := number(b.get("max_tokens"))) is not None]
    return (min(lows), max(highs)) if lows and highs else None


def amount(cliffs: Cliffs) -> str:
    """``200 examples over 200 documents``: an example counts once, however many its replicates.

    Of a table of means that states no n there are no examples to count: ``6 means of unknown n``.
    """
    means = [b for b in parts(cliffs, "bins") if number(b.get("mean")) is not None]
    if number(cliffs.get("n")) == 0 and means:
        return f"{count(len(means), 'mean')} of unknown n"
    text = count(cliffs.get("n"), "example")
    documents = number(cliffs.get("n_documents"))
    return text if documents is None else f"{text} over {count(documents, 'document')}"


def baseline_phrase(cliffs: Cliffs) -> str:
    """``0.98 [0.93, 0.99] (n = 80, documents up to 264 tokens)``."""
    base = part(cliffs, "baseline")
    if number(base.get("mean")) is None:
        return "that was not measured"
    text = estimate(base.get("mean"), base.get("ci_low"), base.get("ci_high"))
    n = number(base.get("n"))
    reach = number(base.get("to_tokens"))
    notes = [f"n = {round(n):,}" if n is not None else "n unknown"]
    if reach is not None:
        notes.append(f"documents up to {tokens(reach)} tokens")
    return f"{text} ({', '.join(notes)})"


def window_share(cliffs: Cliffs) -> float | None:
    """Where the cliff stands as a share of the model's window; None where either is unknown."""
    share = number(part(cliffs, "critical_threshold").get("share"))
    if share is not None:
        return share
    location, window = (
        number(part(cliffs, "cliff").get("location_tokens")),
        number(cliffs.get("window_tokens")),
    )
    return location / window if location is not None and window else None


def location_tokens(cliffs: Cliffs) -> float | None:
    """Length at which half of the drop is reached; None where there is no cliff, dip or decline."""
    found = number(part(cliffs, "cliff").get("location_tokens"))
    return found if found is not None else number(part(cliffs, "critical_threshold").get("tokens"))


def sentence(text: Any) -> str:
    """``text`` on one line with a full stop at its end; empty stays empty."""
    line = " ".join(str(text or "").split())
    return line if not line or line.endswith((".", "!", "?")) else f"{line}."


def half_drop_sentence(cliffs: Cliffs) -> str:
    """The report's last line: where half of the drop lies, or why that cannot be told."""
    verdict = cliffs.get("verdict")
    if verdict == "insufficient_data" and number(cliffs.get("n")) == 0 and measured_range(cliffs):
        return f"Without n a drop cannot be told from chance ({amount(cliffs)})."
    if verdict == "insufficient_data":
        return f"The data cannot tell a drop from chance ({amount(cliffs)})."
    if verdict == "floor":
        return (
            "The score is at the floor from the shortest documents on "
            f"({_baseline_short(cliffs)}): no drop can be measured."
        )
    location = location_tokens(cliffs)
    if location is not None:
        after = "; the score recovers further out" if verdict == "dip" else ""
        share = window_share(cliffs)
        if share is None:
            return (
                f"Half of the drop is reached at {tokens(location)} tokens{after}; "
                "the model's window is not stated."
            )
        return f"Half of the drop is reached at {percent(share)} of the window{after}."
    reach = measured_range(cliffs)
    if verdict != "stable" or reach is None:
        return "Where half of the drop is reached cannot be told from these data."
    window = number(cliffs.get("window_tokens"))
    of_window = f" ({percent(reach[1] / window)} of the window)" if window else ""
    size = level(cliffs.get("tolerance"), "the stated size")
    return f"No drop of {size} was found up to {tokens(reach[1])} tokens{of_window}."


def certify_sentence(cliffs: Cliffs) -> str | None:
    """How many examples would certify more, where the analysis says so; else why no number does."""
    certify, reach = part(cliffs, "certify"), measured_range(cliffs)
    if reach is None:
        return None
    said = []
    if (some := number(certify.get("n_for_a_cap"))) is not None:
        said.append(f"About {count(some, 'example')} a bin would be needed for any cap at all.")
    if (needed := number(certify.get("n_needed"))) is not None:
        said.append(
            f"About {count(needed, 'example')} a bin would be needed to certify the longest "
            f"measured length, {tokens(reach[1])} tokens."
        )
    elif reason := sentence(certify.get("reason")):
        said.append(reason)
    return " ".join(said) or None


def _baseline_short(cliffs: Cliffs) -> str:
    base = part(cliffs, "baseline")
    n = number(base.get("n"))
    text = estimate(base.get("mean"), base.get("ci_low"), base.get("ci_high"))
    return text if n is None else f"{text}, n = {round(n):,}"


def not_comparable(results: Sequence[Cliffs]) -> list[str]:
    """What differs between the results so that their lengths or scores are not on one scale."""
    differing = []
    for key, words in (("study", "studies"), ("task", "tasks"), ("tokenizer", "tokenizers")):
        if len({str(r.get(key)) for r in results}) > 1:
            differing.append(words)
    if len({str(part(r, "score").get("name")) for r in results}) > 1:
        differing.append("scores")
    return differing


def comparison(results: Sequence[Cliffs]) -> str:
    """All models in one sentence, the longest cap first; empty for fewer than two results."""
    if len(results) < 2:
        return ""
    named = sorted(
        zip(labels(results), results, strict=True),
        key=lambda pair: -(number(pair[1].get("safe_cap_tokens")) or -1.0),
    )
    caps = [(name, number(r.get("safe_cap_tokens"))) for name, r in named]
    text = ", ".join(
        f"{name} {tokens(cap) + ' tokens' if cap is not None else 'none supported'}"
        for name, cap in caps
    )
    text = f"safe cap: {text}"
    if len(caps) == 2 and caps[0][1] and caps[1][1] and caps[0][1] != caps[1][1]:
        text += f" ({caps[0][1] / caps[1][1]:.1f} times shorter)"
    placed = [(name, r) for name, r in named if location_tokens(r) is not None]
    if len(placed) >= 2:
        spots = ", ".join(f"{name} {_location(r)}" for name, r in placed)
        text += f"; half of the drop at: {spots}"
        if (apart := _intervals_apart([r for _, r in placed])) is not None:
            text += "; the intervals do not overlap" if apart else "; some of the intervals overlap"
    if differing := not_comparable(results):
        text += f". Different {' and '.join(differing)}: not on one scale"
    return f"{text[0].upper()}{text[1:]}."


def _location(cliffs: Cliffs) -> str:
    cliff = part(cliffs, "cliff")
    low, high = number(cliff.get("ci_low")), number(cliff.get("ci_high"))
    span = (
        f" [{tokens(low)}, {tokens(high)}]"
        if low is not None and high is not None
        else " (no interval)"
    )
    return f"{tokens(location_tokens(cliffs))}{span}"


def _intervals_apart(results: Sequence[Cliffs]) -> bool | None:
    spans = []
    for r in results:
        low, high = number(part(r, "cliff").get("ci_low")), number(part(r, "cliff").get("ci_high"))
        if low is None or high is None:
            return None
        spans.append((low, high))
    spans.sort()
    return all(a[1] < b[0] for a, b in pairwise(spans))
