"""What a reader of the result must know of the log, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from contextcliff_dagster.score_files.logs.answers import Log

_MANY_LEFT_OUT = 0.05


@dataclass(frozen=True, slots=True)
class Tally:
    """How much of a log was used, and by which rules."""

    answers: int
    used: int
    examples: int
    left_out: Mapping[str, int]
    rule: str
    tokenizer: str
    of_prompt: bool
    documents_known: bool
    scored_here: str | None


def sentences(log: Log, tally: Tally) -> Iterator[str]:
    """How much was used; what lengths, scores and documents are; and the log's own notes."""
    yield _used(log, tally)
    if tally.rule == "logged":
        yield _LOGGED[log.length_kind]
    elif tally.of_prompt:
        yield (
            f"Lengths are tokens ({tally.tokenizer}) of the whole prompt, instructions and "
            "question included, not of the document alone."
        )
    if tally.scored_here is not None:
        yield (
            f"Scored here: {tally.scored_here} of each answer against the accepted ones, not the "
            f"score that {log.tool} would print."
        )
    if not tally.documents_known:
        yield (
            "The log does not say which answers share a document: intervals assume that no two do."
        )
    elif tally.of_prompt:
        yield (
            "Documents are distinguished by the whole prompt: questions about one document count "
            "as independent, and intervals are too narrow if there are such."
        )
    yield from log.notes


_LOGGED = {
    "prompt tokens": (
        "Lengths are the prompt tokens in the log, by the model's own tokenizer and with "
        "instructions and question, not tokens of the document alone."
    ),
    "words": (
        "Lengths are the words in the log (characters where the text is Chinese), not tokens: read "
        "every number of tokens here, the cap too, as so many words."
    ),
}


def _used(log: Log, tally: Tally) -> str:
    sentence = (
        f"{log.path.name} is a log of {log.tool}: {tally.used:,} of {tally.answers:,} answers used"
    )
    if tally.left_out:
        reasons = sorted(tally.left_out.items(), key=lambda item: (-item[1], item[0]))
        sentence += ", left out: " + ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        if 1 - tally.used / tally.answers > _MANY_LEFT_OUT:
            sentence += " (if these were the long or the hard ones, the result is too good)"
    if tally.examples < tally.used:
        sentence += f"; they repeat {tally.examples:,} examples, and repeats are averaged"
    return f"{sentence}."
