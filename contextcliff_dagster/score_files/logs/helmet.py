"""Results of HELMET: one JSON file per task and length, with `args`, `data` and `metrics`.

Source of the format: `eval.py` of HELMET (Yen et al. 2024, arXiv 2410.02694). An item of `data` is
the example without its context, the output, `input_len` (tokens of the prompt, in the model's own
tokenizer, after cutting) and the item's scores; `metrics` lists the scores' names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.score_files.columns import opened
from contextcliff_dagster.score_files.logs.answers import (
    Answer,
    Log,
    digest,
    name_of,
    number,
    texts_of,
)
from contextcliff_dagster.score_files.logs.members import walk

TOOL = "HELMET"

_LENGTHS = ("input_len", "output_len")
_NAMES = ("id", "_id", "qid", "question_id")


def read_results(path: Path) -> Log:
    """Read the log in a results file."""
    log = Log(path, TOOL, no_text="HELMET leaves the documents out of its results")
    log.answers = _answers(log)
    return log


def _answers(log: Log) -> Iterator[Answer]:
    set_to: float | None = None
    with opened(log.path) as file:
        for name, value in walk(log.path, file, ("data",)):
            if not isinstance(value, dict):
                continue
            if name == "args":
                log.model = name_of(value.get("model_name_or_path"))
                log.task = name_of(value.get("datasets"))
                set_to = number(value.get("input_max_length"))
                size = f" (here {set_to:,.0f} tokens)" if set_to else ""
                log.notes.append(
                    f"HELMET pads its inputs to a chosen length{size} and cuts longer ones: "
                    " these lengths are manufactured, and the result says little about "
                    "documents of natural length."
                )
            elif name == "data":
                yield _answer(value, set_to)
            elif name == "metrics":
                log.score_names = {key for key in value if not key.endswith("_len")}


def _answer(item: Mapping[str, Any], set_to: float | None) -> Answer:
    tokens = number(item.get("input_len"))
    prompt, question = item.get("input_text"), item.get("question")
    name = next((text for key in _NAMES if (text := name_of(item.get(key)))), None)
    if name is None and isinstance(question, str):
        name = digest(question)
    return Answer(
        # The same question at another length is another example.
        example=None if name is None else f"{set_to or 0:g}/{name}",
        scores={
            key: value
            for key, entry in item.items()
            if key not in (*_LENGTHS, *_NAMES) and (value := number(entry)) is not None
        },
        output=item["output"] if isinstance(item.get("output"), str) else None,
        accepted=texts_of(item.get("answer")) or texts_of(item.get("answers")),
        text=prompt if isinstance(prompt, str) and prompt else None,
        of_prompt=True,
        length=tokens,
        prompt_tokens=tokens,
        completion_tokens=number(item.get("output_len")),
    )
