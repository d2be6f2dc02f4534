"""From predictions to a report: scoring, profiling, writing; cheap, and made again at any time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    EVAL_RECORDS,
    PREDICTIONS,
    SCHEMA_VERSION,
    StoreError,
    conform,
)
from contextcliff_dagster.store import Store, read_table, write_atomic, write_json, write_table
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from contextcliff_dagster.analysis.context import ModelProfile
    from contextcliff_dagster.inference.ledger import Ledger
    from contextcliff_dagster.reporting.report import ReportFiles
    from contextcliff_dagster.sampling.manifest import Manifest


def score_campaign(study: Study, store: Store, manifest: Manifest, campaign: str) -> pa.Table:
    """Score every prediction of the campaign that belongs to ``manifest``; the records written.

    However many examples a bin ``study`` asks for: a smaller run shrinks nobody's results.
    Predictions of an earlier manifest or another recipe are left out, and their records removed:
    they are made again from the ledger when their examples come back.

    Raises:
        StoreError: a table is damaged or cannot be written; nothing is predicted yet.
        StudyError: the study's scorer is unknown.
    """
    import pyarrow as pa

    from contextcliff_dagster.scoring.evaluate import score_rows

    recipe = study.recipe()
    examples = {
        (bin, sample.example.example_id): sample.example
        for bin in study.bin_keys
        for sample in manifest.planned(bin, manifest.examples.num_rows)
    }
    by_id = {example_id: example for (_, example_id), example in examples.items()}
    scored: list[pa.Table] = []
    for path in _tables(store.campaign_dir("predictions", study.name, campaign)):
        rows = [
            row
            for row in read_table(path, PREDICTIONS).to_pylist()
            if (row["bin"], row["example_id"]) in examples and row["recipe_hash"] == recipe.hash
        ]
        target = _records_beside(path)
        if not rows:
            target.unlink(missing_ok=True)
            continue
        records = score_rows(
            rows,
            by_id,
            manifest.document_text,
            primary=study.scoring.primary,
            scorer=study.scoring.scorer,
            output_schema=recipe.output_schema,
            max_output_tokens=recipe.max_output_tokens,
            answer_prefix=recipe.answer_prefix or "",
        )
        write_table(target, records, EVAL_RECORDS)
        scored.append(conform(records, EVAL_RECORDS))
    # Only what has no predictions is stale: another run may be scoring its own bins meanwhile.
    for records_file in _tables(store.campaign_dir("eval_records", study.name, campaign)):
        if not _predictions_beside(records_file).exists():
            records_file.unlink(missing_ok=True)
    if not scored:
        raise StoreError(
            f"Study {study.name!r} has no predictions in campaign {campaign} yet; "
            f"run `contextcliff profile {study.name}`, or materialize `predictions`."
        )
    return pa.concat_tables(scored)


def read_records(study: Study, store: Store, campaign: str) -> pd.DataFrame:
    """All evaluation records of the campaign.

    Raises:
        StoreError: there are none, or a table is damaged.
    """
    import pyarrow as pa

    paths = _tables(store.campaign_dir("eval_records", study.name, campaign))
    if not paths:
        raise StoreError(
            f"Study {study.name!r} has no evaluation records in campaign {campaign} yet; "
            "materialize `eval_records` first."
        )
    records: pd.DataFrame = pa.concat_tables(read_table(p, EVAL_RECORDS) for p in paths).to_pandas()
    return records


def profile_campaign(
    study: Study, store: Store, manifest: Manifest, ledger: Ledger, campaign: str
) -> list[ModelProfile]:
    """Analyse each model's records and write its ``metrics.json`` and ``cliffs.json``.

    Models in the study's order, then others measured in the same campaign.

    Raises:
        StoreError: there are no records.
    """
    from contextcliff_dagster.analysis.context import ProfileContext
    from contextcliff_dagster.analysis.profile import profile_model
    from contextcliff_dagster.inference.campaigns import recorded_identity
    from contextcliff_dagster.inference.models import load_models
    from contextcliff_dagster.scoring.truncation import truncations, unchecked

    records = read_records(study, store, campaign)
    entries = load_models()
    profiles = []
    for model in in_order(study, records["model"].unique()):
        own = records[records["model"] == model]
        identity = recorded_identity(ledger, study.name, campaign, model)
        fields: Mapping[str, Any] = identity.fields if identity else {}
        window = identity.window_tokens if identity else None
        if window is None and model in entries:
            window = entries[model].window_tokens
        context = ProfileContext(
            model=model,
            study=study.name,
            campaign=campaign,
            task=study.task or _only(own["task"]),
            tokenizer=study.tokenizer,
            identity=identity.hash if identity else _only(own["identity_hash"]),
            window_tokens=window,
            score_name=study.scoring.primary,
            primary=study.scoring.primary,
            provenance=provenance(study, manifest, own, fields),
            warnings=[said for found in truncations(record_rows(own)) for said in unchecked(found)],
        )
        profile = profile_model(own, manifest.bins, study.analysis_settings(), context)
        folder = store.profile_dir(study.name, campaign, model)
        write_json(folder / "metrics.json", profile.metrics)
        write_json(folder / "cliffs.json", profile.cliffs)
        profiles.append(profile)
    return profiles


def record_rows(records: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows, None where nothing is known: pandas itself has NaN there in columns of numbers."""
    known = records.astype(object).where(records.notna(), None)
    return [dict(zip(known.columns, row, strict=True)) for row in known.itertuples(index=False)]


