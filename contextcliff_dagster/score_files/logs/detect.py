"""Which tool wrote a file, by its content; and the file read accordingly."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.logs import (
    babilong,
    helm,
    helmet,
    inspect_ai,
    lm_eval,
    longbench,
    opencompass,
)
from contextcliff_dagster.score_files.logs.answers import Log, LogOptions
from contextcliff_dagster.score_files.logs.collect import collect
from contextcliff_dagster.score_files.logs.json_walk import rows
from contextcliff_dagster.score_files.records import ScoreRecords
from contextcliff_dagster.score_files.row_parsers import BOM
from contextcliff_dagster.score_files.unpacking import opened

_HEAD = 1 << 16
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+("|\Z)|[{}\[\]]', re.DOTALL)
_DETAILS = re.compile(rb'\[\s*[{\]]|\{\s*(\}|"(type|\d+)"\s*:)')
_NUMBERS_ALONE = re.compile(rb'\{\s*("[^"\\]*"\s*:\s*-?[\d.eE+-]+\s*,?\s*)+\}\s*')


def read_log(path: Path, options: LogOptions) -> ScoreRecords | None:
    """The records of ``path`` where it is the log of another tool; None where it is none.

    Raises:
        ScoreFileError: it is a log, and cannot be used.
    """
    try:
        with opened(path) as file:
            head: bytes = file.read(_HEAD)
        log = _opened_log(path, head, options)
        return None if log is None else collect(log, options)
    except OSError as error:
        # A file that is not there, a folder: the reader of plain files says so better.
        if not path.is_file():
            return None
        raise ScoreFileError(f"{path} cannot be read: {error.strerror or error}.") from error


def _opened_log(path: Path, head: bytes, options: LogOptions) -> Log | None:
    if head.startswith(_ZIP):
        return inspect_ai.read_eval(path, options)
    head = head.removeprefix(BOM).lstrip()
    if head.startswith(b"["):
        return _by_first_row(path, options)
    members, after = _members(head)
    first = next(iter(members), None)
    if first is None:
        return babilong.read_results(path) if babilong.is_results(path, head) else None
    if after.strip():  # JSON Lines: what a row holds says nothing of the file
        return _by_first_row(path, options)
    if members.get(b"eval", b"").startswith(b"{") and b"status" in members and b'"run_id"' in head:
        return inspect_ai.read_json(path, options)
    of_helmet = first in (b"args", b"data") and members[first][:1] in (b"{", b"[")
    if of_helmet and b'"input_max_length"' in head:
        return helmet.read_results(path)
    if first == b"results" and b'"alias"' in head:
        raise ScoreFileError(
            f"{path} is a file of results of {lm_eval.TOOL}, which has no single answers: name the "
            "samples_*.jsonl next to it (written with --log_samples)."
        )
    if b"request_states" in members and first == b"adapter_spec":
        return helm.read_run(path, options)
    if first == b"name" and b"scenario_spec" in members:
        raise helm.other_file_error(path)
    numbered = first.isdigit() and members[first].startswith(b"{")
    if numbered and any(name in head for name in opencompass.MARKS):
        return opencompass.read_predictions(path)
    of_results = path.resolve().parent.parent.name == "results" and b"length_tokens" not in members
    if of_results and _NUMBERS_ALONE.fullmatch(head):
        raise opencompass.summary_error(path)
    # Written over several lines, it is one object and not JSON Lines.
    one_object = re.match(rb"\{\s*\n", head) is not None
    log = None if one_object else _by_first_row(path, options)
    if log is None and _DETAILS.match(members.get(b"details", b"")):
        alone = one_object or next(islice(rows(path), 1, None), None) is None
        return opencompass.read_results(path) if alone else None
    return log


def _members(head: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """The names of the object that ``head`` begins with -> how each value begins; and what follows
    the object, where it ends in ``head``."""
    members: dict[bytes, bytes] = {}
    depth = 0
    for token in _TOKEN.finditer(head) if head.startswith(b"{") else ():
        if token[0].startswith(b'"'):
            colon = head[token.end() : token.end() + 80].lstrip()
            if depth == 1 and colon.startswith(b":"):
                members[token[0][1:-1]] = colon[1:].lstrip()
            continue
        depth += 1 if token[0] in b"{[" else -1
        if depth == 0:
            return members, head[token.end() :]
    return members, b""


def _by_first_row(path: Path, options: LogOptions) -> Log | None:
    try:
        row = next(rows(path), {})
    except ScoreFileError:
        return None  # the reader of plain files says what is wrong
    if "doc_id" in row and ("resps" in row or "filtered_resps" in row):
        return lm_eval.read_samples(path)
    if "instance_id" in row and isinstance(row.get("stats"), list):
        return helm.read_run(path, options)
    if helm.is_other_file(row):
        raise helm.other_file_error(path)
    if {"judge", "pred", "answer"} <= row.keys():
        return longbench.read_results(path)
    if {"pred", "answers"} <= row.keys() and "length_tokens" not in row:
        return longbench.read_predictions(path)
    return None
