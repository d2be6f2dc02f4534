"""Conversion of logged answers to records with one length, score and document each.

A file's content shows which tool wrote it; unusable answers are counted.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.contracts.arrays import Floats
from contextcliff_dagster.contracts.results.json_form import LengthUnit
from contextcliff_dagster.score_files.columns import BOM, opened
from contextcliff_dagster.score_files.logs import helm, inspect_ai, opencompass, row_formats
from contextcliff_dagster.score_files.logs.answers import (
    Answer,
    Lengths,
    Log,
    LogOptions,
    UnusableLogError,
    answers_first,
    digest,
)
from contextcliff_dagster.score_files.logs.members import files_in, rows_of
from contextcliff_dagster.score_files.records import ScoreRecords, moments
from contextcliff_dagster.scoring.containment import (
    MOST_CHARACTERS,
    MOST_QUESTIONS,
    Haystack,
    copied_share,
)
from contextcliff_dagster.scoring.parse import ParsedAnswer, parse_answer
from contextcliff_dagster.scoring.scorers import RULE, scorer_of

_NO_LENGTH = "without a length"
_NO_SCORE = "without a score"
_NO_MODEL = "without a model's name"
_MANY_LEFT_OUT = 0.05
_OBJECTS = (
    "error", "failure", "variant", "example", "document", "digest", "of_prompt", "finished_at",
    "model", "task",
)  # fmt: skip
_NUMBERS = (
    "length", "prompt_tokens", "completion_tokens", "evidence_position", "em", "f1", "contained",
)  # fmt: skip


def collect(path: Path, logs: Sequence[Log], options: LogOptions) -> list[ScoreRecords]:
    """Return the records in ``logs`` of ``path`` by model; notes count the unusable answers.

    Raises:
        ScoreFileError: the log cannot be read, has several scores and none is chosen, or holds
            nothing usable.
    """
    lengths = Lengths(options)
    copied: list[tuple[str, bool]] = []
    table, scores = _tables(logs, options, lengths, copied)
    notes = dict.fromkeys(note for log in logs for note in log.notes)
    log = replace(logs[0], path=path, notes=list(notes))
    if (table["error"] != "").all():
        raise UnusableLogError(_nothing_usable(log, Counter(table["error"])))
    name, scored_here, values = _chosen(log, options, table, scores)
    if options.documents is not None:
        documents = lengths.of_documents(options.documents, set(table["example"].dropna()))
        pairs = [documents.get(example, (None, np.nan)) for example in table["example"]]
        table["document"] = pd.Series([document for document, _ in pairs], dtype=object)
        table["length"] = np.array([length for _, length in pairs], dtype=np.float64)
    is_first = np.ones(len(table), dtype=bool)
    if table["variant"].nunique() > 1:  # a filter's rows score the answers of the others again
        variant = table["variant"].iloc[0] if scored_here else name.partition(",")[2]
        is_first = (table["variant"] == variant).to_numpy()
    no_model = table["model"].isna().to_numpy() & bool(table["model"].notna().any())
    no_length = table["length"].isna().to_numpy()
    reasons = np.select(
        [(table["error"] != "").to_numpy(), np.isnan(values), no_length, no_model],
        [table["error"].to_numpy(), np.full(len(table), _NO_SCORE, object), _NO_LENGTH, _NO_MODEL],
        "",
    )
    is_used = (reasons == "") & is_first
    left_out = Counter(reason for reason in reasons[is_first] if reason)
    if not is_used.any():
        raise UnusableLogError(_nothing_usable(log, left_out))
    is_row = is_used | (is_first & (table["failure"].notna() & table["length"].notna()).to_numpy())
    scale = 1.0 if scored_here or log.is_scaled else options.scale
    score = _of_scale(log, name, np.where(is_used, values, np.nan)[is_row], scale)
    used = table[is_row].reset_index(drop=True)
    frame = _frame(used, score)
    of_prompt = lengths.rule != "documents" and bool(table["of_prompt"].any())
    remarks = _notes(log, frame, lengths, of_prompt, name if scored_here else None)
    logged = lengths.rule == "logged"
    counted: LengthUnit = "prompt" if of_prompt else "document"
    models, tasks = used["model"].dropna().unique(), used["task"].dropna().unique()
    records = ScoreRecords(
        models[0] if len(models) else None,
        frame,
        task=tasks[0] if len(tasks) == 1 else None,
        tokenizer=None if logged else lengths.name,
        score_name=name,
        length_kind=log.length_kind if logged else lengths.name,
        length_unit=_UNITS.get(log.length_kind, "as given") if logged else counted,
        notes=(_usage_note(log, frame.assign(model=used["model"]), left_out), *remarks),
        copied_share=copied_share(copied),
    )
    if len(models) < 2:
        return [records]
    rows_of = frame.groupby(used["model"])
    return [replace(records, model=str(m), frame=f.reset_index(drop=True)) for m, f in rows_of]


def _tables(
    logs: Sequence[Log], options: LogOptions, lengths: Lengths, copied: list[tuple[str, bool]]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a table with one row per answer, and one of the log's own scores, without texts.

    ``copied`` receives the first rows' accepted answers and whether their texts contain them.
    """
    objects: list[list[Any]] = [[] for _ in _OBJECTS]
    numbers = [array("d") for _ in _NUMBERS]  # a third of the memory that lists of floats take
    scores: dict[str, array[float]] = {}
    answers = ((log, answer) for log in logs for answer in answers_first(log.answers))
    for row, (log, answer) in enumerate(answers):
        text = None if answer.text is None else digest(answer.text)
        of_prompt = answer.of_prompt and answer.document is None and text is not None
        document = answer.document or text
        kind = (answer.error or "", answer.failure, answer.variant, answer.example)
        of_log = (answer.model or log.model, answer.task or log.task)
        named = (*kind, document, text, of_prompt, answer.finished_at, *of_log)
        short = 0 < len(answer.text or "") <= MOST_CHARACTERS
        if len(copied) < MOST_QUESTIONS and answer.accepted and short:
            is_copied = any(map(Haystack(answer.text or "").holds, answer.accepted))
            copied.append((answer.accepted[0], is_copied))
        length = None if answer.error and not answer.failure else lengths.of(answer, text)
        tokens = (length, answer.prompt_tokens, answer.completion_tokens, answer.evidence_position)
        for column, value in zip(objects, named, strict=True):
            column.append(value)
        measured = (*tokens, *_scored_here(answer, options, log.own_rule))
        for values, number in zip(numbers, measured, strict=True):
            values.append(np.nan if number is None else number)
        for name, score in answer.scores.items():
            values = scores.setdefault(name, array("d"))
            values.extend(repeat(np.nan, row - len(values)))
            values.append(score)
    if not (rows := len(objects[0])):
        raise ScoreFileError(
            f"{logs[0].path} holds no answers: it is an empty log of {logs[0].tool}."
        )
    for values in scores.values():
        values.extend(repeat(np.nan, rows - len(values)))
    table = {
        name: pd.Series(values, dtype=object)
        for name, values in zip(_OBJECTS, objects, strict=True)
    }
    return (
        pd.DataFrame({**table, **dict(zip(_NUMBERS, map(np.array, numbers), strict=True))}),
        pd.DataFrame({name: np.array(values) for name, values in scores.items()}),
    )


