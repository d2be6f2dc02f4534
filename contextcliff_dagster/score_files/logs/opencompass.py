"""Results and predictions of OpenCompass: `results/<model>/<dataset>.json` with `details`, and
`predictions/<model>/<dataset>.json`.

Source of the formats: `opencompass/tasks/openicl_eval.py` (`format_details`),
`openicl/icl_evaluator/icl_base_evaluator.py` (`evaluate`) and
`openicl/icl_inferencer/icl_base_inferencer.py` (`save_results`) of OpenCompass. A file of
predictions is an object of `{"origin_prompt", "prediction", "gold"}` by number; of answers chosen
by perplexity it has `{"label: A": {"prompt", "PPL"}, ...}` for the prompt. `details` is such
an object of `{"predictions", "references", "correct", ...}`, or a list, where `dataset.n` runs make
every value a list of n.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.columns import stem
from contextcliff_dagster.score_files.logs.answers import (
    Answer,
    Log,
    mapping,
    number,
    prompt_text,
    texts_of,
)
from contextcliff_dagster.score_files.logs.members import walk

TOOL = "OpenCompass"
MARKS = (b'"origin_prompt"', b'"prediction"', b'"label: ')
"""Names of members, at least one of which is in every file of predictions."""

_RESULTS, _PREDICTIONS = "results", "predictions"
_OUTPUTS = ("pred", "predictions", "prediction", "origin_prediction")
"""Names for an answer's text: the scored form first, then the original form."""
_ACCEPTED = ("references", "answer", "answers", "gold")
_NO_SCORES = frozenset((*_OUTPUTS, *_ACCEPTED, "idx", "index", "id", "type", "prompt"))
_LONGEST_LIST = 10_000
_CUT = (
    "OpenCompass may cut prompts at a model's max_seq_len and does not record which: a drop at the "
    "longest ones may be due to the cut."
)


def read_results(path: Path) -> Log:
    """Read the log in a results file; its texts are in the same run's predictions."""
    return _log(path, [path], _of_run(path, _PREDICTIONS))


def read_predictions(path: Path) -> Log:
    """Read the log in a predictions file, with the scores from the same run's results."""
    return _log(path, _of_run(path, _RESULTS), [path])


def summary_error(path: Path) -> ScoreFileError:
    """Return the error for a results file without details."""
    return ScoreFileError(
        f"{path} is a file of results of {TOOL} without single answers: run it with "
        f"--dump-eval-details, or name {_PREDICTIONS}/<model>/{path.name}, whose answers are "
        "scored here."
    )


def _log(path: Path, results: list[Path], predictions: list[Path]) -> Log:
    folder = path.resolve().parent
    return Log(
        path,
        TOOL,
        _answers(results, predictions),
        model=folder.name if folder.parent.name in (_RESULTS, _PREDICTIONS) else None,
        task=stem(path),
        notes=[_CUT],
        no_text=f"OpenCompass keeps the prompts in {_PREDICTIONS}/<model>/, which is not there",
    )


def _of_run(path: Path, folder: str) -> list[Path]:
    """Return the file with the same name in the run's ``folder``, or its parts; empty if none."""
    folder_path = path.resolve().parent
    place = folder_path.parent.with_name(folder) / folder_path.name
    if (file := place / path.name).is_file():
        return [file]
    parts: list[Path] = []
    while (part := place / f"{path.stem}_{len(parts)}{path.suffix}").is_file():
        parts.append(part)
    return parts


def _answers(results: list[Path], predictions: list[Path]) -> Iterator[Answer]:
    runs = [run for path in results for run in _runs(_details(path))]
    details = [entry for run in runs for entry in run]
    examples = len(runs[0]) if runs else 0
    if predictions and not (details and "prompt" in details[0]):
        for row, predicted in enumerate(_predictions(predictions)):
            detail = details[row] if row < len(details) else {}
            yield _answer(row % examples if examples else row, detail, predicted)
    else:
        for row, detail in enumerate(details):
            yield _answer(row % examples, detail, {})


def _details(path: Path) -> list[Mapping[str, Any]]:
    """Return the details in a results file, in order."""
    details: list[Mapping[str, Any]] = []
    for name, value in walk(path, "details"):
        if name != "details" or not isinstance(value, dict):
            continue
        # An object of details by number, or one detail of a list.
        numbered = [detail for key, detail in value.items() if key.isdigit()]
        details += [detail for detail in numbered or [value] if isinstance(detail, dict)]
    return details


def _runs(details: list[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return each run's details: with several runs, every value is a list with one item per run."""
    if not all("example_abbr" in row for row in details):
        return [details]
    count = max((len(v) for row in details for v in row.values() if isinstance(v, list)), default=0)
    return [
        [
            {k: v[run] for k, v in row.items() if isinstance(v, list) and run < len(v)}
            for row in details
        ]
        for run in range(count)
    ]


def _predictions(paths: list[Path]) -> Iterator[Mapping[str, Any]]:
    for path in paths:
        for name, value in walk(path):
            if name.isdigit() and isinstance(value, dict):
                yield value


def _answer(example: int, detail: Mapping[str, Any], predicted: Mapping[str, Any]) -> Answer:
    fields = {**predicted, **detail}
    output = next((fields[key] for key in _OUTPUTS if isinstance(fields.get(key), str)), None)
    accepted = (_accepted(fields[key]) for key in _ACCEPTED if key in fields)
    return Answer(
        example=str(example),
        scores={
            key: value
            for key, entry in detail.items()
            if key not in _NO_SCORES and (value := number(entry)) is not None
        },
        output=output,
        accepted=next(filter(None, accepted), ()),
        text=_prompt_of(fields),
        of_prompt=True,
    )


def _accepted(value: Any) -> list[str]:
    """Return the accepted answers; `format_details` writes a list of them in Python syntax."""
    if isinstance(value, str) and value.startswith("[") and len(value) <= _LONGEST_LIST:
        try:
            return texts_of(ast.literal_eval(value))
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return [value]
    return texts_of(value)


def _prompt_of(fields: Mapping[str, Any]) -> str | None:
    """Return an answer's prompt; if chosen by perplexity, the prompt of the first label."""
    if text := prompt_text(fields.get("prompt", fields.get("origin_prompt"))):
        return text
    labels = (*mapping(fields.get("origin_prediction")).values(), *fields.values())
    prompts = (prompt_text(mapping(label).get("prompt")) for label in labels)
    return next(filter(None, prompts), None)
