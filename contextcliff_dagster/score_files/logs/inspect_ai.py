"""Logs of inspect_ai: `.eval`, which is a zip of JSON files, or a single JSON file.

Source of the format: the documentation of inspect_ai ("Eval Logs", "Log File Format") and what its
versions write. A `.eval` file holds `header.json` (missing during a run, when `_journal/start.json`
describes it) and `samples/<id>_epoch_<n>.json`; the JSON file holds the members of the header and
all samples in `samples`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import FailureTag, ScoreFileError
from contextcliff_dagster.score_files.logs.answers import (
    Answer,
    Log,
    LogOptions,
    chat_text,
    figure,
    listed,
    longest_text,
    mapping,
    name_of,
    number,
    texts_of,
)
from contextcliff_dagster.score_files.logs.members import ZipMembers, walk

TOOL = "inspect_ai"

_HEADER, _START = "header.json", "_journal/start.json"
_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_ATTACHMENT = "attachment://"
_NO_ANSWER = {
    "model_length": (FailureTag.CONTEXT_OVERFLOW, "longer than the model accepts"),
    "content_filter": (FailureTag.CONTENT_FILTER, "withheld by a content filter"),
}
"""Stop reasons that leave the server's own text or only part of an answer."""
_CLASS = re.compile(r"[A-Za-z_][\w.]{0,60}(?:Error|Exception|Timeout)\b")
_RAISED = re.compile(rf"^{_CLASS.pattern}(?=:|\s*$)", re.MULTILINE)


def read_eval(path: Path, options: LogOptions) -> Log:
    """Read the log in a zip file.

    Raises:
        ScoreFileError: it is broken or not a log, or its run did not succeed and
            ``options.partial`` is not set.
    """
    members = ZipMembers(path)
    head_name = next((name for name in (_HEADER, _START) if name in members.names), None)
    if head_name is None:
        members.close()
        raise ScoreFileError(
            f"{path} is a zip file without {_HEADER}, so not a log of inspect_ai; unpack it and "
            "name the file in it."
        )
    log = Log(path, TOOL)
    head = members.json(head_name)
    samples = [n for n in members.names if n.startswith("samples/") and n.endswith(".json")]
    _take_head(log, mapping(head), len(samples), options)
    log.answers = _of_members(members, samples)
    return log


def read_json(path: Path, options: LogOptions) -> Log:
    """Read the log in a single JSON file; its head is read before the first sample.

    Raises:
        ScoreFileError: for the same reasons as ``read_eval``.
    """
    log = Log(path, TOOL)
    log.answers = _of_object(log, options)
    return log


def _of_members(members: ZipMembers, samples: list[str]) -> Iterator[Answer]:
    with closing(members):
        for sample in map(members.json, samples):
            if isinstance(sample, dict):
                yield _answer(sample)


def _of_object(log: Log, options: LogOptions) -> Iterator[Answer]:
    head: dict[str, Any] = {}
    has_begun = False
    for name, value in walk(log.path, "samples", "reductions"):
        if name == "samples":
            if not has_begun:
                has_begun = True
                _take_head(log, head, None, options)
            if isinstance(value, dict):
                yield _answer(value)
        elif name in ("status", "eval", "error"):
            head[name] = value
    if not has_begun:
        _take_head(log, head, 0, options)


def _take_head(log: Log, head: Mapping[str, Any], count: int | None, options: LogOptions) -> None:
    spec = mapping(head.get("eval"))
    log.model, log.task = name_of(spec.get("model")), name_of(spec.get("task"))
    status = head.get("status", "started")
    if status == "success":
        return
    # Only the error's class: its text may hold the whole request.
    message = str(mapping(head.get("error")).get("message") or "").partition("(")[0]
    cause = f" ({' '.join(message.split())[:80]})" if message else ""
    end = {"cancelled": "was cancelled", "started": "has not ended"}.get(status, f"failed{cause}")
    if not options.partial:
        has = "" if count is None else f" and has {count:,} samples"
        raise ScoreFileError(
            f"{log.path} is the log of a run that {end}{has}: finish it (inspect eval-retry), "
            "or use its answers so far with --partial."
        )
    log.notes.append(
        f"The run of {log.path.name} {end}: the missing answers may be the hardest or longest."
    )


def _answer(sample: Mapping[str, Any]) -> Answer:
    output, metadata = mapping(sample.get("output")), mapping(sample.get("metadata"))
    usage = mapping(output.get("usage"))
    prompt = _prompt(sample)
    document = longest_text(metadata)
    is_quoted = document is not None and document in prompt
    tokens = _prompt_tokens(usage)
    error = "declared invalid" if sample.get("invalidation") else None
    if exception := sample.get("error"):
        error = f"with an error{_class_of(exception)}"
    failure, stopped = _NO_ANSWER.get(str(_choice(output).get("stop_reason")), (None, None))
    return Answer(
        example=name_of(sample.get("id")),
        scores=dict(_scores(sample)),
        output=_completion(output),
        accepted=texts_of(sample.get("target")),
        text=document if is_quoted else prompt or None,
        of_prompt=not is_quoted,
        document=name_of(metadata.get("document_id")),
        length=tokens,
        prompt_tokens=tokens,
        completion_tokens=number(usage.get("output_tokens")),
        error=error or stopped,
        failure=None if error else failure,
        finished_at=name_of(sample.get("completed_at")),
    )


def _prompt_tokens(usage: Mapping[str, Any]) -> float | None:
    """Return the token count of the last call's prompt, including cached tokens.

    Versions and providers differ in whether ``input_tokens`` includes cached tokens: the total
    shows it, and no more tokens than the total can come from a cache.
    """
    names = ("input_tokens", "output_tokens", "total_tokens")
    n_input, n_output, total = (number(usage.get(name)) or 0.0 for name in names)
    kinds = ("read", "write")
    cached = sum(number(usage.get(f"input_tokens_cache_{kind}")) or 0.0 for kind in kinds)
    is_separate = cached > n_input or 2 * (total - n_input - n_output) > cached
    return (n_input + cached * is_separate) or None


def _class_of(error: Any) -> str:
    """Return an error's class in brackets, without its text; empty if it has no class."""
    match = _CLASS.match(str(mapping(error).get("message") or ""))
    classes = _RAISED.findall(str(mapping(error).get("traceback") or ""))
    names = [*classes, *([match[0]] if match else [])]
    return f" ({names[-1]})" if names else ""


def _completion(output: Mapping[str, Any]) -> str | None:
    if isinstance(completion := output.get("completion"), str):
        return completion
    return chat_text([_choice(output).get("message")])


def _choice(output: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(next(iter(listed(output.get("choices"))), None))


def _prompt(sample: Mapping[str, Any]) -> str:
    content = sample.get("input")
    text = content if isinstance(content, str) else chat_text(content)
    if text.startswith(_ATTACHMENT):
        attached = mapping(sample.get("attachments")).get(text.removeprefix(_ATTACHMENT))
        return attached if isinstance(attached, str) else ""
    return text


def _scores(sample: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for scorer, score in mapping(sample.get("scores")).items():
        value = score.get("value") if isinstance(score, dict) else score
        values = value.items() if isinstance(value, dict) else [("", value)]
        for key, raw in values:
            if (number := _score(raw)) is not None:
                yield (f"{scorer}/{key}" if key else str(scorer)), number


def _score(value: Any) -> float | None:
    """Return a value as inspect_ai's own metrics read it: from a letter, word or number."""
    if not isinstance(value, str):
        return number(value)
    if value in _LETTERS:
        return _LETTERS[value]
    return _WORDS[value.lower()] if value.lower() in _WORDS else figure(value)
