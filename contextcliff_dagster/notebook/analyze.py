"""`analyze`: a verdict from existing lengths and scores, in any data frame library's columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sized
from typing import Any, Literal, overload

import numpy as np
import pandas as pd
import pyarrow as pa

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts import UNSCORED_TAGS, DataError, StudyError
from contextcliff_dagster.contracts.arrays import Bools, Floats
from contextcliff_dagster.notebook.results import Result, Results
from contextcliff_dagster.score_files.columns import MOST_TOKENS, decoded, floats, strings

Column = Iterable[Any]
"""One value per row: a list, an array, a column of a data frame. Rows are matched by position."""

_REASONS = ", ".join(sorted(tag.value for tag in UNSCORED_TAGS))


def records_of(
    lengths: Column,
    scores: Column,
    names: dict[str, Column | None],
    failures: Column | None,
    scale: float,
) -> pd.DataFrame:
    """Return records with the columns that `analysis.records.clean_records` reads.

    Args:
        lengths: tokens, above 0.
        scores: 0..``scale``, or true and false; NaN or null only where ``failures`` has the reason.
        names: record column -> column of names or numbers; None is left out.

    Raises:
        DataError: an argument is not a column, the columns have different lengths, or a value
            cannot have been measured; the message names the first.
    """
    data: dict[str, Any] = {"length_tokens": _numbers("lengths", lengths)}
    score = _numbers("scores", scores, booleans=True)
    labels = {column: _names(_PARAMETERS[column], values) for column, values in names.items()
              if values is not None}  # fmt: skip
    if "replicate" in labels and "example_id" not in labels:
        raise DataError(
            "replicates distinguishes the repeats of an example; give the examples, too, with "
            "examples=."
        )
    if failures is not None:
        labels["failure"] = _names("failures", failures)
    rows = len(score)
    for parameter, length in (
        ("lengths", len(data["length_tokens"])),
        *((_PARAMETERS[column], len(values)) for column, values in labels.items()),
    ):
        if length != rows:
            raise DataError(
                f"{parameter} has {length:,} values and scores has {rows:,}; give one of each "
                "an answer."
            )
    if not rows:
        raise DataError("lengths and scores are empty; give at least two answers.")
    tokens = data["length_tokens"]
    _refuse("lengths", tokens, ~np.isfinite(tokens), "a length is a number of tokens")
    _refuse("lengths", tokens, tokens <= 0, "a length is above 0 tokens")
    _refuse("lengths", tokens, tokens > MOST_TOKENS, "that is no number of tokens")
    tags = labels.get("failure")
    answered: Any = True if tags is None else ~tags.isin(_REASONS.split(", ")).to_numpy(bool)
    why = "give a score, leave the answer out, or name the reason in failures: " + _REASONS
    _refuse("scores", score, ~np.isfinite(score) & answered, why)
    hint = f"scores are 0 to {scale:g}"
    if scale == 1 and np.nanmin(score, initial=0.0) >= 0:
        percent = np.nanmax(score, initial=0.0) <= 100
        hint += "; for percentages, pass scale=100" if percent else "; pass the largest as scale="
    _refuse("scores", score, (score < 0) | (score > scale), hint)
    # Like in files: 56.7 of 100 equals .567 exactly.
    data["score"] = score if scale == 1 else np.round(score / scale, 12)
    if "replicate" in labels:  # numbers or names: only their identity matters
        labels["replicate"] = pd.Series(pd.factorize(labels["replicate"], sort=True)[0])
    return pd.DataFrame({**data, **labels}, copy=False)


_PARAMETERS = {
    "document_id": "documents", "example_id": "examples", "replicate": "replicates",
    "model": "models", "failure": "failures",
}  # fmt: skip


def _refuse(name: str, values: Floats, bad: Bools, why: str) -> None:
    """Raise DataError naming the first value that is ``bad``, if any."""
    places = np.flatnonzero(bad)
    if len(places):
        at, more = int(places[0]), len(places) - 1
        others = f" (and {more:,} more)" if more else ""
        raise DataError(f"{name}[{at}]{others} is {values[at]:g}; {why}.")


def _numbers(name: str, values: Column, *, booleans: bool = False) -> Floats:
    """Return a column of numbers as floats, NaN for nulls."""
    array = _array(name, values)
    numbers = floats(array)
    if numbers is None or (pa.types.is_boolean(array.type) and not booleans):
        what = {"bool": "true and false", "string": "texts", "large_string": "texts"}
        kind = what.get(str(array.type), array.type)
        raise DataError(f"{name} holds {kind}, and numbers are needed.")
    return numbers


def _names(name: str, values: Column) -> pd.Series[Any]:
    """Return a column of names or numbers as texts, null if empty; 7 and 7.0 are both "7"."""
    array = _array(name, values)
    try:
        series: pd.Series[Any] = strings(array).to_pandas()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise DataError(f"{name} holds {array.type}, and names or numbers are needed.") from error
    return series


def _array(name: str, values: Column) -> pa.Array | pa.ChunkedArray:
    """Return ``values`` as one Arrow array, by whichever protocol they support."""
    if isinstance(values, str | bytes | dict | set | frozenset) or not isinstance(values, Iterable):
        kind = type(values).__name__
        raise DataError(f"{name} is of type {kind}, and a list, an array or a column is needed.")
    shape = getattr(values, "shape", None)
    if hasattr(values, "columns") or (shape is not None and len(shape) != 1):
        size = "table" if hasattr(values, "columns") else f"{len(shape or ())}-dimensional array"
        raise DataError(f"{name} is a {size}; choose one column of it.")
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            array: pa.Array | pa.ChunkedArray = values
        elif hasattr(values, "__arrow_c_stream__"):
            array = pa.chunked_array(values)
        elif hasattr(values, "__array__"):
            array = pa.array(np.ma.asarray(values), from_pandas=True)
        else:
            array = pa.array(values if isinstance(values, Sized) else list(values))
        return decoded(array)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(f"{name} is not a column of values of one kind ({reason}).") from error


Assumption = Literal["falling", "any"]


@overload
def analyze(
    lengths: Column,
    scores: Column,
    documents: Column | None = None,
    *,
    models: None = None,
    examples: Column | None = None,
    replicates: Column | None = None,
    failures: Column | None = None,
    name: str = "model",
    scale: float = 1.0,
    tolerance: float = 0.3,
    confidence: float = 0.95,
    assumption: Assumption = "falling",
    window: int | None = None,
    quick: bool = False,
    chance: float = 0.0,
) -> Result: ...


@overload
def analyze(
    lengths: Column,
    scores: Column,
    documents: Column | None = None,
    *,
    models: Column,
    examples: Column | None = None,
    replicates: Column | None = None,
    failures: Column | None = None,
    scale: float = 1.0,
    tolerance: float = 0.3,
    confidence: float = 0.95,
    assumption: Assumption = "falling",
    window: int | None = None,
    quick: bool = False,
    chance: float = 0.0,
) -> Results: ...


def analyze(
    lengths: Column,
    scores: Column,
    documents: Column | None = None,
    *,
    models: Column | None = None,
    examples: Column | None = None,
    replicates: Column | None = None,
    failures: Column | None = None,
    name: str = "model",
    scale: float = 1.0,
    tolerance: float = 0.3,
    confidence: float = 0.95,
    assumption: Assumption = "falling",
    window: int | None = None,
    quick: bool = False,
    chance: float = 0.0,
) -> Result | Results:
    """Compute verdict and safe context cap from scored answers, without any call to a model.

    Columns are lists, NumPy arrays, columns of pandas, Polars or Arrow tables, or tensors, with one
    value per answer; the order of the answers does not matter. The results equal those of
    ``contextcliff analyze`` on a file with the same columns.

    Args:
        lengths: tokens of each answer's document, above 0.
        scores: 0 to ``scale``, or true and false.
        documents: names of the documents; answers about one document count together. Without names,
            each answer counts as its own document.
        models: names of the models; each is analysed separately.
        examples: names of the questions; several answers to one are averaged. `compare` pairs by
            them.
        replicates: which repeat of its example an answer is.
        failures: why there is no answer (``transport_error``, ``invalid_truncated``,
            ``context_overflow``: the score is then NaN or None), or why it is wrong.
        name: name of the model in the result.
        scale: the largest score, e.g. 100 for percentages.
        tolerance: drop from the baseline that still counts as safe, .05 to .5.
        confidence: confidence of the cap and of every interval, .5 to .999.
        assumption: ``any``: the cap also holds for drops that recover at longer lengths.
        window: most tokens that the model accepts, for the picture and the cap's share of it.
        quick: only verdict and cap, without the sensitivity to other choices.
        chance: mean score of guessing, such as .25 for four options; losses are measured above it.

    Returns:
        The result; with ``models``, one result per model, by name.

    Raises:
        DataError: a column or an option is invalid; a `ValueError` that says where and why.
    """
    settings = _settings(tolerance, confidence, assumption, quick, chance)
    if not _is_number(scale) or not 0 < scale <= 1e9:
        raise DataError(f"scale is {scale!r}; give the largest score, such as 1 or 100.")
    if window is not None and (
        not _is_number(window) or window != int(window) or not 1 <= window <= 1e9
    ):
        raise DataError(f"window is {window!r}; give a whole number of tokens, or None.")
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"name is {name!r}; give the model's name as a text.")
    names = {
        "document_id": documents,
        "example_id": examples,
        "replicate": replicates,
        "model": models,
    }
    records = records_of(lengths, scores, names, failures, float(scale))
    tokens = None if window is None else int(window)
    if models is None:
        return analyzed(records, settings, name, tokens)
    if (unnamed := records["model"].isna().to_numpy(bool)).any():
        at = int(np.flatnonzero(unnamed)[0])
        raise DataError(f"models[{at}] is empty; give the model of every answer.")
    results: dict[str, Result] = {}
    for model, rows in records.groupby("model", sort=True):
        of_model = rows.drop(columns="model").reset_index(drop=True)
        results[str(model)] = analyzed(of_model, settings, str(model), tokens)
    return Results(results)


def analyzed(
    records: pd.DataFrame, settings: AnalysisSettings, name: str, window: int | None
) -> Result:
    """Analyse one model's ``records``.

    Raises:
        DataError: no answer has a score, or all have the same length.
    """
    seen = records["length_tokens"].to_numpy(np.float64)[records["score"].notna().to_numpy()]
    of_model = f" of model {name!r}" if name != "model" else ""
    if not len(seen):
        raise DataError(f"No answer{of_model} has a score, so nothing can be analysed.")
    if (seen == seen[0]).all():
        raise DataError(
            f"All answers{of_model} were measured at one length, {seen[0]:,.0f} tokens; an effect "
            "of length needs at least two."
        )
    context = ProfileContext(name, window_tokens=window, length_unit="as given")
    profile = profile_model(records, [], settings, context)
    return Result(profile.cliffs, profile.metrics, records, settings)


def _settings(
    tolerance: float, confidence: float, assumption: Assumption, quick: bool, chance: float
) -> AnalysisSettings:
    shares = {"tolerance": tolerance, "confidence": confidence, "chance": chance}
    for name, value in shares.items():
        if not _is_number(value):
            raise DataError(f"{name} is {value!r}; give a share such as .3 or .95.")
    try:
        return AnalysisSettings(
            tolerance=float(tolerance),
            confidence=float(confidence),
            chance=float(chance),
            assumption=assumption,
            second_opinions=not quick,
        )
    except StudyError as error:
        raise DataError(str(error).replace("Analysis setting ", "")) from error


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool | str | bytes) and math.isfinite(value)
    except TypeError:
        return False
