"""The same assets, materialized in this process: what the command line and notebooks call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import ContextCliffError, EngineError
from contextcliff_dagster.defs.watch import Watch
from contextcliff_dagster.inference.models.registry import get_model
from contextcliff_dagster.inference.telemetry.progress import Progress, RunSummary
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import dagster as dg

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.inference.execution.cost_estimate import CostEstimate
    from contextcliff_dagster.inference.spending.budget import Budget
    from contextcliff_dagster.reporting.report import ReportFiles
    from contextcliff_dagster.sampling.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Prepared:
    """A study that is ready to be measured: its frozen sample, and what measuring it would cost.

    ``kept``: whether the sample lies in the store; see ``keep`` of :func:`prepare_study`.
    ``audit`` is the distribution audit as a JSON object; None where the corpus is no longer needed
    and was not read.
    """

    study: Study
    manifest: Manifest
    estimate: CostEstimate
    audit: Mapping[str, Any] | None = None
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Profiled:
    """A measured study. ``calls`` is empty where nothing but files was rebuilt.

    ``notes``: those of the report: who is left out of it, and why.
    """

    study: Study
    campaign: str
    cliffs: list[Cliffs]
    report: ReportFiles
    calls: Mapping[str, RunSummary] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


PREPARATION = ("raw_corpus", "length_map", "distribution_audit", "manifest")
JUDGEMENT = ("eval_records", "metrics", "cliffs", "report")
JUDGEMENT_OPS = ("eval_records", "profile", "report")
"""Ops of ``JUDGEMENT``: metrics and cliffs are made by one."""

OnProgress = Callable[[str, Progress], None]
"""Called with the model's name while its calls run."""


def prepare_study(
    study: Study,
    *,
    models: Sequence[str] | None = None,
    samples_per_bin: int | None = None,
    seed: int | None = None,
    campaign: str | None = None,
    reread: bool = False,
    keep: bool = True,
    store: Store | None = None,
    instance: dg.DagsterInstance | None = None,
) -> Prepared:
    """Corpus to frozen manifest and cost estimate; makes no call.

    A manifest that was frozen for the same specification is reused: the corpus is then not opened.
    ``reread=True`` opens it again, and draws a new sample if its bytes have changed. ``keep=False``
    changes neither the store nor Dagster's records: what is not frozen yet is drawn in a temporary
    folder.

    Raises:
        ContextCliffError: one sentence; nothing measured is lost.
    """
    import dagster as dg

    from contextcliff_dagster.experiments.common import measurement, preparation

    study, store = _as_asked(study, models, samples_per_bin, seed), store or Store.default()
    for model in study.models:
        get_model(model)
    frozen = not reread and preparation.find_frozen(study, store) is not None
    with nullcontext(store.root) if keep else TemporaryDirectory(prefix="contextcliff-") as root:
        aside = Store(Path(root))
        drawn, ledgered = store if frozen else aside, store if store.has_ledger else aside
        with measurement.open_ledger(ledgered) as ledger:
            name = measurement.campaign_of(ledger, study, campaign)
        if not frozen:
            config: dict[str, Mapping[str, Any]] = {"raw_corpus": {"reread": reread}}
            if keep:
                config["cost_estimate"] = {"campaign": name}
            names = (*PREPARATION, "cost_estimate") if keep else PREPARATION
            where = instance if keep else dg.DagsterInstance.ephemeral()
            run_assets(study, drawn, where, names, config, Watch())
        manifest = preparation.load_frozen(study, drawn)
        with measurement.open_ledger(ledgered) as ledger:
            estimate = measurement.estimate_cost(study, manifest, ledger, name)
        audit = preparation.prepare_audit(study, drawn)
    return Prepared(study, manifest, estimate, audit, kept=keep or frozen)


def profile_study(
    study: Study,
    *,
    models: Sequence[str] | None = None,
    samples_per_bin: int | None = None,
    seed: int | None = None,
    campaign: str | None = None,
    budget: Budget | None = None,
    deadline_s: float | None = None,
    on_progress: OnProgress | None = None,
    on_wait: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
    store: Store | None = None,
    instance: dg.DagsterInstance | None = None,
) -> Profiled:
    """Measure what is not measured yet, then score, analyse and report.

    Args:
        models, samples_per_bin, seed: instead of the study's own; another seed is another study
            (see :meth:`Study.with_seed`).
        campaign: the current one when None.
        budget: the study's own when None.
        deadline_s: seconds after which no call is sent; the study's own when None.
        on_progress: called while calls run.
        on_wait: told, in a sentence, where a device that a model needs is in use, and where nobody
            says how long its window is.
        stop: asked between calls; True ends cleanly, with what is measured kept.
        store: :meth:`Store.default` when None.
        instance: where the runs are recorded; ``DAGSTER_HOME``'s when that is set, else nowhere.

    Raises:
        ContextCliffError: one sentence; nothing measured is lost.
    """
    from contextcliff_dagster.experiments.common import measurement, preparation

    study, store = _as_asked(study, models, samples_per_bin, seed), store or Store.default()
    for model in study.models:
        get_model(model)
    with measurement.open_ledger(store) as ledger:
        campaign = measurement.campaign_of(ledger, study, campaign)
    watch = Watch(on_progress, stop, budget, on_wait, deadline_s=deadline_s)
    # A frozen manifest needs no corpus: neither opened nor counted again.
    frozen = preparation.find_frozen(study, store) is not None
    asking = ("cost_estimate", "predictions", *(("control_predictions",) if study.controls else ()))
    chosen = (*(() if frozen else PREPARATION), *asking, *JUDGEMENT)
    dated = {"campaign": campaign}
    config = dict.fromkeys((*asking, *JUDGEMENT_OPS), dated)
    run_assets(study, store, instance, chosen, config, watch)
    return as_it_stands(study, store, campaign, watch.calls)


