"""Benchmark recognition: find out from a file's first records which benchmarks it may belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.readers import rows as tables
from contextcliff_dagster.corpora.readers.rows import JsonStream

ENDINGS = {**tables.ENDINGS, ".train": "jsonl", ".dev": "jsonl", ".test": "jsonl"}
"""Endings of possible benchmark files; QuALITY's JSON Lines files end in ``.dev`` and the like."""
PACKED = (".gz", ".zip", ".zst", ".bz2", ".xz", ".tar", ".tgz", ".7z", ".rar")
"""Endings of compressed files and archives."""
_LOOKED_AT = 3
Record = Mapping[str, Any]


def benchmarks_of(file: Path) -> set[str]:
    """Return the kinds of corpora that could read the file, judged by a few records: none if the
    content does not match the file's ending, otherwise one, or two that share a format."""
    kind = ENDINGS.get(file.suffix.lower())
    if kind is None:
        return set()
    try:
        rows = tables.READERS[kind](file)
        values = _of_json(file) if kind == "json" else (row for _, row in rows)
        records = [value for value in islice(values, _LOOKED_AT) if isinstance(value, Mapping)]
    except (CorpusError, OSError):
        return set()
    if not records:
        return set()
    if file.name == "qaps.csv" and {"document_id", "answer1"} <= set(records[0]):
        return {"narrativeqa"}
    return {name for name, fits in _SIGNS.items() if all(fits(record) for record in records)}


def _of_json(file: Path) -> Iterator[Any]:
    """Yield an array's items; for an object, its ``data`` or, if its members are papers, those."""
    stream = JsonStream(file)
    if not stream.begins_with("{"):
        yield from (value for _, value in stream.values())
        return
    members: dict[str, Any] = {}
    nested = False
    for _, name, value in islice(stream.members({"data"}), 40):
        if isinstance(value, Mapping) and (name == "data" or "qas" in value):
            yield value
            nested = True
        else:
            members[name] = value
    if members and not nested:
        yield members


def _has(*names: str) -> Callable[[Record], bool]:
    return lambda record: record.keys() >= set(names)


def _is_squad(record: Record) -> bool:
    if isinstance(paragraphs := record.get("paragraphs"), list):
        return any(isinstance(part, Mapping) and "qas" in part for part in paragraphs)
    answers = record.get("answers")
    spans = isinstance(answers, Mapping) and {"text", "answer_start"} <= set(answers)
    return spans and "context" in record and "question" in record


def _is_multi_hop(record: Record) -> bool:
    """Return whether the record has HotpotQA's format, which 2WikiMultihopQA shares."""
    context = record.get("context")
    has_titles = isinstance(context, list) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[1], list)
        for pair in context
    )
    columns = isinstance(context, Mapping) and {"title", "sentences"} <= set(context)
    return "question" in record and (has_titles or columns)


def _has_marks_of_two_wiki(record: Record) -> bool:
    kinds = ("compositional", "inference", "bridge_comparison")
    return "evidences" in record or record.get("type") in kinds


def _is_two_wiki(record: Record) -> bool:
    # Only HotpotQA grades its questions (easy, medium, hard), and only it has bridges.
    of_hotpot = bool(record.get("level")) or record.get("type") == "bridge"
    return _is_multi_hop(record) and (_has_marks_of_two_wiki(record) or not of_hotpot)


def _is_narrativeqa(record: Record) -> bool:
    document, question = record.get("document"), record.get("question")
    return isinstance(document, Mapping) and isinstance(question, Mapping) and "answers" in record


def _is_quality(record: Record) -> bool:
    questions = record.get("questions")
    return (
        "article" in record
        and isinstance(questions, list)
        and all(isinstance(question, Mapping) and "options" in question for question in questions)
    )


_SIGNS: dict[str, Callable[[Record], bool]] = {
    "squad": _is_squad,
    "hotpotqa": lambda record: _is_multi_hop(record) and not _has_marks_of_two_wiki(record),
    "2wikimultihopqa": _is_two_wiki,
    "musique": _has("question", "paragraphs", "question_decomposition"),
    "narrativeqa": _is_narrativeqa,
    "quality": _is_quality,
    "qasper": _has("full_text", "qas"),
    "longbench": lambda record: (
        {"input", "context", "answers"} <= record.keys()
        and not record.keys().isdisjoint(("all_classes", "dataset"))
    ),
    "longbench-v2": _has("context", "question", "choice_A", "choice_D", "answer"),
    "longbench-pro": _has("context", "primary_task", "question_nonthinking"),
    "babilong": _has("input", "question", "target"),
    "l-eval": _has("instructions", "outputs", "input"),
}
KNOWN = tuple(_SIGNS)
"""The benchmarks that can be recognised."""
