"""Scorers: what "right" means for a task, as three scores from 0 to 1.

Exact match and token F1 are SQuAD's, each the best over the accepted answers. Source: the official
evaluation scripts of Rajpurkar et al. 2016 (v1.1) and Rajpurkar, Jia and Liang 2018 (v2.0, the F1
of an answer without tokens). With P = |shared| / |output| and R = |shared| / |answer| over bags of
normalised tokens, F1 = 2PR / (P + R). `normalize` defines tokens in scripts without spaces between
words.

One deviation, for the instrument's sake: an accepted answer that normalisation would erase (the
choice "A" is an article, "+" is punctuation) is compared with its articles, and if need be with its
punctuation. The scripts would call an *empty* output right there.

Published rules score a benchmark's tasks that are not free text, each from its own publication. An
example names its rule in ``metadata["scoring_rule"]``, an object with ``name`` and the rule's
parameters; the corpora of benchmarks write it. `f1` is the published score, `em` whether that is 1.

- `share_of_numbers` (LongBench, Bai et al. 2023: passage retrieval and count): of the numbers in
  the output, the share that is the accepted one.
- `labels` (LongBench: trec, lsht), with ``labels``: 1 / the number of labels in the first line, if
  the accepted one is among them; labels that are part of its name do not count.
- `first_line` (LongBench: triviaqa): exact match and token F1 of the first line.
- `only_label` (BABILong, Kuratov et al. 2024), with ``labels``: the first sentence names the
  accepted label or labels (``apple,milk``) and no other, as whole words; the published script
  finds them inside words, too, by which ``none`` names ``one`` and is never right.
- `answer_line`, `any_answer_line` (LongBench Pro, Chen et al. 2026: "Accuracy", "SubEM"): of the
  text after the last ``[Answer]`` the first line, or any, is the accepted answer.
- `closed_apart` (HotpotQA, Yang et al. 2018): as text, but yes, no and "noanswer" share nothing
  with another answer.
- `true_or_false`, `last_number`, `said` (L-Eval, An et al. 2023: sci_fi, gsm100, topic retrieval):
  the first of the two words, before any ``[fact:``; the number after "The answer is", or the last
  of the first paragraph; whether the first line holds the accepted answer, whatever the spaces.

A study names one of these scorers. With each of them the three columns keep their meaning: `em`,
the answer is an accepted one; `f1`, how much of it is shared; `contained`, an accepted answer is
inside the output. `em` never exceeds the other two.

- `text`: equal after SQuAD's normalisation; SQuAD's token F1; whole words inside the output.
- `numeric`: the answer's numbers are the accepted ones, by value; F1 over numbers; the accepted
  numbers are among the output's. Words and units do not count.
- `choice`: the option chosen, by its letter or its text; the text's token F1; the text inside the
  output. If several options are right (``BD``, ``B, D``, ``B and D``), all of them and no other;
  some of them and no other are an F1 of .25 (L-Eval's rule, An et al. 2023).
- `structured`: equal JSON values, keys in any order; F1 over (path, value) leaves; every accepted
  leaf is there.
- `typed`: by the kind of the accepted answer (number, date, label, span ...), wherever the reply
  states it (`typed`).
- `auto`: by each example's corpus: its benchmark's published rule, `choice` for lettered options,
  else `text`.

Any other name is an entry point of the group `contextcliff.scorers`: a callable
`(answer: str, accepted: Sequence[str]) -> float | Scores`, where a float is the value of all three.

Left out on purpose: executing code that a model wrote. That needs a sandbox, which this project
does not have; score such answers elsewhere and bring the scores (`contextcliff analyze`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.scoring.containment import contained
from contextcliff_dagster.scoring.normalize import (
    bare,
    exact_match,
    fold_forms,
    normalize_answer,
    spaced_text,
    token_f1,
)
from contextcliff_dagster.scoring.parse import ParsedAnswer, canonical_json, load_json
from contextcliff_dagster.scoring.stated_answer import chosen_letter, chosen_letters, single_letter


class Scores(NamedTuple):
    """The three scores of one answer, each 0..1."""

    em: float
    f1: float
    contained: float


RULE = "scoring_rule"
_CLOSED = frozenset(("yes", "no", "noanswer"))
_MARK = re.compile(r"\[(?:answer|答案)\]", re.IGNORECASE)
_NONE = Scores(0.0, 0.0, 0.0)


def scorer_of(metadata: Mapping[str, Any]) -> Scorer:
    """Return an example's scorer, as its metadata determine it.

    It is the benchmark's published rule, `choice` if the answer is a lettered option, else `text`.
    An unknown rule is ignored, because it may come from a newer version or a user's own field.
    """
    rule = metadata.get(RULE)
    if isinstance(rule, dict) and (scorer := _RULES.get(str(rule.get("name")))) is not None:
        labels = rule.get("labels")
        label_names = tuple(map(str, labels)) if isinstance(labels, list | tuple) else ()
        return partial(_where_answered, scorer, label_names)
    return score_choice if metadata.get("answer_type") == "multiple_choice" else score_text


_Rule = Callable[[ParsedAnswer, str, Sequence[str]], Scores]


def _where_answered(
    rule: _Rule, labels: Sequence[str], parsed: ParsedAnswer, accepted: Sequence[str]
) -> Scores:
    """Return the best value of each score over the accepted answers."""
    if parsed.text is None or not accepted:
        return _NONE
    return Scores(*map(max, zip(*(rule(parsed, gold, labels) for gold in accepted), strict=True)))


def _whole(right: bool) -> Scores:
    return Scores(*[float(right)] * 3)


def _graded(share: float, inside: bool) -> Scores:
    return Scores(float(share == 1.0), share, float(inside))


def _first_line(parsed: ParsedAnswer) -> str:
    return (parsed.text or "").lstrip("\n").split("\n")[0]


def _share_of_numbers(parsed: ParsedAnswer, gold: str, _: Sequence[str]) -> Scores:
    right = re.findall(r"\d+", fold_forms(gold))[:1]
    given = re.findall(r"\d+", fold_forms(parsed.visible))
    share = sum([number] == right for number in given) / len(given) if given else 0.0
    return _graded(share, share > 0)


def _labels(parsed: ParsedAnswer, gold: str, labels: Sequence[str]) -> Scores:
    line = _first_line(parsed)
    found = [label for label in dict.fromkeys((*labels, gold)) if label in line]
    found = [label for label in found if label == gold or label not in gold]
    return _graded(1 / len(found), True) if gold in found else _NONE


def _only_label(parsed: ParsedAnswer, gold: str, labels: Sequence[str]) -> Scores:
    sentence = re.split(r"\.|<context>|<example>", parsed.visible.lower())[0]
    gold = gold.lower()
    # Directions ("n,e") are one label; objects ("apple,milk") are several.
    gold_set = set(gold.split(",")) if len(gold) > 3 else {gold}
    names = {*map(str.lower, labels), *gold_set}
    found = {label for label in names if re.search(rf"(?<!\w){re.escape(label)}(?!\w)", sentence)}
    return Scores(float(found == gold_set), float(found == gold_set), float(found >= gold_set))


def _answer_line(parsed: ParsedAnswer, gold: str, _: Sequence[str], *, any_line: bool) -> Scores:
    lines = [bare(line) for line in _MARK.split(parsed.visible)[-1].strip().split("\n")]
    return _whole(bare(gold) in (lines if any_line else lines[:1]))


def _closed_apart(parsed: ParsedAnswer, gold: str, _: Sequence[str]) -> Scores:
    scores = score_text(parsed, [gold])
    answer, expected = normalize_answer(parsed.text or ""), normalize_answer(gold)
    is_disjoint = answer != expected and not _CLOSED.isdisjoint((answer, expected))
    return scores._replace(f1=0.0) if is_disjoint else scores


def _true_or_false(parsed: ParsedAnswer, gold: str, _: Sequence[str]) -> Scores:
    text = parsed.visible.lower().split("[fact:")[0]
    match = re.search(r"true|false", text)
    return _whole(match is not None and match[0] == gold.strip().lower())


def _last_number(parsed: ParsedAnswer, gold: str, _: Sequence[str]) -> Scores:
    return _whole(_number_at_end(parsed.visible) == _number_at_end(gold) != "")


def _number_at_end(text: str) -> str:
    match = re.search(r"The answer is (\S+)", text)
    words = [match[1]] if match else text.split("\n\n")[0].split()
    word = next((word for word in reversed(words) if re.search(r"\d", word)), "")
    return re.sub(r"\D", "", word.split(".")[0])


def _said(parsed: ParsedAnswer, gold: str, _: Sequence[str]) -> Scores:
    line = next((line for line in parsed.visible.split("\n") if len(line) > 1), parsed.visible)
    return _whole("".join(gold.lower().split()) in "".join(line.lower().split()))


_RULES: dict[str, _Rule] = {
    "share_of_numbers": _share_of_numbers,
    "labels": _labels,
    "first_line": lambda parsed, gold, _: score_text(
        replace(parsed, text=_first_line(parsed)), [gold]
    ),
    "only_label": _only_label,
    "answer_line": partial(_answer_line, any_line=False),
    "any_answer_line": partial(_answer_line, any_line=True),
    "closed_apart": _closed_apart,
    "true_or_false": _true_or_false,
    "last_number": _last_number,
    "said": _said,
}

ENTRY_POINT_GROUP = "contextcliff.scorers"
RELATIVE_TOLERANCE = Decimal("1e-9")
"""Numbers count as equal if they differ by at most this fraction of the accepted number; whole
numbers, which may be identifiers, must be identical."""

_LETTER = re.compile(r"[A-Za-z]")
_LETTERS = re.compile(r"[A-H](?:(?:\s*[,;/&]\s*|\s+and\s+|\s*)[A-H])+")
_OPTIONS = "ABCDEFGH"
"""Option letters; for longer lists, only the accepted letter is added, because "I" is a pronoun."""
_SOME_OF_SEVERAL = 0.25
AUTO, TYPED = "auto", "typed"
Scorer = Callable[[ParsedAnswer, Sequence[str]], Scores]


def score_text(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
    """Score by SQuAD's exact match and token F1 of the answer, and containment in the output."""
    containment = contained(parsed.visible, accepted)
    if parsed.text is None:
        return Scores(0.0, 0.0, containment)
    em = exact_match(parsed.text, accepted)
    return Scores(em, token_f1(parsed.text, accepted), max(em, containment))


