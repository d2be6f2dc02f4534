"""Files of scores for `contextcliff analyze`, in every format it reads."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jsonschema import Draft202012Validator

from contextcliff_dagster_tests.support.records.planted_curves import plant, step

Row = Mapping[str, Any]
FORMATS = ("csv", "tsv", "jsonl", "json", "parquet", "csv.gz", "jsonl.gz")


def write(path: Path, rows: Sequence[Row] | pd.DataFrame) -> Path:
    """``rows`` in the format of ``path``'s ending; null where a row lacks a field."""
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    name = path.name
    if ".parquet" in name:
        frame.to_parquet(path, index=False)
        return path
    if ".csv" in name or ".tsv" in name:
        text = frame.to_csv(index=False, sep="\t" if ".tsv" in name else ",")
    elif ".jsonl" in name:
        text = frame.to_json(orient="records", lines=True)
    else:
        text = frame.to_json(orient="records")
    data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def answers(seed: int = 1, at: float = 600, *, per_bin: int = 20, **how: Any) -> pd.DataFrame:
    """Records whose mean falls from .95 to .2 at ``at`` tokens."""
    records = plant(step(at, 0.95, 0.2), seed, per_bin=per_bin, **how)
    return records[["document_id", "example_id", "length_tokens", "score"]]


def means(n: int | None = 200) -> pd.DataFrame:
    """A table of means that falls at 32,768 tokens."""
    lengths = [4_096, 8_192, 16_384, 32_768, 65_536, 131_072]
    return pd.DataFrame(
        {"length_tokens": lengths, "mean": [0.94, 0.92, 0.93, 0.6, 0.5, 0.44], "n": n}
    )


def conforming(path: Path) -> Any:
    """The JSON of ``path``, every result in it held against the contract's schema."""
    schema = (files("contextcliff_dagster") / "schemas" / "cliffs.schema.json").read_text("utf-8")
    validator = Draft202012Validator(json.loads(schema))
    found = json.loads(path.read_text("utf-8"))
    for result in found if isinstance(found, list) else [found]:
        validator.validate(result)
    return found


def without_file(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result less what differs by file and clock."""
    return {k: v for k, v in result.items() if k not in ("provenance", "created_at", "model")}
