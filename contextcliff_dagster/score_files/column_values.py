"""Columns as numbers and names; a value that is neither is refused with its row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.contracts.arrays import Bools, Floats

MOST_TOKENS = 1e12
"""No length is longer; above, an integer has lost digits or a unit is wrong."""


def need(columns: Columns, *names: str, hint: str = "") -> None:
    """Raises:
    ScoreFileError: a column of ``names`` is missing, with those found and ``hint``.
    """
    for name in names:
        if name not in columns.arrays:
            raise ScoreFileError(
                f"{columns.path} has no column {name!r}; columns found: {columns.listed}; if one "
                f"of them is it, add --columns {name}=ITS_NAME{hint}."
            )


def numbers(columns: Columns, name: str) -> Floats:
    """Column ``name`` as floats, NaN where it is empty; true and false are 1 and 0.

    Raises:
        ScoreFileError: a value is no number.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    array = _decoded(columns.arrays[name])
    kind, types = array.type, pa.types
    if types.is_null(kind):
        return np.full(columns.rows, np.nan)
    if types.is_string(kind) or types.is_large_string(kind):
        return _parsed(columns, name, array)
    if types.is_boolean(kind):
        array = pc.cast(array, pa.uint8())
    elif not (types.is_decimal(kind) or types.is_integer(kind) or types.is_floating(kind)):
        raise ScoreFileError(
            f"{columns.path}: column {columns.named(name)!r} holds {kind}, no numbers."
        )
    out: Floats = pc.cast(array, pa.float64(), safe=False).to_numpy().astype(np.float64)
    return out


def texts(columns: Columns, name: str) -> pa.ChunkedArray:
    """Column ``name`` as strings, null where it is empty; 7 and 7.0 are both "7"."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = _decoded(columns.arrays[name])
    if pa.types.is_floating(array.type):
        known = pc.drop_null(pc.if_else(pc.is_nan(array), None, array))
        if pc.all(pc.equal(known, pc.trunc(known))).as_py():
            array = pc.cast(array, pa.int64(), safe=False)
    try:
        named = pc.cast(array, pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise ScoreFileError(
            f"{columns.path}: column {columns.named(name)!r} holds {array.type}, no names."
        ) from error
    return pc.if_else(pc.equal(named, ""), None, named)


def refuse(columns: Columns, name: str, bad: Bools, why: str) -> None:
    """Raises:
    ScoreFileError: a value is ``bad``; the first is named, with ``why`` behind its value.
    """
    if not bad.any():
        return
    at = int(np.flatnonzero(bad)[0])
    more = int(bad.sum()) - 1
    others = f" (and {more:,} more)" if more else ""
    array = columns.arrays[name]
    value = array[at].as_py()
    shown = "empty" if value is None else f"{value!r}" if isinstance(value, str) else f"{value:g}"
    raise ScoreFileError(
        f"{columns.path}, row {at + 1}{others}: {columns.named(name)} is {shown}{why}."
    )


def lengths(columns: Columns) -> Floats:
    """``length_tokens``, every one positive and finite.

    Raises:
        ScoreFileError: one is not.
    """
    tokens = numbers(columns, "length_tokens")
    refuse(columns, "length_tokens", ~np.isfinite(tokens), "; a length is a number of tokens")
    refuse(columns, "length_tokens", tokens <= 0, "; a length is above 0 tokens")
    refuse(columns, "length_tokens", tokens > MOST_TOKENS, "; that is no number of tokens")
    return tokens


def rows_by_model(columns: Columns) -> list[tuple[str | None, Any]]:
    """(model, index of its rows) in order of the models' names; all rows where none is named.

    Raises:
        ScoreFileError: some rows name a model and others do not.
    """
    import pandas as pd

    everything = slice(None)
    if "model" not in columns.arrays:
        return [(None, everything)]
    models = texts(columns, "model")
    refuse(columns, "model", models.is_null().to_numpy(), "; name it in every row, or in none")
    codes, known = pd.factorize(models.to_pandas(), sort=True)
    if len(known) == 1:
        return [(str(known[0]), everything)]
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return list(zip(map(str, known), parts, strict=True))


def of_scale(columns: Columns, name: str, values: Floats, scale: float) -> Floats:
    """``values`` (0..scale, NaN allowed) as shares 0..1.

    Raises:
        ScoreFileError: one lies outside 0..scale.
    """
    hint = ""
    if scale == 1 and np.nanmax(values, initial=0.0) <= 100:
        hint = "; percentages are read with --scale 100"
    outside = (values < 0) | (values > scale)
    refuse(columns, name, outside, f", outside 0..{scale:g}{hint}")
    # Rounding off what dividing adds: 56.7 of 100 is .567 exactly as .567 is.
    return values if scale == 1 else np.round(values / scale, 12)


def _decoded(array: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        return pc.cast(array, array.type.value_type)
    return array


def _parsed(columns: Columns, name: str, array: pa.ChunkedArray) -> Floats:
    """Numbers that are written as text."""
    import pandas as pd
    import pyarrow.compute as pc

    trimmed = pc.utf8_lower(pc.utf8_trim_whitespace(array)).to_pandas()
    trimmed = trimmed.replace({"true": "1", "false": "0", "": None})
    values = pd.to_numeric(trimmed, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    stated = trimmed.notna().to_numpy() & (trimmed != "nan").fillna(False).to_numpy(bool)
    refuse(columns, name, np.isnan(values) & stated, ", no number")
    return np.asarray(values, dtype=np.float64)
