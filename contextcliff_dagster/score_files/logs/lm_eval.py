"""Samples of lm-evaluation-harness: `samples_<task>_<time>.jsonl`, a line for each filter of each
document.

Source of the format: the harness's README (`--log_samples`) and what its versions write. The file
of results next to it (`results_<time>.json`) names the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.score_files.logs.answers import (
    Answer,
    Log,
    chat_text,
    longest_text,
    mapping,
    name_of,
    number,
    texts_of,
)
from contextcliff_dagster.score_files.logs.members import MOST_BYTES, rows

TOOL = "lm-evaluation-harness"

_NO_SCORES = frozenset({
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
    "doc_hash", "prompt_hash", "target_hash", "schema_version",
})  # fmt: skip
_NAME = re.compile(r"samples_(?P<task>.+)_\d{4}-\d\d-\d\dT[^_]*\.jsonl")
_NO_FILTER = ("", "none")
RULER = "ruler"


def read_samples(path: Path) -> Log:
    """Read the log in a samples file, whose name gives its task and time."""
    match = _NAME.match(path.name)
    answers = (_answer(row) for row in rows(path))
    return Log(path, TOOL, answers, _model(path), task=match["task"] if match else None)


def _answer(row: Mapping[str, Any]) -> Answer:
    document = mapping(row.get("doc"))
    text = longest_text(document)
    filtered = row.get("filtered_resps")
    reply = filtered[0] if isinstance(filtered, list) and filtered else filtered
    reply = reply[0] if isinstance(reply, list) and reply else reply
    variant = name_of(row.get("filter")) or ""
    variant = "" if variant in _NO_FILTER else variant
    return Answer(
        example=name_of(row.get("doc_hash")) or name_of(row.get("doc_id")),
        scores={f"{k},{variant}" if variant else k: v for k, v in _scores(row, document)},
        variant=variant,
        output=reply if isinstance(reply, str) else None,
        accepted=texts_of(document.get("answers")) or texts_of(row.get("target")),
        text=text or _prompt(row.get("arguments")) or None,
        of_prompt=text is None,
    )


def _scores(row: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    metrics = row.get("metrics")
    names = metrics if isinstance(metrics, list) else [n for n in row if n not in _NO_SCORES]
    scores = {str(n): value for n in names if (value := number(row.get(n))) is not None}
    # RULER's tasks have a score per length, named by it: -1 in all but the document's own.
    if scores and all(name.isdigit() for name in scores):
        score = scores.get(str(document.get("max_length")))
        if score is not None and score >= 0:
            yield RULER, score
        return
    yield from scores.items()


def _prompt(arguments: Any) -> str:
    """Return the first request's prompt: a text, or chat messages in JSON form."""
    request = arguments
    if isinstance(arguments, dict):  # since 0.4.5: gen_args_0: {arg_0: prompt, arg_1: ...}
        request = mapping(arguments.get("gen_args_0")).get("arg_0")
    while isinstance(request, list) and request:
        request = request[0]
    if not isinstance(request, str):
        return ""
    if request.startswith("[{"):
        try:
            return chat_text(json.loads(request)) or request
        except ValueError:
            return request
    return request


def _model(path: Path) -> str | None:
    """Return the model named in the same run's results file, next to ``path``."""
    time = path.name.split(".jsonl")[0].rpartition("_")[2]
    results = [path.parent / f"results_{time}.json"]
    if not results[0].is_file():
        results = sorted(path.parent.glob("results_*.json"))
    if len(results) != 1:
        return None
    try:
        if results[0].stat().st_size > MOST_BYTES:
            return None
        run = mapping(json.loads(results[0].read_bytes()))
    except (OSError, ValueError, RecursionError):
        return None
    return name_of(run.get("model_name")) or name_of(mapping(run.get("config")).get("model_name"))
