"""Attention entropy: how the prompt's last token attends, for the study's questions.

Each question takes a separate call with one output token, stored in the ledger like other calls;
these calls do not enter the measured curve.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import StrictBool

from contextcliff_dagster.contracts import (
    ATTENTION_PREDICTIONS,
    ATTENTION_RECORDS,
    ContextCliffError,
    StudyError,
)
from contextcliff_dagster.experiments.common.experiment import Experiment, Rows, Source
from contextcliff_dagster.experiments.common.records import score_campaign
from contextcliff_dagster.experiments.common.study_run import StudyRun, guest_records
from contextcliff_dagster.inference.models.models_file import ModelEntry, get_model
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.attention import AttentionSample

_MEASURES = ("entropy", "sinks", "evidence")


class Attention(Experiment):
    """Entropy of the last prompt token's attention, and its shares on first tokens and evidence."""

    name = "attention_entropy"
    section: ClassVar[Any] = StrictBool
    example: ClassVar[Any] = True
    host = "length_profile"
    by_bins = True
    predictions = ATTENTION_PREDICTIONS
    records = ATTENTION_RECORDS
    description = (
        "The same questions again, of one output token: where the last prompt token attends, by "
        "layer and head. Only of engines that show it; never part of the measured curve."
    )

    def asset_names(self, step: str) -> tuple[str, ...]:
        return (self.name,) if step == "predictions" else ()

    def is_asked(self, study: Study) -> bool:
        return study.has_corpus and super().is_asked(study)

    def recipe(self, study: Study) -> Recipe:
        """Return the study's prompt in its first wording, requesting one token with attention."""
        asked = study.recipe()
        return replace(
            asked,
            instructions=asked.instructions[:1],
            max_output_tokens=1,
            temperature=0.0,
            sampling=None,
            output_schema=None,
            constrained=False,
            attention=True,
        )

    def not_asked(self, entry: ModelEntry) -> str | None:
        if entry.spec.shows_attention:
            return None
        return f"engine {entry.engine} does not show attention"

    def sources(self, run: StudyRun) -> Sequence[Source]:
        """Return the measured sample.

        Raises:
            StudyError: none of the study's models shows its attention.
        """
        self.require_models(run.study)
        return self.known_sources(run)

    def require_models(self, study: Study) -> None:
        """Raise StudyError if ``study`` asks for attention but none of its models shows it."""
        if not self.is_asked(study):
            return
        entries = [get_model(name) for name in study.models]
        if all(self.not_asked(entry) for entry in entries):
            engines = ", ".join(dict.fromkeys(entry.engine for entry in entries))
            raise StudyError(
                f"Study {study.name!r} asks for attention_entropy, but none of its models shows "
                f"its attention (engines: {engines}); add a model of engine reference or "
                "transformers, or leave it out."
            )

    def known_sources(self, run: StudyRun) -> Sequence[Source]:
        return [Source(run.manifest)]

    def score(self, run: StudyRun, source: Source, rows: Rows) -> Rows:
        """Return an `ATTENTION_RECORDS` row for each row with an answer."""
        return [
            {**{name: row[name] for name in _KEPT}, **measured}
            for row in rows
            if (measured := _measured(row)) is not None
        ]

    def score_campaign(self, run: StudyRun) -> None:
        """Write the records of the campaign, even if the study no longer asks for them."""
        if self.is_asked(run.study) or self._any_measured(run):
            score_campaign(run, self)

    def _any_measured(self, run: StudyRun) -> bool:
        of = (run.study.name, run.campaign, self.recipe(run.study).hash)
        where = "study = ? AND campaign = ? AND recipe_hash = ?"
        return bool(run.ledger.read(f"SELECT 1 FROM calls WHERE {where} LIMIT 1", of))

    def contribution(self, run: StudyRun, model: str) -> AttentionSample | None:
        """Return the measurements of ``model`` with the study's prompt; None if there are none.

        Raises:
            StoreError: a table is damaged.
        """
        from contextcliff_dagster.analysis.attention import AttentionSample

        records = guest_records(run, self, model)
        # Records of another prompt remain until attention is asked for again.
        asked = self.recipe(run.study).hash
        kept = records.to_pylist() if records is not None else ()
        rows = [row for row in kept if row["recipe_hash"] == asked]
        if not rows:
            return None

        shape = max(row["layers"] for row in rows), max(row["heads"] for row in rows)

        def by_head(name: str) -> NDArray[np.float64]:
            return np.array([_layers(row, row[name], shape) for row in rows])

        trained = None
        with suppress(ContextCliffError):  # its entry may have been removed
            from contextcliff_dagster.inference.weights import trained_tokens

            trained = trained_tokens(get_model(model))
        return AttentionSample(
            example_ids=tuple(row["example_id"] for row in rows),
            tokens=np.array([row["prompt_tokens"] for row in rows], np.int64),
            entropy=by_head("entropy"),
            sinks=by_head("sinks"),
            evidence=by_head("evidence"),
            trained_tokens=trained,
        )


_OWN = ("layers", "heads", *_MEASURES)
_KEPT = tuple(name for name in ATTENTION_RECORDS.column_names if name not in _OWN)


def _measured(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the record columns from an answer's measurement; None if it has no valid one.

    Third-party engines may report anything: values of another form are ignored.
    """
    if row["no_answer"] is not None or not row["extra"] or not row["prompt_tokens"]:
        return None
    try:
        shown = json.loads(json.loads(row["extra"])["attention"])
        values_by_layer = {
            name: [np.array(layer, np.float64) for layer in shown[name]]
            for name in _MEASURES
            if shown[name] is not None or name != "evidence"
        }
        heads = [len(layer) for layer in values_by_layer["entropy"]]
        values = np.concatenate([layer for layers in values_by_layer.values() for layer in layers])
    except (KeyError, TypeError, ValueError):
        return None
    counts = [[len(layer) for layer in layers] for layers in values_by_layer.values()]
    if not any(heads) or any(lengths != heads for lengths in counts):
        return None
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        return None
    most = max(heads)
    flat = {
        name: [value for layer in layers for value in _filled(layer.tolist(), most)]
        for name, layers in values_by_layer.items()
    }
    return {"evidence": None, **flat, "layers": len(heads), "heads": most}


def _filled(values: list[float], heads: int) -> list[float | None]:
    """Return a layer's ``values``, with None for each missing head."""
    return [*values, *[None] * (heads - len(values))]


def _layers(
    row: Mapping[str, Any], values: Sequence[float | None] | None, shape: tuple[int, int]
) -> NDArray[Any]:
    """Return a record's list as an array of ``shape`` (layers, heads); NaN for missing values."""
    out = np.full(shape, np.nan)
    if values is not None:
        measured = np.array(values, np.float64).reshape(row["layers"], row["heads"])
        out[: len(measured), : measured.shape[1]] = measured
    return out


ATTENTION = Attention()
