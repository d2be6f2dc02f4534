"""Scores of replies: the value in a reply, right or wrong, by how much, and why.

The number or the value is extracted by strict rules, the same for every format:

1. Closed reasoning blocks, end markers and a repeated answer prefix are no part of the reply
   (`scoring.parse`). Where a line begins with ``Answer:``, only the text after the last such
   marker counts; the text before it is the thought.
2. Identifiers are read as one name in either form: ``WH-0042`` is ``Warehouse 42``. Their digits
   are no numbers, nor are those of dates and times.
3. Numbers are written in digits, with a sign, with thousands separated by commas, spaces,
   apostrophes or underscores: ``1,234``; ``57.0`` is 57. A reply that is one word from zero to
   twenty is that number. A unit, a sentence or Markdown around it changes nothing.
4. A value is one of those that the question can have, as a whole word, in any case of letters.
5. The same number or value repeated is one answer. Different ones are none: the reply is
   ambiguous, whichever comes first or last.

An exported copy of this file runs alone: it imports nothing of this project.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from contextcliff_dagster.contracts import EVAL_RECORDS, FailureTag
from contextcliff_dagster.scoring.parse import has_content, parse_answer
from contextcliff_dagster.scoring.taxonomy import has_refusing_phrase, is_only_a_refusal

if TYPE_CHECKING:
    from contextcliff_dagster.contracts import Example

MARKER = "Answer:"
"""Where reasons come first, the last line begins with it."""
EXTRACTION_VERSION = "1"
"""Raise it when the same reply would give another answer."""

Problem = Literal["none", "ambiguous"]
_IDENTIFIERS = {"warehouse": "WH", "entity": "E", "node": "N"}
_NAMED = re.compile(r"\b(warehouse|entity|node)\s+#?(\d{1,9})\b", re.IGNORECASE)
_CODED = re.compile(r"\b(WH|SKU|E|N)-(\d{1,9})\b", re.IGNORECASE)
_MARKED = re.compile(
    rf"^[\s>#*_`-]*(?:final\s+)?{MARKER[:-1]}[*_`]*\s*:", re.IGNORECASE | re.MULTILINE
)
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_TIMES = re.compile(
    rf"\b\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?Z?)?\b|\b\d{{1,2}}:\d\d(?::\d\d)?\b"
    rf"|\b(?:{_MONTHS})\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?\b",
    re.IGNORECASE,
)
_SPACES = ",_'\u2019 \u00a0\u2009\u202f"
_NUMBER = re.compile(
    rf"(?<![\w.])([-\u2212\u2013+]?)(\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?!\d)|\d+)(\.\d+)?(?!\w)"
)
_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
).split()


class Extracted(NamedTuple):
    """The answer in a reply, or the ``problem``; ``thought``: what comes before its marker."""

    answer: str | None
    thought: str | None = None
    problem: Problem | None = None


def extract_answer(
    reply: str, form: Literal["number", "value"], choices: Sequence[str] = ()
) -> Extracted:
    """Return the answer of a reply in the benchmarks' form.

    Args:
        reply: what the model wrote, without closed reasoning blocks.
        form: a number (in digits) or one of ``choices``.
        choices: values that the question can have: names, identifiers, or numbers in digits.
    """
    thought, text = _split(reply)
    if form == "number":
        answers = set(numbers_in(text))
    elif choices and all(_CODED.fullmatch(choice) for choice in choices):
        # Only the kind that is asked for: the question names other kinds, too.
        kinds = {choice.partition("-")[0].upper() for choice in choices}
        answers = {name for name in identifiers_in(text) if name.partition("-")[0] in kinds}
    elif choices and all(choice.isdecimal() for choice in choices):
        answers = set(numbers_in(text))
    else:
        answers = set(_named(text, choices))
    if len(answers) == 1:
        return Extracted(answers.pop(), thought)
    return Extracted(None, thought, "ambiguous" if answers else "none")


def identifiers_in(text: str) -> list[str]:
    """Return the identifiers of a text in the records' form, with repetitions.

    >>> identifiers_in("Warehouse 42 (wh-0042), node 7")
    ['WH-0042', 'WH-0042', 'N-0007']
    """
    identifiers = [
        (match.start(), _IDENTIFIERS[match[1].lower()], match[2]) for match in _NAMED.finditer(text)
    ]
    identifiers += [(match.start(), match[1].upper(), match[2]) for match in _CODED.finditer(text)]
    return [f"{kind}-{int(number):04d}" for _, kind, number in sorted(identifiers)]


def numbers_in(text: str) -> Iterator[str]:
    """Yield the numbers of a text in digits, except in identifiers, dates and times.

    >>> list(numbers_in("At 12:00:00 SKU-0017 had 1,234 units, later -3.50"))
    ['1234', '-3.5']
    """
    if (word := text.strip(" \t\n.!*`\"'").lower()) in _WORDS:
        yield str(_WORDS.index(word))
        return
    for other in (_CODED, _NAMED, _TIMES):
        text = other.sub(" ; ", text)
    for sign, whole, fraction in _NUMBER.findall(text):
        digits = int(re.sub(rf"[{_SPACES}]", "", whole))
        minus = (
            "-" if sign in ("-", "\u2212", "\u2013") and (digits or fraction.strip(".0")) else ""
        )
        yield f"{minus}{digits}{fraction.rstrip('0').rstrip('.')}"


def _split(reply: str) -> tuple[str | None, str]:
    marked = list(_MARKED.finditer(reply))
    if not marked:
        return None, reply
    last = marked[-1]
    return reply[: last.start()].strip() or None, reply[last.end() :]


def _named(text: str, choices: Sequence[str]) -> Iterator[str]:
    for other in (_CODED, _NAMED):
        text = other.sub(" ; ", text)
    for choice in choices:
        if re.search(rf"(?<!\w){re.escape(choice)}(?!\w)", text, re.IGNORECASE):
            yield choice


_SCORES = ("em", "f1", "contained", "score")
_CUT = frozenset({"length", "max_tokens", "max_output_tokens"})
_FILTERED = frozenset({"content_filter", "refusal", "safety"})
_WINDOW = 300

OF_DOCUMENT = (
    *("benchmark", "format", "scale", "scale_tokens", "seed", "arm", "document_key", "records"),
    *("needed", "question_kind", "hops"),
)
"""Columns that an example brings along, in its metadata."""


def score_rows(
    rows: Iterable[Mapping[str, Any]],
    examples: Mapping[str, Example],
    documents: Callable[[str], str],
    answer_prefix: str = "",
) -> list[dict[str, Any]]:
    """Score rows of predictions; return rows of `tables.UTILIZATION_RECORDS` in the same order.

    Args:
        rows: with the columns of `contracts.PREDICTIONS`.
        examples: by example id; their metadata has `OF_DOCUMENT`, ``form`` and ``choices``.
        documents: document id -> text; asked only where an answer is wrong.
        answer_prefix: how the recipe began the reply; removed where a server repeats it.
    """
    call_columns = [name for name in EVAL_RECORDS.column_names if name not in _OF_SCORING]

    @lru_cache(maxsize=2)
    def stated(document_id: str) -> frozenset[str]:
        return stated_in(documents(document_id))

    records = []
    for row in rows:
        example = examples[str(row["example_id"])]
        known = example.metadata
        record = {name: row.get(name) for name in call_columns}
        record |= {name: known[name] for name in OF_DOCUMENT} | {"expected": example.answers[0]}
        record |= dict.fromkeys(_SCORES) | {"scorer_version": f"utilization {EXTRACTION_VERSION}"}
        if (no_answer := row.get("no_answer")) is not None:
            records.append(record | {"failure": no_answer})
            continue
        parsed = parse_answer(row.get("raw_output"), answer_prefix=answer_prefix)
        visible, given = parsed.visible, Extracted(None, problem="none")
        if parsed.text is not None:  # else empty, or it ends inside its reasoning
            given = extract_answer(visible, known["form"], known["choices"])
        right = given.answer == example.answers[0]
        tag = None
        if not right:
            reason = "length" if parsed.text is None else row.get("finish_reason")
            tag = _tag(given, visible, reason, stated, example.document_id)
        margin = _margin(given.answer, example.answers[0]) if known["form"] == "number" else None
        record |= dict.fromkeys(_SCORES, float(right)) | {
            "parsed_answer": given.answer,
            "failed": not right,
            "failure": tag and tag.value,
            "margin_abs": margin,
            "margin_rel": margin and margin / max(1.0, abs(float(example.answers[0]))),
            "thought": given.thought,
        }
        records.append(record)
    return records


def stated_in(text: str) -> frozenset[str]:
    """Return the sources of wrong answers in a text: its numbers, words and identifiers."""
    words = re.findall(r"[^\W\d_]+|\d+", text)
    return frozenset({str(int(word)) if word.isdecimal() else word.lower() for word in words})


def _tag(
    found: Extracted,
    visible: str,
    finish_reason: str | None,
    stated: Callable[[str], frozenset[str]],
    document_id: str,
) -> FailureTag:
    """The first that fits, in the order of the house's tags.

    A reply with several numbers has not the form that was asked for: `instruction_drift`. A wrong
    number is `wrong_evidence` where the document states it, else `hallucination`: for a sum, a
    number that no record states is one that was worked out wrongly.
    """
    if not has_content(visible):
        return FailureTag.EMPTY
    if found.answer is None:
        if finish_reason in _FILTERED or is_only_a_refusal(visible):
            return FailureTag.REFUSAL
        if found.problem == "none" and has_refusing_phrase(visible, _WINDOW):
            return FailureTag.REFUSAL
        cut = finish_reason in _CUT
        return FailureTag.INCOMPLETENESS if cut else FailureTag.INSTRUCTION_DRIFT
    names = identifiers_in(found.answer)
    parts = {str(int(name.partition("-")[2])) for name in names} or {
        found.answer.lstrip("-").lower()
    }
    in_text = parts <= stated(document_id)
    return FailureTag.WRONG_EVIDENCE if in_text else FailureTag.HALLUCINATION


def _margin(answer: str | None, expected: str) -> float | None:
    if answer is None:
        return None
    (right,) = numbers_in(expected)
    return abs(float(answer) - float(right))


_OF_SCORING = {
    *_SCORES,
    *("parsed_answer", "failed", "failure", "scorer_version", "kind", "domain", "source"),
}