def score_numeric(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
    """Score numbers by value: "1,200.0" equals "1200" and "1.2e3". Ignore units and words."""
    answer_numbers = numbers(parsed.text or "")
    output_numbers = numbers(parsed.visible)
    return _best(_numeric(answer_numbers, output_numbers, numbers(gold)) for gold in accepted)


def score_choice(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
    """Score the chosen letter if a letter is accepted; otherwise score the text.

    A letter counts as chosen only if the answer says so: many wrong answers contain "a". If the
    answer chooses none, the accepted letter counts if it is the only letter there.
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
    # A reply that chose another letter is wrong, whatever option texts it discussed.
    return Scores(*[float(letter in letters)] * 3)


def _several_letters(gold: str) -> frozenset[str]:
    """Return the letters in an answer such as ``BD`` or ``B and D``; they must be in order."""
    if not _LETTERS.fullmatch(gold.strip()):
        return frozenset()
    letters = re.findall("[A-H]", gold)
    return frozenset(letters) if letters == sorted(set(letters)) else frozenset()


def score_structured(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
    """Score JSON by value. An output or accepted answer that is not JSON counts as a string."""
    if parsed.text is None:
        return Scores(0.0, 0.0, 0.0)
    value = parsed.value if parsed.value is not None else _json_or_string(parsed.text)
    try:
        leaves = Counter(_leaves(value))
    except RecursionError:  # parsed, but nested deeper than any answer
        return Scores(0.0, 0.0, 0.0)
    return _best(_structured(leaves, Counter(_leaves(_json_or_string(gold)))) for gold in accepted)


BUILT_IN: dict[str, Scorer] = {
    AUTO: score_text,
    TYPED: score_text,
    "text": score_text,
    "numeric": score_numeric,
    "choice": score_choice,
    "structured": score_structured,
}


def scorer_names() -> list[str]:
    """Return the names of all scorers, the built-in ones first."""
    return [*BUILT_IN, *sorted(entry.name for entry in entry_points(group=ENTRY_POINT_GROUP))]


def open_scorer(name: str) -> Scorer:
    """Return the scorer `name`: a built-in one, or an entry point of `contextcliff.scorers`; `auto`
    and `typed` return the scorer for examples without metadata.

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
                f"{type(error).__name__}: {error}; fix it; no call is repeated."
            ) from error
        if not all(0.0 <= value <= 1.0 for value in scores):
            raise StudyError(
                f"Scorer {name!r} gave {tuple(scores)} for the answer {parsed.text[:60]!r}: "
                "scores lie between 0 and 1."
            )
        return scores

    return score


# Bounded repeats: a run with more digits than any quantity has is not a number.
_NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?(?:\d{1,3}(?:,\d{3}){1,20}|\d{1,400})(?:\.\d{1,400})?"
    r"(?:[eE][-+]?\d{1,3})?(?!\d)(?!\.\d)"
)


