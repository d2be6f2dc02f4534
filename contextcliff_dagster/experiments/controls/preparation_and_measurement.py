"""Controls of a study: asking the same questions without their document, and judging the answers.

They are calls of their own, kept in the ledger like any; nothing of them enters the measured curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import CONTROL_PREDICTIONS, CONTROL_RECORDS, StoreError
from contextcliff_dagster.experiments.common.measurement import call_plan, entry_of
from contextcliff_dagster.sampling.controls import CONTROLS, Control, ControlSource
from contextcliff_dagster.store import Store, read_table, write_table
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.confounds.controls import ControlAnswers
    from contextcliff_dagster.inference.execution.run_control import RunControl
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.telemetry.progress import RunSummary
    from contextcliff_dagster.sampling.manifest import Manifest

Rows = list[dict[str, Any]]


def measure_controls(
    study: Study,
    manifest: Manifest,
    ledger: Ledger,
    campaign: str,
    model: str,
    bins: Sequence[str],
    *,
    samples_per_bin: int | None = None,
    control: RunControl,
) -> RunSummary:
    """Ask ``model`` every control of ``study`` that has no outcome yet; files are not written.

    Raises:
        EngineError, BudgetError, StoreError: see ``inference.measure``; what is measured is kept.
    """
    from contextcliff_dagster.inference.execution.measure import measure
    from contextcliff_dagster.inference.telemetry.progress import RunSummary

    n = min(samples_per_bin or study.sampling.samples_per_bin, study.sampling.samples_per_bin)
    total = RunSummary(planned=0)
    for name in study.controls:
        source = ControlSource(manifest, name)
        asked = [bin for bin in bins if source.planned(bin, n)]
        if not asked:
            continue
        plan = call_plan(study, source, campaign, asked, n)
        total = total.plus(measure(plan, entry_of(study, model), ledger, control))
        if total.stopped:
            break
    return total


def write_control_predictions(
    study: Study,
    store: Store,
    manifest: Manifest,
    ledger: Ledger,
    campaign: str,
    model: str,
    bin: str,
) -> Rows:
    """Write what the ledger holds of one bin's controls, without a call; the rows, if any."""
    rows = [
        {"control": control, **row}
        for control in CONTROLS
        for row in _ledger_rows(study, manifest, ledger, campaign, model, [bin], control)[1]
    ]
    if rows:
        file = store.control_file(CONTROL_PREDICTIONS.name, study.name, campaign, model, bin)
        write_table(file, rows, CONTROL_PREDICTIONS)
    return rows


def score_controls(
    study: Study, store: Store, manifest: Manifest, ledger: Ledger, campaign: str
) -> None:
    """Score the controls that the ledger holds of every model, also if ``study`` asks for none now.

    Records whose outputs were pruned stay as they were judged.

    Raises:
        StoreError: a table cannot be written.
    """
    from contextcliff_dagster.inference.ledger.queries import measured_models
    from contextcliff_dagster.scoring.evaluate import score_rows

    if not study.controls and not _any_asked(study, manifest, ledger, campaign):
        return
    recipe = study.recipe()
    whole = {p.example.example_id: p for bin in study.bin_keys for p in _all(manifest, bin)}
    for model in measured_models(ledger, study.name, campaign):
        by_bin: dict[str, Rows] = {}
        try:
            for control in CONTROLS:
                source, rows = _ledger_rows(
                    study, manifest, ledger, campaign, model, study.bin_keys, control
                )
                records = score_rows(
                    rows,
                    _examples(source, study.bin_keys, manifest) if rows else {},
                    source.document_text,
                    primary=study.scoring.primary,
                    scorer=study.scoring.scorer,
                    output_schema=recipe.output_schema,
                    max_output_tokens=recipe.max_output_tokens,
                    answer_prefix=recipe.answer_prefix or "",
                )
                for record in records:
                    sample = whole[record["example_id"]]
                    about = {
                        "control": control,
                        "document_id": sample.example.document_id,
                        "length_tokens": sample.length_tokens,
                    }
                    by_bin.setdefault(record["bin"], []).append({**record, **about})
        except StoreError:  # pruned: what was judged of them stands
            continue
        for bin in study.bin_keys:
            file = store.control_file(CONTROL_RECORDS.name, study.name, campaign, model, bin)
            if bin in by_bin:
                write_table(file, by_bin[bin], CONTROL_RECORDS)
            else:
                file.unlink(missing_ok=True)


def _any_asked(study: Study, manifest: Manifest, ledger: Ledger, campaign: str) -> bool:
    """Whether a call of the campaign is over a text that is none of the sample's documents."""
    known = set(manifest.documents["document_id"].to_pylist())
    asked = ledger.read(
        "SELECT DISTINCT document_id FROM calls WHERE study = ? AND campaign = ?",
        (study.name, campaign),
    )
    return any(row[0] not in known for row in asked)


def control_answers(
    study: Study, store: Store, manifest: Manifest, campaign: str, model: str
) -> list[ControlAnswers]:
    """The scored controls of ``model``, one item a control that has any."""
    from contextcliff_dagster.analysis.confounds.controls import ControlAnswers

    files = (
        store.control_file(CONTROL_RECORDS.name, study.name, campaign, model, bin)
        for bin in study.bin_keys
    )
    tables = [read_table(file, CONTROL_RECORDS) for file in files if file.exists()]
    if not tables:
        return []
    import pyarrow as pa

    records = pa.concat_tables(tables).to_pandas()
    found = []
    for control in CONTROLS:
        own = records[records["control"] == control]
        if len(own):
            source = ControlSource(manifest, control)
            known = {
                p.example.example_id
                for bin in study.bin_keys
                for p in source.planned(bin, manifest.examples.num_rows)
            }
            found.append(ControlAnswers(control, own.drop(columns="control"), frozenset(known)))
    return found


def _ledger_rows(
    study: Study,
    manifest: Manifest,
    ledger: Ledger,
    campaign: str,
    model: str,
    bins: Sequence[str],
    control: Control,
) -> tuple[ControlSource, Rows]:
    from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows

    source = ControlSource(manifest, control)
    plan = call_plan(study, source, campaign, bins, manifest.examples.num_rows)
    return source, prediction_rows(plan, model, ledger)


def _examples(source: ControlSource, bins: Sequence[str], manifest: Manifest) -> Mapping[str, Any]:
    n = manifest.examples.num_rows
    return {p.example.example_id: p.example for bin in bins for p in source.planned(bin, n)}


def _all(manifest: Manifest, bin: str) -> Sequence[Any]:
    return manifest.planned(bin, manifest.examples.num_rows)
