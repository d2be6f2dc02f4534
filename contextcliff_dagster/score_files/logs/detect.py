"""Which tool wrote a file, by its content; and the file read accordingly."""

from __future__ import annotations

import re
from pathlib import Path

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.columns import opened
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

_HEAD = 1 << 16
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_FIRST_NAME = re.compile(rb'\{\s*"([^"\\]*)"')
_SPEC = re.compile(rb'"eval"\s*:\s*\{')
_DETAILS = re.compile(rb'"details"\s*:\s*[\[{]')
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
    first = _FIRST_NAME.match(head)
    if first is None:
        return babilong.read_results(path) if babilong.is_results(path, head) else None
    if _SPEC.search(head) and b'"status"' in head and b'"run_id"' in head:
        return inspect_ai.read_json(path, options)
    if b'"input_max_length"' in head and first[1] in (b"args", b"data"):
        return helmet.read_results(path)
    if first[1] == b"results" and b'"alias"' in head:
        raise ScoreFileError(
            f"{path} is a file of results of {lm_eval.TOOL}, which has no single answers: name the "
            "samples_*.jsonl next to it (written with --log_samples)."
        )
    if b'"request_states"' in head and first[1] == b"adapter_spec":
        return helm.read_run(path, options)
    if first[1] == b"name" and b'"scenario_spec"' in head:
        raise helm.other_file_error(path)
    if first[1].isdigit() and (b'"origin_prompt"' in head or b'"prediction"' in head):
        return opencompass.read_predictions(path)
    if _DETAILS.search(head):
        return opencompass.read_results(path)
    if path.resolve().parents[1].name == "results" and _NUMBERS_ALONE.fullmatch(head):
        raise opencompass.summary_error(path)
    # Written over several lines, it is one object and not JSON Lines.
    return None if re.match(rb"\{\s*\n", head) else _by_first_row(path, options)


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