def _scored_here(
    answer: Answer, options: LogOptions, as_logged: bool
) -> tuple[float, float, float]:
    is_needed = options.own_score is not None or not answer.scores
    if not is_needed or answer.output is None or not answer.accepted or answer.error:
        return (np.nan,) * 3
    # A published rule applies to the text in the log, with its labels and reasoning.
    parsed = (
        ParsedAnswer(answer.output, answer.output) if as_logged else parse_answer(answer.output)
    )
    return scorer_of({RULE: answer.rule})(parsed, answer.accepted)


def _chosen(
    log: Log, options: LogOptions, table: pd.DataFrame, scores: pd.DataFrame
) -> tuple[str, bool, Floats]:
    """Return the score's name, whether it is ours, and its value in each row (NaN: none)."""
    candidates = [n for n in scores.columns if log.score_names is None or n in log.score_names]
    names = ", ".join(sorted(candidates)) or "none"
    own_score = options.own_score or (None if candidates or options.metric else log.default_score)
    if own_score is not None:
        if table[own_score].isna().all():
            raise ScoreFileError(
                f"{log.path}: no answer of this {log.tool} log has both an output and accepted "
                f"answers to score it by{_failed_calls(table)}."
            )
        return own_score, True, table[own_score].to_numpy()
    if (metric := options.metric or log.main_score) is not None:
        metric = metric.removesuffix(",none")
        exact_names = [n for n in candidates if n == metric]
        candidates = exact_names or [n for n in candidates if n.partition(",")[0] == metric]
    if len(candidates) != 1:
        problem = f"no score {options.metric!r}" if not candidates else f"{len(candidates)} scores"
        raise ScoreFileError(
            f"{log.path} has {problem}; found: {names}{_failed_calls(table)}. Choose one with "
            "--metric NAME, or score the answers here with --score em, f1 or contained."
        )
    return candidates[0], False, scores[candidates[0]].to_numpy()


