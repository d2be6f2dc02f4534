"""Sentences for the report about the server: who answered, what it refused and in which words."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pandas as pd

from contextcliff_dagster.contracts import ANSWER_IN
from contextcliff_dagster.inference.engines.base import UNKNOWN_FINISH, WHO_ANSWERED
from contextcliff_dagster.inference.execution.prediction_rows import same_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contextcliff_dagster.contracts import LengthBin

LEAST_OF_EACH = 30
"""Answers of each of two servers, from which on their scores are shown apart."""
_MOST_WORDS = 300
_IN_THOUGHTS = (
    "The server sends the answers as thoughts (`reasoning_content`) and leaves their own place "
    "empty: they are taken from there."
)
_NOUNS = dict(zip(WHO_ANSWERED, ("model", "provider", "system fingerprint"), strict=True))


def mixtures(own: pd.DataFrame, bins: Sequence[LengthBin]) -> dict[str, str]:
    """Of `WHO_ANSWERED` each of which more than one answered, as a sentence.

    Args:
        own: rows of one model with columns of ``EVAL_RECORDS``: ``extra``, ``bin`` and ``score``.
        bins: of the sample, in order of length.
    """
    extras = _extras(own)
    found = {
        name: _mixture(own, noun, extras[name].dropna(), bins)
        for name, noun in _NOUNS.items()
        if name in extras
    }
    return {name: sentence for name, sentence in found.items() if sentence}


def serving_notes(own: pd.DataFrame) -> list[str]:
    """What else the records of one model say about its server.

    Args:
        own: as above, with ``finish_reason``, ``failure``, ``error`` and ``length_tokens``.
    """
    extras = _extras(own)
    in_thoughts = ANSWER_IN in extras and extras[ANSWER_IN].eq("thoughts").any()
    notes = [_IN_THOUGHTS] if in_thoughts else []
    if unknown := int((own["finish_reason"] == UNKNOWN_FINISH).sum()):
        notes.append(
            f"{unknown:,} of {len(own):,} answers ended without a finish reason: whether the "
            "output limit cut them is unknown."
        )
    too_long, lost = (own[own["failure"] == tag] for tag in ("context_overflow", "transport_error"))
    if said := _most_common(too_long):
        shortest = int(too_long["length_tokens"].min())
        notes.append(f"Documents of {shortest:,} tokens and more did not fit: {said}")
    if said := _most_common(lost):
        notes.append(f"{len(lost):,} of {len(own):,} calls failed on the way, most often: {said}")
    return notes


def _extras(own: pd.DataFrame) -> pd.DataFrame:
    told = own["extra"].dropna()
    return pd.DataFrame([json.loads(one) for one in told], index=told.index)


def _mixture(own: pd.DataFrame, noun: str, names: pd.Series[Any], bins: Sequence[LengthBin]) -> str:
    """That more than one of them answered, with their scores where each has enough answers."""
    answers = names.value_counts()
    if len(answers) < 2:
        return ""
    shown = [name for name, count in answers.items() if count >= LEAST_OF_EACH]
    curves = [_curve(own.loc[names.index[names == name]], str(name), bins) for name in shown]
    who = ", ".join(f"{name} ({count:,})" for name, count in answers.head(5).items())
    note = f"More than one {noun} answered: {who}. The number is of them all, so of none."
    if len(shown) > 1 and noun != "system fingerprint":
        note += f" Mean score by length bin, short to long: {'; '.join(curves)}."
    return note


def _curve(rows: pd.DataFrame, name: str, bins: Sequence[LengthBin]) -> str:
    means = rows.groupby("bin")["score"].mean()
    return f"{name} {', '.join(f'{means[b.bin]:.2f}' for b in bins if b.bin in means.index)}"


def _most_common(rows: pd.DataFrame) -> str:
    """What was said most often, numbers apart, in the words of one call."""
    said = rows["error"].dropna()
    if said.empty:
        return ""
    (words, _), *_ = Counter(map(same_words, said)).most_common(1)
    first = next(one for one in said if same_words(one) == words)
    return first if len(first) <= _MOST_WORDS else f"{first[:_MOST_WORDS]} ..."
