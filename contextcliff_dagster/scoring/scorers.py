"""Scorers: what "right" means for a task, as three scores from 0 to 1.

Whichever is used, the three columns keep their sense: `em`, the answer is an accepted one; `f1`,
how much of it is shared; `contained`, an accepted answer is inside the output. `em` never
exceeds the other two.

- `text`: equal after SQuAD's normalisation; SQuAD's token F1; whole words inside the output.
- `numeric`: the answer's numbers are the accepted ones, by value; F1 over numbers; the accepted
  numbers are among the output's. Words and units do not count.
- `choice`: the option chosen, by its letter or its text; the text's token F1; the text inside the
  output. Where several options are right (``BD``, ``B, D``, ``B and D``), all of them and no
  other; some of them and no other are an F1 of .25 (L-Eval's rule, An et al. 2023).
- `structured`: equal JSON values, keys in any order; F1 over (path, value) leaves; every accepted
  leaf is there.

- `typed`: by the kind of the accepted answer (number, date, label, span ...), wherever the reply
  states it (`typed`).
- `auto`: what each example's corpus says: its benchmark's own rule (`published_rules`), `choice`
  for lettered options, else `text`.

Any other name is an entry point of the group `contextcliff.scorers`: a callable
`(answer: str, accepted: Sequence[str]) -> float | Scores`, where a float is the value of all three.

Left out on purpose: executing code that a model wrote. That needs a sandbox, which this project
does not have; score such answers elsewhere and bring the scores (`contextcliff analyze`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.scoring.answer_letter import chosen_letter, chosen_letters, single_letter
from contextcliff_dagster.scoring.containment import contained
from contextcliff_dagster.scoring.normalize import spaced_text
from contextcliff_dagster.scoring.parse import ParsedAnswer, canonical_json, load_json
from contextcliff_dagster.scoring.squad import exact_match, token_f1

ENTRY_POINT_GROUP = "contextcliff.scorers"
RELATIVE_TOLERANCE = Decimal("1e-9")
"""Two numbers are one where they differ by at most this share of the accepted one; whole numbers,
which may be identifiers, only where they are equal."""

_LETTER = re.compile(r"[A-Za-z]")
_LETTERS = re.compile(r"[A-H](?:(?:\s*[,;/&]\s*|\s+and\s+|\s*)[A-H])+")
_OPTIONS = "ABCDEFGH"
"""Of a question with more, the accepted letter: without it, "I" is the pronoun."""
_SOME_OF_SEVERAL = 0.25
AUTO, TYPED = "auto", "typed"


class Scores(NamedTuple):
    """The three scores of one answer, each 0..1."""

    em: float
    f1: float
    contained: float


Scorer = Callable[[ParsedAnswer, Sequence[str]], Scores]


def score_text(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
    """SQuAD exact match and token F1 of the answer; containment in the whole output."""
    inside = contained(parsed.visible, accepted)
    if parsed.text is None:
        return Scores(0.0, 0.0, inside)
    em = exact_match(parsed.text, accepted)
    return Scores(em, token_f1(parsed.text, accepted), max(em, inside))


def score_numeric(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
    """Numbers by value: "1,200.0", "1200" and "1.2e3" are one. Units and words do not count."""
    given = numbers(parsed.text or "")
    seen = numbers(parsed.visible)
    return _best(_numeric(given, seen, numbers(gold)) for gold in accepted)


def score_choice(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
    """The chosen letter where one is accepted, or the option's text, as `score_text` scores it.

    A letter counts as chosen only where the answer says so: "a" is inside many a wrong one. Where
    it says so of none, the accepted letter counts if it is the only one in the answer.
    """
    for gold in accepted:
        if (right := _several_letters(gold)) and (given := chosen_letters(parsed.text or "")):
            em = float(given == right)
            return Scores(em, max(em, _SOME_OF_SEVERAL * (given < right)), em)
    letters = {gold.strip().upper() for gold in accepted if _LETTER.fullmatch(gold.strip())}
    options = _OPTIONS + "".join(letters)
    letter = chosen_letter(parsed.text or "", options) if letters else None
    if letter is None and (single := single_letter(parsed.text or "", options)) in letters:
        letter = single
    if letter is None:
        texts = [gold for gold in accepted if not _LETTER.fullmatch(gold.strip())]
        return score_text(parsed, texts)
    # Where another was chosen, it is wrong whatever texts it weighed on the way.
    return Scores(*[float(letter in letters)] * 3)


def _several_letters(gold: str) -> frozenset[str]:
    """The letters of an answer such as ``BD`` or ``B and D``; in their order, unlike most words."""
    if not _LETTERS.fullmatch(gold.strip()):
        return frozenset()
    letters = re.findall("[A-H]", gold)
    return frozenset(letters) if letters == sorted(set(letters)) else frozenset()


def score_structured(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
    """JSON by value. An output or accepted answer that is no JSON counts as that string."""
    if parsed.text is None:
        return Scores(0.0, 0.0, 0.0)
    value = parsed.value if parsed.value is not None else _json_or_string(parsed.text)
    try:
        given = Counter(_leaves(value))
    except RecursionError:  # parsed, but nested deeper than any answer
        return Scores(0.0, 0.0, 0.0)
    return _best(_structured(given, Counter(_leaves(_json_or_string(gold)))) for gold in accepted)


BUILT_IN: dict[str, Scorer] = {
    AUTO: score_text,
    TYPED: score_text,
    "text": score_text,
    "numeric": score_numeric,
    "choice": score_choice,
    "structured": score_structured,
}


def scorer_names() -> list[str]:
    """Return the names of the scorers there are, the built-in ones first."""
    return [*BUILT_IN, *sorted(entry.name for entry in entry_points(group=ENTRY_POINT_GROUP))]


def open_scorer(name: str) -> Scorer:
    """The scorer called `name`: built in, or an entry point of `contextcliff.scorers`; of `auto`
    and `typed` the one of examples of which nothing is known.

    Raises:
        StudyError: no scorer has that name, or its package cannot be imported.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    custom = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in custom:
        raise StudyError(
            f"There is no scorer {name!r}: choose one of {', '.join(scorer_names())}, or install "
            f"a package with an entry point of that name in the group {ENTRY_POINT_GROUP!r}."
        )
    try:
        function = custom[name].load()
    except Exception as error:
        raise StudyError(
            f"Scorer {name!r} ({custom[name].value}) cannot be imported: {error}; fix or "
            "reinstall its package."
        ) from error
    return _custom_scorer(name, function)