def rebuild_report(
    study: Study,
    *,
    models: Sequence[str] | None = None,
    seed: int | None = None,
    campaign: str | None = None,
    store: Store | None = None,
    instance: dg.DagsterInstance | None = None,
) -> Profiled:
    """Records, profiles and report again, from the ledger and the manifest alone; makes no call.

    A study that asks for more examples than its frozen sample has is reported from those.

    Raises:
        StudyError: nothing is measured yet.
    """
    from contextcliff_dagster.experiments.common import measurement, preparation

    study, store = _as_asked(study, models, None, seed), store or Store.default()
    study = preparation.as_drawn(study, store)
    preparation.load_frozen(study, store)
    with measurement.open_ledger(store) as ledger:
        campaign = measurement.campaign_of(ledger, study, campaign)
    dated = {"campaign": campaign}
    config: dict[str, Mapping[str, Any]] = {
        **dict.fromkeys(JUDGEMENT_OPS, dated),
        "predictions": {**dated, "from_ledger_only": True},
    }
    run_assets(study, store, instance, ("predictions", *JUDGEMENT), config, Watch())
    return as_it_stands(study, store, campaign, {})


def _as_asked(
    study: Study,
    models: Sequence[str] | None,
    samples_per_bin: int | None,
    seed: int | None,
) -> Study:
    if seed is not None:
        study = study.with_seed(seed)
    if samples_per_bin is not None:
        study = study.with_samples(samples_per_bin)
    return study if models is None else study.with_models(models)


def run_assets(
    study: Study,
    store: Store,
    instance: dg.DagsterInstance | None,
    names: Sequence[str],
    config: Mapping[str, Mapping[str, Any]],
    watch: Watch,
) -> None:
    """Materialize the named assets of ``study`` in one run in this process; faults come through."""
    import dagster as dg
    from dagster._core.errors import DagsterAssetCheckFailedError

    from contextcliff_dagster.defs.asset_specs import asset_key, group
    from contextcliff_dagster.defs.partitions import range_tags
    from contextcliff_dagster.defs.resources import StoreResource
    from contextcliff_dagster.defs.studies import study_assets

    if instance is None and os.environ.get("DAGSTER_HOME"):
        instance = dg.DagsterInstance.get()
    ops = {f"{group(study)}__{op}": {"config": dict(values)} for op, values in config.items()}
    try:
        dg.materialize(
            study_assets(study),
            selection=[asset_key(study, name) for name in names],
            resources={"store": StoreResource(root=str(store.root)), "watch": watch},
            instance=instance,
            tags=range_tags(study) if "predictions" in names else {},
            run_config={
                "ops": ops,
                # The terminal belongs to the caller: Dagster's own lines go to its event log only.
                "loggers": {"console": {"config": {"log_level": _console_level()}}},
            },
        )
    except DagsterAssetCheckFailedError as fault:
        # The exception names the check; a person wants to know what failed and what to do.
        raise _refusal(study, store, str(config["eval_records"]["campaign"]), fault) from fault


def _refusal(study: Study, store: Store, campaign: str, fault: Exception) -> ContextCliffError:
    """The sentence of the blocking check, `no_silent_truncation`."""
    from contextcliff_dagster.defs.checks import cut_without_a_word
    from contextcliff_dagster.experiments.length_profile.profile_and_report import (
        read_records,
        record_rows,
    )
    from contextcliff_dagster.scoring.truncation import refusal

    cut = cut_without_a_word(study, record_rows(read_records(study, store, campaign)))
    if not cut:
        return ContextCliffError(f"{fault}; the run's asset checks say why.")
    return EngineError(" ".join(refusal(model, study.name) for model in cut))


def _console_level() -> str:
    return "DEBUG" if os.environ.get("CONTEXTCLIFF_VERBOSE") else "CRITICAL"


def as_it_stands(
    study: Study, store: Store, campaign: str, calls: Mapping[str, RunSummary]
) -> Profiled:
    """The results in the store, nothing made again.

    Raises:
        StoreError: there are none.
    """
    from contextcliff_dagster.experiments.length_profile.profile_files import (
        read_cliffs,
        read_notes,
    )
    from contextcliff_dagster.reporting.report import ReportFiles

    folder = store.report_dir(study.name, campaign)
    files = ReportFiles(folder / "report.md", folder / "report.json", folder / "report.png")
    cliffs = read_cliffs(study, store, campaign)
    return Profiled(study, campaign, cliffs, files, calls, read_notes(files.json))
