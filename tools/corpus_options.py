"""Options of each kind of corpus, for docs/studies.md: type, default, meaning, example.

The adapters check their options themselves; a test compares this table with what they accept.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Option(NamedTuple):
    """An option of a corpus; ``default`` is text, empty if there is none."""

    type: str
    default: str
    meaning: str
    example: Any


_TASK = Option("text", "", "Only questions of this kind", "clause")
_TASKS = Option("list", "all", "Only questions of these kinds", ["clause", "date"])
_COLUMNS = Option("mapping", "", "Our columns by the names in the table", {"answers": "Antwort"})
_SEED = Option("number", "0", "Another one chooses others", 1)
_SPLIT = "A number of tokens of the reference tokenizer"

CORPUS_OPTIONS: dict[str, dict[str, Option]] = {
    "folder": {
        "path": Option("path", "needed", "A folder of documents, or one", "contracts"),
        "questions": Option(
            "path or recall", "found in the folder", "Table of questions; recall: made", "recall"
        ),
        "columns": _COLUMNS,
        "task": _TASK,
        "tasks": _TASKS,
        "questions_per_document": Option("number", "5", "Made for recall", 3),
        "recall_question": Option(
            "sentence or beginning", "sentence", "beginning: for prompts that begin so", "beginning"
        ),
        "seed": _SEED,
        "min_characters": Option("number", "0", "Shorter documents are left out", 500),
        "limits": Option("mapping", "", "What reading one file may cost", {"seconds": 20}),
    },
    "file": {
        "path": Option("path", "needed", "The table", "examples.jsonl"),
        "format": Option("text", "by the ending", "jsonl, json, csv, tsv, parquet, arrow", "jsonl"),
        "columns": _COLUMNS,
        "task": Option("text", "question_answering", "Of rows that name none", "lookup"),
        "tasks": _TASKS,
    },
    "python-source": {
        "roots": Option("list", "both", "stdlib, site-packages", ["stdlib"]),
        "path": Option("path", "", "A folder instead of them", "my-project"),
        "kinds": Option("list", "all", "Kinds of questions (docs/corpora.md)", ["constant_value"]),
        "task": Option("text", "", "One kind", "constant_value"),
        "files": Option("number", "2000", "Files that are read at most", 500),
        "documents": Option("number", "all", "Documents that are used at most", 300),
        "questions_per_document": Option("number", "6", "At most", 3),
        "min_bytes": Option("number", "1", "Of a file", 600),
        "max_bytes": Option("number", "1000000", "Of a file", 8000),
        "line_question": Option(
            "sentence or beginning", "sentence", "beginning: for prompts that begin so", "beginning"
        ),
        "seed": _SEED,
    },
    "reference": {
        "documents": Option("number", "1000", "Documents to generate", 500),
        "questions": Option("number", "1", "On each document, of each task", 2),
        "task": Option("lookup or two_hop", "", "One of the two", "lookup"),
        "tasks": Option("list", "both", "Both, or one", ["lookup", "two_hop"]),
        "min_tokens": Option("number", "the shortest", _SPLIT, 200),
        "max_tokens": Option("number", "the longest", _SPLIT, 2000),
        "seed": _SEED,
    },
    "mixed": {
        "parts": Option(
            "list",
            "needed",
            "Two corpora or more, each with kind and options (and a `name` of its own)",
            [{"kind": "reference"}, {"kind": "python-source"}],
        ),
    },
}

BENCHMARK: dict[str, Option] = {
    "path": Option("path", "needed", "A file or folder, as published", "data/corpora/squad"),
    "task": _TASK,
    "tasks": _TASKS,
    "unanswerable": Option("leave_out or ask", "leave_out", "Questions without an answer", "ask"),
    "allow_synthetic_length": Option(
        "true or false", "false", "Use tasks whose lengths were manufactured", True
    ),
}
"""Options of every public benchmark; some benchmarks add their own (`own_options`)."""