def _custom_scorer(name: str, function: Callable[[str, Sequence[str]], Any]) -> Scorer:
    def score(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
        if parsed.text is None:
            return Scores(0.0, 0.0, 0.0)
        try:
            result = function(parsed.text, accepted)
            scores = Scores(*map(float, result if isinstance(result, tuple) else (result,) * 3))
        except Exception as error:
            raise StudyError(
                f"Scorer {name!r} failed on the answer {parsed.text[:60]!r}: "
                f"{type(error).__name__}: {error}; fix it, no call is repeated."
            ) from error
        if not all(0.0 <= value <= 1.0 for value in scores):
            raise StudyError(
                f"Scorer {name!r} gave {tuple(scores)} for the answer {parsed.text[:60]!r}: "
                "scores lie between 0 and 1."
            )
        return scores

    return score


# Bounded repeats: a number of more digits than any quantity has is digits, not a number.
_NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?(?:\d{1,3}(?:,\d{3}){1,20}|\d{1,400})(?:\.\d{1,400})?"
    r"(?:[eE][-+]?\d{1,3})?(?!\d)(?!\.\d)"
)


def numbers(text: str) -> list[Decimal]:
    """The numbers in `text`, in order: signs, decimals, exponents, commas between thousands.

    >>> numbers("from -3 to 1,250.5, or 2e3")
    [Decimal('-3'), Decimal('1250.5'), Decimal('2E+3')]
    """
    found = _NUMBER.finditer(spaced_text(text))  # a Chinese word may touch its number
    return [Decimal(m[0].replace(",", "").replace("\u2212", "-")) for m in found]


def _same_number(given: Decimal, gold: Decimal) -> bool:
    if given == given.to_integral_value() and gold == gold.to_integral_value():
        return given == gold
    return abs(given - gold) <= RELATIVE_TOLERANCE * abs(gold)


def _numeric(given: Sequence[Decimal], seen: Sequence[Decimal], gold: Sequence[Decimal]) -> Scores:
    if not gold:
        return Scores(0.0, 0.0, 0.0)
    shared = _shared(given, gold)
    em = float(shared == len(gold) == len(given))
    inside = float(_shared(seen, gold) == len(gold))
    return Scores(em, _f1(shared, len(given), len(gold)), max(em, inside))


def _shared(given: Sequence[Decimal], gold: Sequence[Decimal]) -> int:
    left = list(given)
    for number in gold:
        twin = next((i for i, other in enumerate(left) if _same_number(other, number)), None)
        if twin is not None:
            del left[twin]
    return len(given) - len(left)


def _json_or_string(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError:
        return text


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every scalar of a JSON value with the path to it; an empty container is a leaf."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{canonical_json(key)}")
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    elif isinstance(value, float) and value.is_integer() and math.isfinite(value):
        yield path, canonical_json(int(value))  # JSON has one kind of number: 3.0 is 3
    else:
        yield path, canonical_json(value)


def _structured(given: Counter[tuple[str, str]], gold: Counter[tuple[str, str]]) -> Scores:
    shared = sum((given & gold).values())
    return Scores(
        float(given == gold),
        _f1(shared, given.total(), gold.total()),
        float(shared == gold.total()),
    )


def _f1(shared: int, given: int, gold: int) -> float:
    return 2 * shared / (given + gold) if shared else 0.0


def _best(scores: Iterator[Scores]) -> Scores:
    columns = list(zip(*scores, strict=True))
    return Scores(*map(max, columns)) if columns else Scores(0.0, 0.0, 0.0)
