"""Exact match and token F1 of SQuAD, each the best over the accepted answers.

Source: the official evaluation scripts of Rajpurkar et al. 2016 (v1.1) and Rajpurkar, Jia and
Liang 2018 (v2.0, the F1 of an answer without tokens). With P = |shared| / |output| and
R = |shared| / |answer| over bags of normalised tokens, F1 = 2PR / (P + R). What a token is in
scripts without spaces between words: `normalize`.

One deviation, for the instrument's sake: an accepted answer that normalisation would erase (the
choice "A" is an article, "+" is punctuation) is compared with its articles, and if need be with its
punctuation. The scripts would call an *empty* output right there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from contextcliff_dagster.scoring.normalize import (
    answer_tokens,
    fold_forms,
    normalize_answer,
    remove_punctuation,
)


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """1.0 if `answer` equals one of the `accepted` answers after normalisation, else 0.0."""
    return max((_exact(answer, gold) for gold in accepted), default=0.0)


def token_f1(answer: str, accepted: Sequence[str]) -> float:
    """The largest token F1 (0..1) of `answer` against the `accepted` answers.

    >>> token_f1("the red crate", ["a red crate", "crate 7 of four"])
    1.0
    >>> token_f1("red crate", ["red"]) == 2 / 3
    True
    """
    return max((_f1(answer, gold) for gold in accepted), default=0.0)


def bare(text: str) -> str:
    """`text` in lower case with white space collapsed; nothing that can be seen is removed."""
    return " ".join(fold_forms(text).lower().split())


def _without_punctuation(text: str) -> str:
    return bare(remove_punctuation(text))


# From the usual form to the one that erases least.
_FORMS: tuple[Callable[[str], str], ...] = (normalize_answer, _without_punctuation, bare)


def _exact(answer: str, gold: str) -> float:
    for form in _FORMS:
        if expected := form(gold):
            return float(form(answer) == expected)
    return 0.0


def _f1(answer: str, gold: str) -> float:
    expected = answer_tokens(gold)
    if not expected:
        return _exact(answer, gold)
    given = answer_tokens(answer)
    shared = sum((Counter(given) & Counter(expected)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(given), shared / len(expected)
    return 2 * precision * recall / (precision + recall)
