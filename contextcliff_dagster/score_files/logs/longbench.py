"""Predictions of LongBench: version 1 (`pred/<model>/<dataset>.jsonl`) and version 2
(`results/<model>.jsonl`).

Source of the formats: the LongBench repository, `LongBench/pred.py` and `LongBench/eval.py` (Bai
et al. 2023, arXiv 2308.14508), `pred.py` and `result.py` (Bai et al. 2024, arXiv 2412.15204). A
line of version 1 is `pred`, `answers`, `all_classes`, `length`; one of version 2 is the example
with `response`, `pred`, `judge`, and its context cut to 1,000 characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.corpora.benchmarks.item import Item
from contextcliff_dagster.corpora.benchmarks.longbench import (
    MANUFACTURED,
    NATURAL,
    NOT_SCORED,
    published_rule,
)
from contextcliff_dagster.score_files.columns import stem
from contextcliff_dagster.score_files.logs.answers import (
    Answer,
    Log,
    longest_text,
    name_of,
    number,
    texts_of,
)
from contextcliff_dagster.score_files.logs.members import rows
from contextcliff_dagster.scoring.normalize import is_unspaced

TOOL_1, TOOL_2 = "LongBench", "LongBench v2"

_KEPT_CHARACTERS = 1_000
_FIRST_LINE_ONLY = ("trec", "triviaqa", "samsum", "lsht")
_CHINESE = ("multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh")
_CUT = (
    "LongBench cuts prompts beyond a model's limit in the middle and does not say which: a fall "
    "at the longest ones may be the cut."
)


def read_predictions(path: Path) -> Log:
    """Read a version 1 file of predictions, named after its task, as a log."""
    task = stem(path).removesuffix("_e")  # LongBench-E
    unit = _length_unit(next(rows(path)), task)
    return Log(
        path,
        TOOL_1,
        (_prediction(row, task, unit) for row in rows(path)),
        model=path.parent.name if path.parent.parent.name in ("pred", "pred_e") else None,
        task=task,
        length_kind=unit,
        # LongBench splits Chinese into words; here characters are compared.
        own_rule=task not in NOT_SCORED and task != "multifieldqa_zh",
        notes=[_CUT],
        no_text="LongBench leaves the documents out of its predictions",
    )


def read_results(path: Path) -> Log:
    """Read a version 2 results file, named after its model, as a log."""
    return Log(
        path,
        TOOL_2,
        map(_result, rows(path)),
        model=stem(path),
        notes=[_CUT],
        no_text=f"LongBench v2 keeps {_KEPT_CHARACTERS:,} characters of each document",
    )


def _length_unit(row: Mapping[str, Any], task: str) -> str:
    """Return the unit of ``length``: characters for Chinese, else words."""
    if task in _CHINESE:
        return "characters"
    is_known = task in NATURAL or task in MANUFACTURED or task in NOT_SCORED
    text = "".join(texts_of(row.get("answers")))
    return "characters" if not is_known and any(map(is_unspaced, text)) else "words"


def _prediction(row: Mapping[str, Any], task: str, counted: str) -> Answer:
    if (dataset := str(row.get("dataset") or task).removesuffix("_e")) != task:
        if _length_unit(row, dataset) != counted:
            return Answer(error=f"whose lengths do not count {counted} as the first one's does")
        task = dataset
    output = row["pred"] if isinstance(row.get("pred"), str) else None
    if output is not None and task in _FIRST_LINE_ONLY:
        output = output.lstrip("\n").split("\n")[0]
    return Answer(
        example=name_of(row.get("_id")),
        output=output,
        accepted=texts_of(row.get("answers")),
        text=longest_text(row),
        length=number(row.get("length")),
        rule=published_rule(task, Item(row, task)),
    )


def _result(row: Mapping[str, Any]) -> Answer:
    verdict = number(row.get("judge"))
    context = longest_text(row)
    # Of that length it was cut; a file that keeps the whole document has other lengths.
    is_cut = context is None or len(context) <= _KEPT_CHARACTERS
    return Answer(
        example=name_of(row.get("_id")),
        scores={} if verdict is None else {"judge": verdict},
        output=name_of(row.get("pred")) or "",
        accepted=texts_of(row.get("answer")),
        text=None if is_cut else context,
    )