def _failed_calls(table: pd.DataFrame) -> str:
    """Return a clause counting the calls without an answer; "" if there are none."""
    errors = Counter(error for error in table["error"] if error)
    error_counts = ", ".join(f"{count:,} {error}" for error, count in errors.most_common())
    return f" (of {len(table):,} answers, left out: {error_counts})" if errors else ""


def _of_scale(log: Log, name: str, values: Floats, scale: float) -> Floats:
    outside = (values < 0) | (values > scale)
    if outside.any():
        hint = "; --scale states the largest, as --scale 100 for percentages" if scale == 1 else ""
        raise ScoreFileError(
            f"{log.path}: {int(outside.sum()):,} values of {name} lie outside "
            f"0..{scale:g} (the first is {values[outside][0]:g}){hint}."
        )
    return values if scale == 1 else np.round(values / scale, 12)


def _frame(used: pd.DataFrame, score: Floats) -> pd.DataFrame:
    frame = pd.DataFrame({"length_tokens": used["length"], "score": score})
    if used["failure"].notna().any():
        frame["failure"] = used["failure"]
    if used["document"].notna().any():
        frame["document_id"] = used["document"]
    if used["example"].notna().any():
        # The same question about another text is another example.
        named = [
            name and "/".join(part for part in (task, name, (text or "")[:16]) if part)
            for task, name, text in used[["task", "example", "digest"]].itertuples(index=False)
        ]
        frame["example_id"] = pd.Series(named, dtype=object)
        repeats = frame.groupby([frame["example_id"], used["model"]], dropna=False)
        frame["replicate"] = repeats.cumcount()
    if used["task"].nunique() > 1:
        frame["task"] = pd.Categorical(used["task"])
    if used["finished_at"].notna().any():
        frame["finished_at"] = moments(used["finished_at"])
    for name in ("prompt_tokens", "completion_tokens", "evidence_position"):
        if used[name].notna().any():
            frame[name] = used[name]
    return frame


def _nothing_usable(log: Log, left_out: Counter[str]) -> str:
    counts = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
    hint = ""
    if _NO_LENGTH in left_out:
        hint = f"{log.no_text}: {log.remedy}" if log.no_text else log.remedy
        hint = f" {hint[0].upper()}{hint[1:]}."
    return f"{log.path}: none of the answers in this {log.tool} log can be used ({counts}).{hint}"


_LOGGED = {
    "prompt tokens": (
        "Lengths are the prompt tokens in the log, by the model's own tokenizer and with "
        "instructions and question, not tokens of the document alone."
    ),
    **{
        unit: f"Lengths are the {unit} in the log, not tokens: read all numbers of tokens here, "
        f"including the cap, as {unit}."
        for unit in ("words", "characters")
    },
    "sizes": (
        "Lengths are the sizes that the benchmark was set to, in tokens as its authors count them, "
        "the same for many answers."
    ),
}
_UNITS: Mapping[str, LengthUnit] = {
    "prompt tokens": "prompt",
    "words": "words",
    "characters": "characters",
}


def _usage_note(log: Log, frame: pd.DataFrame, left_out: Counter[str]) -> str:
    frame = frame[frame["score"].notna()]
    used, answers = len(frame), len(frame) + left_out.total()
    sentence = f"{log.path.name} is a log of {log.tool}: {used:,} of {answers:,} answers used"
    if left_out:
        reasons = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
        sentence += ", left out: " + ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        if 1 - used / answers > _MANY_LEFT_OUT:
            sentence += " (if these were the long or the hard ones, the result is too good)"
    named = "example_id" in frame
    examples = len(frame[["example_id", "model"]].drop_duplicates()) if named else used
    if examples < used:
        sentence += f"; they repeat {examples:,} examples, and repeats are averaged"
    return f"{sentence}."