def numbers(text: str) -> list[Decimal]:
    """Return the numbers in `text`, in order: signs, decimals, exponents, thousands separators.

    >>> numbers("from -3 to 1,250.5, or 2e3")
    [Decimal('-3'), Decimal('1250.5'), Decimal('2E+3')]
    """
    matches = _NUMBER.finditer(spaced_text(text))  # a Chinese word may touch its number
    return [Decimal(m[0].replace(",", "").replace("\u2212", "-")) for m in matches]


def _same_number(given: Decimal, gold: Decimal) -> bool:
    if given == given.to_integral_value() and gold == gold.to_integral_value():
        return given == gold
    return abs(given - gold) <= RELATIVE_TOLERANCE * abs(gold)


def _numeric(given: Sequence[Decimal], seen: Sequence[Decimal], gold: Sequence[Decimal]) -> Scores:
    if not gold:
        return Scores(0.0, 0.0, 0.0)
    n_shared = _count_shared(given, gold)
    em = float(n_shared == len(gold) == len(given))
    containment = float(_count_shared(seen, gold) == len(gold))
    return Scores(em, _f1(n_shared, len(given), len(gold)), max(em, containment))


def _count_shared(given: Sequence[Decimal], gold: Sequence[Decimal]) -> int:
    remaining = list(given)
    for number in gold:
        twin = next((i for i, item in enumerate(remaining) if _same_number(item, number)), None)
        if twin is not None:
            del remaining[twin]
    return len(given) - len(remaining)


def _json_or_string(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError:
        return text


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every scalar of a JSON value with its path; an empty container is a leaf."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(child, f"{path}.{canonical_json(key)}")
    elif isinstance(value, list) and value:
        for index, child in enumerate(value):
            yield from _leaves(child, f"{path}[{index}]")
    elif isinstance(value, float) and value.is_integer() and math.isfinite(value):
        yield path, canonical_json(int(value))  # JSON has one kind of number: 3.0 is 3
    else:
        yield path, canonical_json(value)


def _structured(given: Counter[tuple[str, str]], gold: Counter[tuple[str, str]]) -> Scores:
    n_shared = sum((given & gold).values())
    return Scores(
        float(given == gold),
        _f1(n_shared, given.total(), gold.total()),
        float(n_shared == gold.total()),
    )


def _f1(shared: int, given: int, gold: int) -> float:
    return 2 * shared / (given + gold) if shared else 0.0


def _best(scores: Iterator[Scores]) -> Scores:
    columns = list(zip(*scores, strict=True))
    return Scores(*map(max, columns)) if columns else Scores(0.0, 0.0, 0.0)
