"""Records of single answers: a length and a score a row, and whatever else is known."""

from __future__ import annotations

from collections.abc import Mapping
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
    rows_by_model,
    texts,
)
from contextcliff_dagster.score_files.columns import Columns, read_columns
from contextcliff_dagster.score_files.logs.answers import TEXT_FIELDS
from contextcliff_dagster.score_files.logs.lengths import Lengths, digest

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Floats

_TIME = "finished_at"
_NAMES = ("document_id", "example_id", "failure")
_FACTS = ("task", "tokenizer")
_CATEGORIES = ("kind", "level", "domain", "source")
_TIMES_AND_TOKENS = (
    "evidence_position", "inter_evidence_tokens", "failed", "ttft_ms", "duration_ms",
    "queue_ms", "loop_lag_ms", "prompt_tokens", "cached_tokens", "completion_tokens",
    "reasoning_tokens", "cost_usd",
)  # fmt: skip
_TEXTS = (*_NAMES, *_FACTS, *_CATEGORIES, "model", "replicate", _TIME)
_NUMBERS = ("length_tokens", "score", *_TIMES_AND_TOKENS)


@dataclass(frozen=True, slots=True)
class ScoreRecords:
    """One model's records of one file.

    ``frame`` holds the columns of ``EVAL_RECORDS`` that the file has, scores 0..1. ``task`` and
    ``tokenizer`` are named where all its rows agree. ``length_kind`` says what ``length_tokens``
    counts, ``notes`` what else a reader must know, and ``copied_share`` how many accepted answers
    stand in their documents, all of logs of other tools.
    """

    model: str | None
    frame: pd.DataFrame
    task: str | None = None
    tokenizer: str | None = None
    score_name: str = "score"
    length_kind: str | None = None
    notes: tuple[str, ...] = ()
    copied_share: float | None = None

    @property
    def measured_lengths(self) -> Floats:
        """Lengths with a score, tokens."""
        scored = self.frame["score"].notna().to_numpy()
        out: Floats = self.frame["length_tokens"].to_numpy(np.float64)[scored]
        return out


def read_records(
    path: Path,
    *,
    scale: float = 1.0,
    counted: Lengths | None = None,
    columns: Mapping[str, str] | None = None,
) -> list[ScoreRecords]:
    """The records of ``path`` by model, in order of the models' names; one where it names none.

    The file needs ``length_tokens`` (above 0) and ``score`` (0..``scale``; empty only where
    ``failure`` says why there is no answer). ``document_id``, ``example_id``, ``replicate``,
    ``model``, ``failure``, ``task``, ``kind``, ``level``, ``domain``, ``source``, ``tokenizer``,
    times and token counts are used where they are there, anything else is left aside. With
    ``counted``, lengths are those of each row's longest text, whatever ``length_tokens`` says, and
    the texts are the documents where ``document_id`` does not name them. ``columns``: the file's
    name of a column that it calls otherwise (``{"score": "llm_judge_output"}``).

    Raises:
        ScoreFileError: the file cannot be read, lacks a column, or a row cannot be used.
    """
    names = (*_TEXTS, *(TEXT_FIELDS if counted else ()))
    table = read_columns(path, names, _NUMBERS, columns)
    hint = "; a table of means is read with --aggregated" if "mean" in table.found else ""
    need(table, *(() if counted else ("length_tokens",)), "score", hint=hint)
    frame = _frame(table, scale, counted)
    return [
        _records(model, frame.iloc[rows].reset_index(drop=True))
        for model, rows in rows_by_model(table)
    ]


