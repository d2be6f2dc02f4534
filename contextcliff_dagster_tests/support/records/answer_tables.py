"""Answers behind the made-up results of `reports`, as the table that a report is given."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import ANSWERS, conform
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.contracts.results.json_form import BinMean
from contextcliff_dagster.reporting.html.payload import Evidence
from contextcliff_dagster_tests.support.records.reports import result_of, sample

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_GOODS = ("brass fittings", "lamp oil", "roof slates", "seed potatoes", "copper wire", "tea")
_PLACES = ("bay 12", "bay 31", "the north yard", "dock 4", "the cold store")


def answered(
    model: str, text: Callable[[int], str | None] | None = None, **shape: Any
) -> tuple[Cliffs, pd.DataFrame, list[dict[str, Any]]]:
    """A result, its records, and its answers as rows of `ANSWERS`.

    ``text``: instead of the answer to example i. ``shape``: as of `sample`.
    """
    cliffs, records = sample(model, **shape)
    names = ("em", "contained")
    records = records.assign(
        f1=[round(s or (i * 37 % 60) / 100, 2) for i, s in enumerate(records["score"])],
        **dict.fromkeys(names, records["score"]),
        example_id=[f"e{i:04d}" for i in range(len(records))],
    )
    rows = []
    for i, row in enumerate(records.to_dict("records")):
        chance = random.Random(i)
        goods, place = chance.choice(_GOODS), chance.choice(_PLACES)
        given = place if row["score"] else chance.choice([p for p in _PLACES if p != place])
        rows.append(
            {
                "example_id": row["example_id"],
                "document_id": row["document_id"],
                "task": "lookup",
                "model": model,
                "bin": row["bin"],
                "replicate": 0,
                "length_tokens": int(row["length_tokens"]),
                "evidence_position": (i * 37 % 100) / 100,
                "question": f"Where are the {goods} of consignment {100 + i} kept?",
                "accepted": [place, place.removeprefix("the ")],
                "answer": given if text is None else text(i),
                "parsed_answer": None,
                "score": row["score"],
                "em": row["em"],
                "f1": row["f1"],
                "contained": row["contained"],
                "failure": row["failure"] if isinstance(row["failure"], str) else None,
            }
        )
    return result_of(cliffs), records, rows


def evidence_of(
    made: list[tuple[Cliffs, pd.DataFrame, list[dict[str, Any]]]], *, with_answers: bool = True
) -> Evidence:
    """What `write_report` is given of them: token F1 besides, and the answers where asked for."""
    scores = {result.model: {"f1": _means(result, records)} for result, records, _ in made}
    table: pa.Table | None = None
    if with_answers:
        table = conform([row for *_, rows in made for row in rows], ANSWERS)
    return Evidence(scores=scores, answers=table, how="contextcliff report demo --with-answers")


def _means(result: Cliffs, records: pd.DataFrame) -> list[BinMean]:
    means = {str(key): float(rows.mean()) for key, rows in records.groupby("bin")["f1"]}
    return [
        BinMean(b.bin, b.n, m := means[b.bin], max(0.0, m - 0.08), min(1.0, m + 0.08))
        for b in result.bins
    ]


def data_of(page: str) -> dict[str, Any]:
    """The data that a page carries."""
    (written,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    data: dict[str, Any] = json.loads(written)
    return data