def _notes(
    log: Log, frame: pd.DataFrame, lengths: Lengths, of_prompt: bool, scored_here: str | None
) -> Iterator[str]:
    """Yield sentences about lengths, scores and documents, and the log's own notes."""
    if lengths.rule == "logged":
        yield _LOGGED[log.length_kind]
    elif of_prompt:
        yield (
            f"Lengths are tokens ({lengths.name}) of the whole prompt, instructions and question "
            "included, not of the document alone."
        )
    if scored_here is not None:
        by_tool = f"by {log.tool}'s rule for this task"
        other = f"not the score that {log.tool} would print"
        yield (
            f"Scored here: {scored_here} of each answer against the accepted ones, "
            f"{by_tool if log.own_rule and scored_here == 'f1' else other}."
        )
    if "document_id" not in frame:
        yield (
            "The log does not say which answers share a document: intervals assume that no two do."
        )
    elif of_prompt:
        yield (
            "Documents are distinguished by the whole prompt: if several questions share one, "
            "they count as independent and the intervals are too narrow."
        )
    yield from log.notes


_HEAD = 1 << 16
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+("|\Z)|[{}\[\]]', re.DOTALL)
_DETAILS = re.compile(rb'\[\s*[{\]]|\{\s*(\}|"(type|\d+)"\s*:)')
_NUMBERS_ALONE = re.compile(rb'\{\s*("[^"\\]*"\s*:\s*-?[\d.eE+-]+\s*,?\s*)+\}\s*')


def read_log(path: Path, options: LogOptions) -> ScoreRecords | None:
    """Return the records of ``path`` if it is another tool's log, else None.

    Raises:
        ScoreFileError: it is a log, and cannot be used, or holds several models.
    """
    found = read_logs(path, options) or []
    if len(found) > 1:
        raise ScoreFileError(f"{path} holds {len(found)} models: read them with `read_scores`.")
    return found[0] if found else None


def read_logs(path: Path, options: LogOptions) -> list[ScoreRecords] | None:
    """Return the records of ``path`` by model if it is a log, or a folder of logs, else None.

    Raises:
        ScoreFileError: it is a log, and cannot be used.
    """
    try:
        logs = _logs(path, options)
        return collect(path, logs, options) if logs else None
    except OSError as error:
        # A missing file: the reader of plain files has the better message.
        if not path.is_file():
            return None
        raise ScoreFileError(f"{path} cannot be read: {error.strerror or error}.") from error


def _logs(path: Path, options: LogOptions) -> list[Log]:
    """Return the log in a file, or those in a folder, where files that are none are left aside."""
    if not path.is_dir():
        return [log] if (log := _opened_log(path, options)) else []
    logs: list[Log] = []
    for file in files_in(path):
        with suppress(UnusableLogError, IsADirectoryError):
            logs += _logs(file, options) if file != path else []
    kinds = sorted({f"{log.tool}, {log.length_kind}" for log in logs})
    if len(kinds) > 1 or any(log.tool in (helm.TOOL, opencompass.TOOL) for log in logs):
        raise ScoreFileError(
            f"{path} holds logs that are not one measurement ({'; '.join(kinds)}): name the files "
            "to read, with --pool."
        )
    return logs


def _opened_log(path: Path, options: LogOptions) -> Log | None:
    with opened(path) as file:
        head: bytes = file.read(_HEAD)
    if head.startswith(_ZIP):
        return inspect_ai.read_eval(path, options)
    head = head.removeprefix(BOM).lstrip()
    members, after = _members(head)
    first = next(iter(members), None)
    if first is not None and not after.strip():  # not JSON Lines, if the first row is short
        has_run = members.get(b"eval", b"").startswith(b"{") and b'"run_id"' in head
        if has_run and b"status" in members:
            return inspect_ai.read_json(path, options)
        if b"request_states" in members and first == b"adapter_spec":
            return helm.read_run(path, options)
        numbered = first.isdigit() and members[first].startswith(b"{")
        if numbered and any(name in head for name in opencompass.MARKS):
            return opencompass.read_predictions(path)
        of_results = path.resolve().parent.parent.name == "results"
        if of_results and b"length_tokens" not in members and _NUMBERS_ALONE.fullmatch(head):
            raise opencompass.summary_error(path)
    try:
        row = next(rows_of(path), None)
    except ScoreFileError:
        row = None  # the reader of plain files reports the error
    if isinstance(row, dict) and "instance_id" in row and isinstance(row.get("stats"), list):
        return helm.read_run(path, options)
    log = row_formats.read_rows(path, row)
    if log is None and _DETAILS.match(members.get(b"details", b"")):
        # Written over several lines, it is one object and not JSON Lines.
        one_object = re.match(rb"\{\s*\n", head) is not None
        alone = one_object or next(islice(rows_of(path), 1, None), None) is None
        return opencompass.read_results(path) if alone else None
    return log


def _members(head: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """Return the names in the object that ``head`` begins with, each with the start of its value,
    and the text after the object if the object ends within ``head``."""
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
