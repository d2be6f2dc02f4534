"""Limits on the length of prompts that show in what became of calls, whatever the server says.

Where the same words (numbers apart) refuse at least `LEAST_REFUSED` requests, none of them shorter
than one that was answered, the prompts did not fit. That is never for good: a later run asks the
shortest of them again, and the others where it is answered. Where from one length on nothing is
answered, the prompts did not fit either, though the server took them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from contextcliff_dagster.inference.engines.base import REFUSED
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.result_rows import ANSWERED, either, joined

LEAST_REFUSED, LEAST_MUTE = 3, 5
MUTE_SHARE = 0.95
"""Of the prompts beyond a limit so many get no word, and of the shorter ones so many get some."""
_SLACK = 0.95
"""Sizes are bounds by our own count: prompts as long as this share of one another may change
places in the server's count."""
_END = re.compile(r"<[|/][^<>]{1,24}>|<e[no][ds][^<>]{0,16}>")
"""Signs of an end that servers leave in the text."""
_SIZE = "coalesce(a.estimated_tokens, a.reserved_tokens)"
_OF_CALLS = "a.study = ? AND a.campaign = ? AND a.model = ?"


@dataclass(frozen=True, slots=True)
class Limits:
    """Keys of the calls that did not fit: ``refused``, the shortest first, and ``mute``."""

    refused: tuple[str, ...] = ()
    mute: frozenset[str] = frozenset()


def limits_of(ledger: Ledger, study: str, campaign: str, model: str) -> Limits:
    """What the calls of a model in a campaign show together."""
    scope = (study, campaign, model)
    words = [f"substr({either(name)}, 1, 64)" for name in ("raw_output", "reasoning")]
    words.append(either("finish_reason"))
    answers = ledger.read(
        f"SELECT max({_SIZE}), a.call_key, {', '.join(f'max({one})' for one in words)}"
        f" FROM attempts a{joined('a')} WHERE {_OF_CALLS} AND {ANSWERED}"
        f" AND {either('no_answer')} IS NULL AND {either('pruned_at')} IS NULL GROUP BY a.call_key",
        scope,
    )
    refusals = ledger.read(
        f"SELECT f.call_key, f.message, {_SIZE} FROM failures f"
        f" JOIN attempts a ON a.attempt_id = f.attempt_id{joined('a')} WHERE {_OF_CALLS} AND f.kind"
        f" IN (?, 'http_500') AND f.final = 1 AND NOT {ANSWERED} ORDER BY f.attempt_id",
        (*scope, REFUSED),
    )
    by_words: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for key, (message, size) in {key: rest for key, *rest in refusals}.items():
        by_words[same_words(message)].append((size, key))
    answered = max((size for size, *_ in answers), default=0)
    refused = sorted(
        one
        for of_words in by_words.values()
        if len(of_words) >= LEAST_REFUSED and min(of_words)[0] > _SLACK * answered
        for one in of_words
    )
    sized = sorted((size, key, not is_said(*said)) for size, key, *said in answers)
    return Limits(tuple(key for _, key in refused), frozenset(_beyond(sized)))


def same_words(message: str) -> str:
    """What a refusal says, without its numbers and the ids of requests."""
    return re.sub(r"\b(?=[\w-]*\d)[\w-]{8,}\b|\d[\d.,]*", "#", message)


def is_said(text: str | None, reasoning: str | None, finish_reason: str | None) -> bool:
    """Whether a model said anything, or was at it when its output ended."""
    return bool(reasoning) or finish_reason == "length" or bool(_END.sub("", text or "").strip())


def _beyond(sized: list[tuple[Any, str, bool]]) -> list[str]:
    """Keys of the calls without a word, where they begin at a length; ``sized`` in its order."""
    mute = [is_mute for *_, is_mute in sized]
    below = 0
    for place, is_mute in enumerate(mute):
        above = sum(mute[place:]) if is_mute else 0
        if (
            is_mute
            and min(place, len(mute) - place) >= LEAST_MUTE
            and below <= (1 - MUTE_SHARE) * place
            and above >= MUTE_SHARE * (len(mute) - place)
        ):
            return [key for _, key, silent in sized[place:] if silent]
        below += is_mute
    return []