def provenance(
    study: Study, manifest: Manifest, records: pd.DataFrame, identity: Mapping[str, Any]
) -> dict[str, Any]:
    """Hashes, versions, seeds and times: what it takes to measure the same again."""
    import platform

    finished = records["finished_at"].dropna()
    return {
        "hashes": {
            "manifest": manifest.sha256,
            "manifest_spec": study.manifest_spec_hash(),
            "recipe": study.recipe().hash,
        },
        "identity": dict(identity),
        "seeds": {"sampling": study.sampling.seed},
        "versions": {
            **{
                name: _version(name)
                for name in ("contextcliff-dagster", "numpy", "scipy", "pandas")
            },
            "python": platform.python_version(),
            "schema": SCHEMA_VERSION,
        },
        "times": {
            "measured_from": finished.min().isoformat() if len(finished) else None,
            "measured_to": finished.max().isoformat() if len(finished) else None,
        },
    }


def read_cliffs(study: Study, store: Store, campaign: str) -> list[dict[str, Any]]:
    """The campaign's ``cliffs.json`` of every model, in the study's order.

    Raises:
        StoreError: there is none, or one is damaged.
    """
    found: dict[str, dict[str, Any]] = {}
    paths = sorted(store.profiles_dir(study.name, campaign).glob("*/cliffs.json"))
    for path in paths:
        try:
            cliffs = json.loads(path.read_bytes())
            found[cliffs["model"]] = cliffs
        except (OSError, ValueError, KeyError, TypeError) as fault:
            raise StoreError(
                f"{path} is damaged ({fault}); delete it and rebuild the report."
            ) from fault
    if not found:
        raise StoreError(
            f"Study {study.name!r} has no profile in campaign {campaign} yet; "
            "materialize `cliffs` first."
        )
    return [found[model] for model in in_order(study, found)]


def report_campaign(study: Study, store: Store, campaign: str) -> ReportFiles:
    """Write the campaign's report over all its models; ``latest`` then names this campaign.

    Raises:
        StoreError: nothing is profiled yet, or the report cannot be written.
    """
    from contextcliff_dagster.reporting.report import write_report

    folder = store.report_dir(study.name, campaign)
    files = write_report(
        read_cliffs(study, store, campaign),
        read_records(study, store, campaign),
        folder,
        title=study.description or study.name,
    )
    point_latest(folder)
    return files


def point_latest(folder: Path) -> None:
    """Make ``latest`` beside ``folder`` a link to it; where links are refused, a text file.

    Raises:
        StoreError: neither can be written.
    """
    latest, temporary = folder.parent / "latest", folder.parent / f".latest.{os.getpid()}.tmp"
    try:
        if latest.is_dir() and not latest.is_symlink():
            shutil.rmtree(latest)  # the store was copied without its links: this is a report's copy
        temporary.symlink_to(folder.name, target_is_directory=True)
        temporary.replace(latest)
    except OSError:
        temporary.unlink(missing_ok=True)
        write_atomic(latest, folder.name.encode())


def in_order(study: Study, models: Sequence[str] | Mapping[str, Any] | Any) -> list[str]:
    """``models`` with the study's own first, in its order, then the others by name."""
    rank = {model: number for number, model in enumerate(study.models)}
    return sorted(map(str, models), key=lambda model: (rank.get(model, len(rank)), model))


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:  # run from a source tree that was not installed
        return None


def _records_beside(predictions: Path) -> Path:
    return _sibling(predictions, "eval_records")


def _predictions_beside(records: Path) -> Path:
    return _sibling(records, "predictions")


def _sibling(file: Path, table: str) -> Path:
    """The same partition's file of another table (layout: ``Store``)."""
    *_, campaign, model, bin, _ = file.parts
    return file.parents[4] / table / campaign / model / bin / f"{table}.parquet"


def _tables(folder: Path) -> list[Path]:
    return sorted(folder.glob("model=*/bin=*/*.parquet"))


def _only(column: pd.Series) -> str | None:
    values = column.dropna().unique()
    return str(values[0]) if len(values) == 1 else None
