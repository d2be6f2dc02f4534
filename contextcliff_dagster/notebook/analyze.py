"""`analyze`: lengths and scores that are there already, to verdict and safe cap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from contextcliff_dagster.contracts import DataError, StudyError
from contextcliff_dagster.notebook.columns import Column, records_of
from contextcliff_dagster.notebook.results import Result, Results

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records import AnalysisSettings

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
    """Find verdict and safe context cap of answers that are scored already; makes no call.

    Columns are lists, NumPy arrays, columns of pandas, Polars or Arrow tables, or tensors, with one
    value an answer; the order of the answers does not matter. The figures are those of
    ``contextcliff analyze`` on a file with the same columns.

    Args:
        lengths: tokens of each answer's document, above 0.
        scores: 0 to ``scale``, or true and false.
        documents: names of the documents; answers about one document count together. Without them
            each answer is taken as a document of its own.
        models: names of the models; each is analysed by itself.
        examples: names of the questions; several answers to one are averaged. `compare` pairs by
            them.
        replicates: which repeat of its example an answer is.
        failures: why there is no answer (``transport_error``, ``invalid_truncated``,
            ``context_overflow``: the score is then NaN or None), or why it is wrong.
        name: of the model, for the result.
        scale: the largest score, e.g. 100 for percentages.
        tolerance: drop from the baseline that still counts as safe, .05 to .5.
        confidence: of the cap and every interval, .5 to .999.
        assumption: ``any``: the cap also holds for drops that recover at longer lengths.
        window: tokens that the model accepts at most, for the picture and the share of it.
        quick: only verdict and cap, without the sensitivity to other choices.
        chance: mean score of guessing, such as .25 of four options; losses are measured above it.

    Returns:
        The result; with ``models`` one for each, by name.

    Raises:
        DataError: a column or an option cannot be used; a `ValueError` that says where and why.
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
        raise DataError(f"models[{at}] is empty; name the model of every answer.")
    groups = records.groupby("model", sort=True)
    return Results(
        {
            str(model): analyzed(
                rows.drop(columns="model").reset_index(drop=True), settings, str(model), tokens
            )
            for model, rows in groups
        }
    )


def analyzed(
    records: pd.DataFrame, settings: AnalysisSettings, name: str, window: int | None
) -> Result:
    """The result of one model's ``records``.

    Raises:
        DataError: nothing was scored, or everything at one length.
    """
    from contextcliff_dagster.analysis.bin_statistics import ProfileContext
    from contextcliff_dagster.analysis.profile import profile_model

    seen = records["length_tokens"].to_numpy(np.float64)[records["score"].notna().to_numpy()]
    of_model = f" of model {name!r}" if name != "model" else ""
    if not len(seen):
        raise DataError(f"No answer{of_model} has a score, so nothing can be analysed.")
    if (seen == seen[0]).all():
        raise DataError(
            f"All answers{of_model} were measured at one length, {seen[0]:,.0f} tokens; an effect "
            "of length needs at least two."
        )
    context = ProfileContext(name, window_tokens=window)
    profile = profile_model(records, [], settings, context)
    return Result(profile.cliffs, profile.metrics, records, settings)


def _settings(
    tolerance: float, confidence: float, assumption: Assumption, quick: bool, chance: float
) -> AnalysisSettings:
    from contextcliff_dagster.analysis.records import AnalysisSettings

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