def _frame(columns: Columns, scale: float, counted: Lengths | None) -> pd.DataFrame:
    import pandas as pd

    data: dict[str, Any] = _measured(columns, counted)
    for name in _NAMES:
        if name in columns.arrays:
            named = texts(columns, name).to_pandas()
            data[name] = _one_a_text(named, data[name]) if name in data else named
    score = numbers(columns, "score")
    tags = ", ".join(sorted(tag.value for tag in UNSCORED_TAGS))
    answered = ~np.isin(data["failure"], tags.split(", ")) if "failure" in data else True
    why = f"; give a score, or the reason in column 'failure' ({tags}), or leave the row out"
    refuse(columns, "score", ~np.isfinite(score) & answered, why)
    data["score"] = of_scale(columns, "score", score, scale)
    for name in _TIMES_AND_TOKENS:
        if name in columns.arrays:
            data[name] = numbers(columns, name)
    for name, most, why in (
        ("evidence_position", 1.0, "; a place is 0 (start) to 1 (end of the text)"),
        ("inter_evidence_tokens", np.inf, "; a distance counts tokens from 0"),
    ):
        if name in data:
            refuse(columns, name, (data[name] < 0) | (data[name] > most), why)
    if "replicate" in columns.arrays:  # numbers or names, they are only distinguished
        data["replicate"] = pd.factorize(texts(columns, "replicate").to_pandas(), sort=True)[0]
    for name in _FACTS:
        if name in columns.arrays:
            data[name] = pd.Categorical(texts(columns, name).to_pandas())
    if counted is not None:
        data["tokenizer"] = pd.Categorical([counted.name] * columns.rows)
    for name in (_TIME, *_CATEGORIES):
        with suppress(ScoreFileError):  # what holds no names is left aside
            if name == _TIME and name in columns.arrays:
                data[name] = moments(texts(columns, name).to_pandas())
            elif name in columns.arrays:
                data[name] = pd.Categorical(texts(columns, name).to_pandas())
    return pd.DataFrame(data, copy=False)


def _one_a_text(named: pd.Series[Any], digests: pd.Series[Any]) -> pd.Series[Any]:
    """Documents by name, else by the digest of their text; names that share a text are one."""
    import pandas as pd
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    names = named.fillna(digests)
    (of_name, known), (of_text, text) = (pd.factorize(one) for one in (names, digests))
    size = len(known) + len(text)
    shared = coo_array((np.ones(len(names)), (of_name, len(known) + of_text)), shape=(size, size))
    return names.groupby(connected_components(shared, directed=False)[1][of_name]).transform(
        "first"
    )


def moments(written: pd.Series[Any]) -> pd.Series[Any]:
    """Times in ISO 8601, or in seconds since 1970, as moments; null where neither."""
    import pandas as pd

    seconds = pd.to_numeric(written, errors="coerce")
    if seconds.notna().any():
        return pd.to_datetime(seconds, unit="s", utc=True, errors="coerce")
    return pd.to_datetime(written, format="ISO8601", utc=True, errors="coerce")


def _measured(columns: Columns, counted: Lengths | None) -> dict[str, Any]:
    """``length_tokens`` as the file has it, or counted, and then ``document_id``, too.

    Raises:
        ScoreFileError: a length or a text is missing, or there is no column of texts.
    """
    import pandas as pd

    if counted is None:
        return {"length_tokens": lengths(columns)}
    names = [name for name in TEXT_FIELDS if name in columns.arrays]
    if not names:
        raise ScoreFileError(
            f"{columns.path} has no column of texts whose tokens --tokenizer could count (one of "
            f"{', '.join(TEXT_FIELDS)}); columns found: {columns.listed}."
        )
    rows = zip(*(texts(columns, name).to_pylist() for name in names), strict=True)
    whole = [max((text for text in row if text), key=len, default="") for row in rows]
    digests = [digest(text) for text in whole]
    tokens = np.array(
        [
            float(counted.count(text, document)) if text.strip() else 0.0
            for text, document in zip(whole, digests, strict=True)
        ]
    )
    refuse(columns, names[0], tokens <= 0, "; give every row its text")
    return {"length_tokens": tokens, "document_id": pd.Series(digests)}


def _records(model: str | None, frame: pd.DataFrame) -> ScoreRecords:
    known = {name: frame[name].dropna().unique() for name in _FACTS if name in frame}
    facts: dict[str, Any] = {name: str(seen[0]) for name, seen in known.items() if len(seen) == 1}
    # Several tasks are categories of questions.
    dropped = [name for name in known if name in facts or name != "task"]
    return ScoreRecords(model, frame.drop(columns=dropped), **facts)
