"""Records of single answers: a length and a score a row, and whatever else is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.contracts import UNSCORED_TAGS, ScoreFileError
from contextcliff_dagster.score_files.column_values import (
    lengths,
    need,
    numbers,
    of_scale,
    refuse,
    texts,
)
from contextcliff_dagster.score_files.columns import Columns, read_columns

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Floats

_NAMES = ("document_id", "example_id", "failure")
_FACTS = ("task", "tokenizer")
_CATEGORIES = ("kind", "level", "domain", "source")
_TIMES_AND_TOKENS = (
    "evidence_position", "inter_evidence_tokens", "failed", "ttft_ms", "duration_ms",
    "queue_ms", "loop_lag_ms", "prompt_tokens", "cached_tokens", "completion_tokens",
    "reasoning_tokens", "cost_usd",
)  # fmt: skip
_TEXTS = (*_NAMES, *_FACTS, *_CATEGORIES, "model", "replicate")
_NUMBERS = ("length_tokens", "score", *_TIMES_AND_TOKENS)


@dataclass(frozen=True, slots=True)
class ScoreRecords:
    """One model's records of one file.

    ``frame`` holds the columns of ``EVAL_RECORDS`` that the file has, scores 0..1. ``task`` and
    ``tokenizer`` are named where all its rows agree. ``length_kind`` says what ``length_tokens``
    counts, and ``notes`` what else a reader must know, both of logs of other tools.
    """

    model: str | None
    frame: pd.DataFrame
    task: str | None = None
    tokenizer: str | None = None
    score_name: str = "score"
    length_kind: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def measured_lengths(self) -> Floats:
        """Lengths with a score, tokens."""
        scored = self.frame["score"].notna().to_numpy()
        out: Floats = self.frame["length_tokens"].to_numpy(np.float64)[scored]
        return out


@dataclass(frozen=True, slots=True)
class CountedTexts:
    """Lengths that are counted from a column of texts: by which tokenizer, and the columns' names.

    ``measure`` gives the name of a text's document and its tokens.
    """

    tokenizer: str
    columns: Sequence[str]
    measure: Callable[[str], tuple[str, int]]


def read_records(
    path: Path, *, scale: float = 1.0, counted: CountedTexts | None = None
) -> list[ScoreRecords]:
    """The records of ``path`` by model, in order of the models' names; one where it names none.

    The file needs ``length_tokens`` (above 0) and ``score`` (0..``scale``; empty only where
    ``failure`` says why there is no answer). ``document_id``, ``example_id``, ``replicate``,
    ``model``, ``failure``, ``task``, ``kind``, ``level``, ``domain``, ``source``, ``tokenizer``,
    times and token counts are used where they are there, anything else is left aside. With
    ``counted``, lengths are those of each row's longest text, whatever ``length_tokens`` says, and
    the texts are the documents where ``document_id`` does not name them.

    Raises:
        ScoreFileError: the file cannot be read, lacks a column, or a row cannot be used.
    """
    columns = read_columns(path, (*_TEXTS, *(counted.columns if counted else ())), _NUMBERS)
    hint = "; a table of means is read with --aggregated" if "mean" in columns.found else ""
    need(columns, *(() if counted else ("length_tokens",)), "score", hint=hint)
    frame = _frame(columns, scale, counted)
    if "model" not in columns.arrays:
        return [_records(None, frame)]
    models = texts(columns, "model")
    refuse(columns, "model", models.is_null().to_numpy(), "; name it in every row, or in none")
    return [
        _records(name, frame if rows is None else frame.iloc[rows].reset_index(drop=True))
        for name, rows in rows_by_name(models)
    ]


def _frame(columns: Columns, scale: float, counted: CountedTexts | None) -> pd.DataFrame:
    import pandas as pd

    data: dict[str, Any] = _measured(columns, counted)
    for name in _NAMES:
        if name in columns.arrays:
            named = texts(columns, name).to_pandas()
            data[name] = named.fillna(data[name]) if name in data else named
    score = numbers(columns, "score")
    tags = ", ".join(sorted(tag.value for tag in UNSCORED_TAGS))
    answered = ~np.isin(data["failure"], tags.split(", ")) if "failure" in data else True
    why = f"; give a score, or the reason in column 'failure' ({tags}), or leave the row out"
    refuse(columns, "score", ~np.isfinite(score) & answered, why)
    data["score"] = of_scale(columns, "score", score, scale)
    for name in _TIMES_AND_TOKENS:
        if name in columns.arrays:
            data[name] = numbers(columns, name)
    if "evidence_position" in data:
        position = data["evidence_position"]
        outside = (position < 0) | (position > 1)
        refuse(
            columns, "evidence_position", outside, "; a place is 0 (start) to 1 (end of the text)"
        )
    if "inter_evidence_tokens" in data:
        below = data["inter_evidence_tokens"] < 0
        refuse(columns, "inter_evidence_tokens", below, "; a distance counts tokens from 0")
    if "replicate" in columns.arrays:  # numbers or names, they are only distinguished
        data["replicate"] = pd.factorize(texts(columns, "replicate").to_pandas(), sort=True)[0]
    for name in _FACTS:
        if name in columns.arrays:
            data[name] = pd.Categorical(texts(columns, name).to_pandas())
    if counted is not None:
        data["tokenizer"] = pd.Categorical([counted.tokenizer] * columns.rows)
    for name in _CATEGORIES:
        with suppress(ScoreFileError):  # what holds no names is left aside
            if name in columns.arrays:
                data[name] = pd.Categorical(texts(columns, name).to_pandas())
    return pd.DataFrame(data, copy=False)


def _measured(columns: Columns, counted: CountedTexts | None) -> dict[str, Any]:
    """``length_tokens`` as the file has it, or counted, and then ``document_id``, too.

    Raises:
        ScoreFileError: a length or a text is missing, or there is no column of texts.
    """
    import pandas as pd

    if counted is None:
        return {"length_tokens": lengths(columns)}
    names = [name for name in counted.columns if name in columns.arrays]
    if not names:
        found = ", ".join(columns.found) or "none"
        raise ScoreFileError(
            f"{columns.path} has no column of texts whose tokens --tokenizer could count (one of "
            f"{', '.join(counted.columns)}); columns found: {found}."
        )
    rows = zip(*(texts(columns, name).to_pylist() for name in names), strict=True)
    whole = [max((text for text in row if text), key=len, default="") for row in rows]
    measured = [counted.measure(text) if text.strip() else ("", 0) for text in whole]
    tokens = np.array([tokens for _, tokens in measured], dtype=np.float64)
    refuse(columns, names[0], tokens <= 0, "; give every row its text")
    return {"length_tokens": tokens, "document_id": pd.Series([name for name, _ in measured])}


def rows_by_name(names: Any) -> list[tuple[str, Any]]:
    """(name, rows) in order of names; ``None`` for all rows where there is one name."""
    import pandas as pd

    codes, known = pd.factorize(names.to_pandas(), sort=True)
    if len(known) == 1:
        return [(str(known[0]), None)]
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return list(zip(map(str, known), parts, strict=True))


def _records(model: str | None, frame: pd.DataFrame) -> ScoreRecords:
    task, tokenizer = (_only(frame, name) for name in _FACTS)
    # Several tasks are categories of questions.
    facts = ["tokenizer"] if task is None else [*_FACTS]
    frame = frame.drop(columns=[name for name in facts if name in frame.columns])
    return ScoreRecords(model, frame, task, tokenizer)


def _only(frame: pd.DataFrame, name: str) -> str | None:
    if name not in frame.columns:
        return None
    seen = frame[name].dropna().unique()
    return str(seen[0]) if len(seen) == 1 else None
