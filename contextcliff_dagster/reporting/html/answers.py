"""Questions and answers in a page: redacted, shortened, and stored once each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting.html.escaping import visible

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.contracts.results import Cliffs

LIMITS = (2_000, 1_000, 500, 250, 120)
"""Characters of a text that a page keeps: the first limit under which all fit into ``_ROOM``."""
_ROOM = 1_200_000
_MARGIN = 500
"""Characters beyond the limit that are searched for secrets: half a key is not seen as one."""


def embedded_answers(
    answers: pa.Table,
    results: Sequence[Cliffs],
    scores: Sequence[str],
    redact: Callable[[str], str],
) -> dict[str, Any]:
    """Return ``examples``, ``given`` (one list of columns a model, as ``results``) and ``limit``.

    ``answers``: `ANSWERS`, of the length profile. An example's question, accepted answers, length
    and place of the evidence are kept once, each answer with the number of its example. Scores and
    lengths are as in `payload_of`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    place = {result.model: number for number, result in enumerate(results)}
    asked = pc.is_in(answers["model"], value_set=pa.array(place, pa.string()))
    rows = answers.filter(pc.and_(asked, pc.is_null(answers["control"]))).to_pydict()
    limit = _limit(rows)

    @cache
    def shown(text: str | None) -> str | None:
        if text is None:
            return None
        # Redacted first: what is cut at the limit must not be half of a secret.
        safe = visible(redact(text[: limit + _MARGIN]))
        return safe if len(text) <= limit else f"{safe[:limit]} […]"

    numbers: dict[str, int] = {}
    examples: dict[str, list[Any]] = {
        name: [] for name in ("x", "position", "question", "accepted")
    }
    given: list[dict[str, list[Any]]] = [
        {name: [] for name in ("example", "answer", "read", "tag", *_of(result, scores))}
        for result in results
    ]
    for i, name in enumerate(rows["example_id"]):
        number = place[rows["model"][i]]
        if name not in numbers:
            numbers[name] = len(numbers)
            question, accepted = rows["question"][i], rows["accepted"][i]
            examples["x"].append(rows["length_tokens"][i])
            examples["position"].append(rounded(rows["evidence_position"][i]))
            examples["question"].append(shown(question))
            examples["accepted"].append(None if accepted is None else [*map(shown, accepted)])
        columns, result = given[number], results[number]
        answer, read = rows["answer"][i], rows["parsed_answer"][i]
        columns["example"].append(numbers[name])
        columns["answer"].append(shown(answer))
        same = read is None or answer is None or read.strip() == answer.strip()
        columns["read"].append(None if same else shown(read))
        columns["tag"].append(rows["failure"][i])
        for score in _of(result, scores):
            column = "score" if score == result.score.name else score
            columns[score].append(rounded(rows[column][i]))
    for columns in given:
        if not any(columns["read"]):
            del columns["read"]
    return {"examples": examples, "given": given, "limit": limit}


def _of(result: Cliffs, scores: Sequence[str]) -> list[str]:
    kept = [name for name in scores if name in ("em", "f1", "contained")]
    return [result.score.name, *(name for name in kept if name != result.score.name)]


def _limit(rows: dict[str, list[Any]]) -> int:
    texts = [text for text in rows["answer"] if text]
    once = {
        row[0]: row
        for row in zip(rows["example_id"], rows["question"], rows["accepted"], strict=True)
    }
    for _, question, accepted in once.values():
        texts += [question or "", *(accepted or ())]
    sizes = [(len(text), len(text.encode(errors="replace"))) for text in texts]
    for limit in LIMITS:
        if sum(size * min(1.0, limit / max(length, 1)) for length, size in sizes) <= _ROOM:
            break
    return limit


def rounded(value: float | None) -> float | int | None:
    """Three digits; 0 and 1 as the integers that they are, null for what is no number."""
    if value is None or value != value:
        return None
    short = round(float(value), 3)
    return int(short) if short in (0.0, 1.0) else short
