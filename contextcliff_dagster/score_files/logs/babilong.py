"""Results of BABILong: one CSV per task and size, `qa1_16k_<prompt>.csv`, of `target`, `output` and
in most files `question`.

Source of the format and of the score: `scripts/run_model_on_babilong.py`, `babilong/metrics.py` and
`babilong/collect_results.py` of the BABILong repository (booydar/babilong; Kuratov et al. 2024,
arXiv 2406.10149), whose results are in `babilong_evals/<organisation>/<model>/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from contextcliff_dagster.corpora.benchmarks.babilong import published_rule
from contextcliff_dagster.score_files.columns import Columns, read_columns, stem, texts
from contextcliff_dagster.score_files.logs.answers import Answer, Log
from contextcliff_dagster.scoring.parse import ParsedAnswer
from contextcliff_dagster.scoring.scorers import RULE, scorer_of

TOOL = "BABILong"

_NEEDED = ("target", "output")
_QUESTION = "question"
_NAME = re.compile(r"(?P<task>qa\d{1,2})_(?P<size>\d+)(?P<unit>[kM])(?:_|$)")
_UNITS = {"k": 1 << 10, "M": 1 << 20}
_SCORE = "babilong"
_FOLDER = "babilong_evals"
_NO_QUESTION = (
    "The file has no column 'question', which BABILong's own rule needs: words "
    "named in the question do not count as answers."
)


def is_results(path: Path, head: bytes) -> bool:
    """Return whether the file beginning with ``head`` holds results, by its name and header."""
    if _NAME.match(stem(path)) is None:
        return False
    header = head.partition(b"\n")[0].decode(errors="replace").strip().split(",")
    return set(_NEEDED) <= set(header)


def read_results(path: Path) -> Log:
    """Read a file of results, whose name gives its task and size, as a log."""
    match = _NAME.match(stem(path))
    assert match is not None
    size = int(match["size"]) * _UNITS[match["unit"]]
    columns = read_columns(path, (*_NEEDED, _QUESTION), ())
    folders = path.resolve().parents
    below = len(folders) > 2 and folders[2].name == _FOLDER
    return Log(
        path,
        TOOL,
        _answers(columns, match["task"], size),
        model=f"{folders[1].name}/{folders[0].name}" if below else None,
        task=match["task"],
        length_kind="sizes",
        default_score="contained",
        notes=[
            "BABILong pads its texts to a chosen size: these lengths are manufactured, "
            "and the result says little about documents of natural length.",
            "Labels are matched as whole words; BABILong's script also finds them inside words "
            "(`one` in `none`).",
            *([] if _QUESTION in columns.arrays else [_NO_QUESTION]),
        ],
        no_text="BABILong leaves the documents out of its results",
    )


def _answers(columns: Columns, task: str, size: int) -> Iterator[Answer]:
    questions: list[str | None] = [None] * columns.rows
    if _QUESTION in columns.arrays:
        questions = [text or "" for text in texts(columns, _QUESTION).to_pylist()]
    values = [texts(columns, name).to_pylist() for name in _NEEDED]
    for row, (target, output, question) in enumerate(zip(*values, questions, strict=True)):
        answer = output or ""
        scores = {}
        has_rule = target and question is not None
        rule = published_rule(task, question) if has_rule else None
        if rule is not None:
            scores[_SCORE] = scorer_of({RULE: rule})(ParsedAnswer(answer, answer), [target]).f1
        name = f"{size}/{row}"  # every size has its own texts
        yield Answer(
            example=name,
            scores=scores,
            output=answer,
            accepted=[target] if target else [],
            document=f"{task}/{name}",
            length=size or None,
            error=None if size else "at 0k, the facts without filler, whose length is not given",
        )
