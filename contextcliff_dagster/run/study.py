"""In-process materialization of a study's assets, for the command line and notebooks."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.contracts import EVAL_RECORDS, ContextCliffError, EngineError, Verdict
from contextcliff_dagster.contracts.errors import DataError
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.experiments.common.documents import new_files_note
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.measurement import estimate_cost
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import (
    asked_experiments,
    judged_assets,
    measuring_assets,
    partitioned,
)
from contextcliff_dagster.inference.execution.cost_estimate import CostEstimate
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.telemetry import Progress, RunSummary
from contextcliff_dagster.private_files import make_folder
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.scoring.scorers import open_scorer
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, kept_in
from contextcliff_dagster.studies.study import Leave, study_used

if TYPE_CHECKING:
    import dagster as dg

    from contextcliff_dagster.archive.study import ArchiveSummary
    from contextcliff_dagster.defs.asset_specs import Config
    from contextcliff_dagster.defs.resources import Watch
    from contextcliff_dagster.inference.execution.run_control import Batching
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section


@dataclass(frozen=True)
class LocalRuns:
    """In-process runs that materialize the assets of a study's campaign.

    ``instance`` records the runs; None means ``DAGSTER_HOME``'s instance, or no record without it.
    ``cause`` says what started the runs and tags each. ``with_answers``: whether the report
    includes questions and answers.
    """

    study: Study
    store: Store
    campaign: str
    instance: dg.DagsterInstance | None = None
    cause: str = "python"
    with_answers: bool = False

    @classmethod
    def of(
        cls,
        study: Study,
        store: Store,
        campaign: str | None = None,
        instance: dg.DagsterInstance | None = None,
        cause: str = "python",
        with_answers: bool = False,
    ) -> LocalRuns:
        """Return the runs of ``campaign``, or of the study's current one if None.

        Raises:
            StudyError: there is no such campaign.
        """
        with StudyRun.open(study, store, campaign) as run:
            return cls(study, store, run.campaign, instance, cause, with_answers)

    def materialize(
        self,
        experiment: Experiment | None,
        names: Sequence[str],
        config: Config | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Materialize the named assets of the campaign, those made of answers in a second run.

        ``experiment``: the experiment whose cells the run covers (its documents' partitions if
        ``names`` has its document asset); None if no call is made. ``config``: of ops.

        Raises:
            ContextCliffError: an asset failed.
        """
        from contextcliff_dagster.defs.asset_specs import (
            documents_job_name,
            job_name,
            report_job_name,
        )
        from contextcliff_dagster.defs.dagster_internals import PARTITION_NAME_TAG
        from contextcliff_dagster.defs.partitions import document_range_tags, range_tags

        study, every = self.study, partitioned(self.study)
        judged = {"report", *(name for each in every for name in judged_assets(each))}
        # Jobs of the code location, so that their pages show the runs.
        job, partitions = job_name(study, experiment or every[0]), {}
        if experiment is not None and {*names} & {*experiment.document_assets()[:1]}:
            job = documents_job_name(study, experiment)
            partitions = document_range_tags(study, experiment)
        elif experiment is not None:
            partitions = range_tags(study, experiment, self.campaign)
        if before := [name for name in names if name not in judged]:
            self._run(job, before, partitions, config, watch)
        if watch is not None and watch.in_batches:
            return  # judged once the answers are there
        if after := [name for name in names if name in judged]:
            campaign = {PARTITION_NAME_TAG: self.campaign}
            self._run(report_job_name(study), after, campaign, config, watch)

    def _run(
        self,
        job: str,
        names: Sequence[str],
        partitions: Mapping[str, str],
        config: Config | None,
        watch: Watch | None,
    ) -> None:
        import dagster as dg

        from contextcliff_dagster.defs.asset_specs import (
            asset_key,
            refusals_raised,
            run_config,
            run_tags,
        )
        from contextcliff_dagster.defs.dagster_internals import output_to_terminal
        from contextcliff_dagster.defs.partitions import add_campaign
        from contextcliff_dagster.defs.resources import run_resources
        from contextcliff_dagster.defs.studies import study_assets

        study, instance = self.study, self.instance
        if instance is None and os.environ.get("DAGSTER_HOME"):
            instance = dg.DagsterInstance.get()
        selection = dg.AssetSelection.assets(*(asset_key(study, name) for name in names))
        definitions = dg.Definitions(
            assets=study_assets(study, launched=False),
            jobs=[dg.define_asset_job(job, selection)],
            resources=run_resources(self.store.root, watch),
        )
        tags = {**run_tags(study, self.campaign, self.cause), **partitions}
        ops = {name: of for name, of in (config or {}).items() if name in names}
        if self.with_answers and "report" in names:
            ops["report"] = {"with_answers": True}
        if "cost_estimate" in names:
            ops["cost_estimate"] = {"campaign": self.campaign}
        settings = run_config(study, ops)
        # The terminal belongs to the caller: Dagster's own lines go to its event log only.
        level = "DEBUG" if os.environ.get("CONTEXTCLIFF_VERBOSE") else "CRITICAL"
        settings["loggers"] = {"console": {"config": {"log_level": level}}}
        with suppress(OSError):  # the write itself reports its error
            make_folder(self.store.root)
        with (
            study_used(self.store, study.name),
            nullcontext(instance) if instance else dg.DagsterInstance.ephemeral() as recorder,
            output_to_terminal(),
            refusals_raised(),
        ):
            if partitions:
                add_campaign(recorder, study, self.campaign)
            definitions.resolve_job_def(job).execute_in_process(
                instance=recorder, tags=tags, run_config=settings
            )


class ArchivedStudy(NamedTuple):
    """The contents of an archive, its results, and the store that it was unpacked into."""

    summary: ArchiveSummary
    done: Profiled
    store: Store


def is_archive(file: Path) -> bool:
    """Return whether `contextcliff export` wrote ``file``."""
    from contextcliff_dagster.archive.container import ARCHIVE_HEAD

    try:
        if not zipfile.is_zipfile(file):
            return False
        with zipfile.ZipFile(file) as archive:
            return ARCHIVE_HEAD in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def rebuild_archive(file: Path, folder: Path, *, with_answers: bool = False) -> ArchivedStudy:
    """Unpack ``file`` into a store below ``folder`` and build its newest campaign's report.

    ``with_answers``: whether report.html includes questions and answers.

    Raises:
        ContextCliffError: the archive is not intact (see `import_study`), or the ledger is a
            database, which the archive would be written to.
    """
    from contextcliff_dagster.archive.study import import_study
    from contextcliff_dagster.experiments.restore import restore

    if os.environ.get("CONTEXTCLIFF_LEDGER"):
        raise DataError(
            f"{file} is an archive, which would be written to the database in CONTEXTCLIFF_LEDGER; "
            "bring it into a store with `contextcliff import`."
        )
    store = Store(folder)
    study, summary = import_study(store, file, restore=restore)
    study = study.with_leave(Leave(kept_in(store.root)))
    return ArchivedStudy(
        summary, rebuild_report(study, store=store, with_answers=with_answers), store
    )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A study that is ready to be measured, with its frozen sample and its cost estimate.

    ``manifest`` is None for a study whose experiments generate their own documents.
    ``kept``: whether the sample is in the store; see ``keep`` of :func:`prepare_study`.
    ``audit`` is the distribution audit as a JSON object; None if the corpus was not needed and
    therefore not read.
    """

    study: Study
    manifest: Manifest | None
    estimate: CostEstimate
    audit: Mapping[str, Any] | None = None
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Profiled:
    """A measured study. ``calls`` is empty if only files were rebuilt.

    ``cliffs``: length-profile results, one per model. ``sections``: caps of KV policies, wrong
    answers of models at the floor, and the report's sections on the study's other experiments.
    ``notes``: the report's notes on models left out of it, and why.
    ``unchecked``: number of answers in the campaign, of the measured models, whose prompts could
    not be checked for silent truncation; None without a length profile.
    """

    study: Study
    campaign: str
    cliffs: list[Cliffs]
    report: ReportFiles
    calls: Mapping[str, RunSummary] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sections: Sequence[Section] = ()
    unchecked: int | None = None


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
    cause: str = "python",
) -> Prepared:
    """Freeze the manifest from the corpus, and estimate the cost, without making calls.

    A manifest frozen for the same specification is reused without opening the corpus. With
    ``reread``, the corpus is opened again, and a new sample is drawn if its bytes have changed.
    With ``keep=False``, neither the store nor Dagster's records change: a new sample is drawn in a
    temporary folder.

    Raises:
        ContextCliffError: the study cannot be prepared; nothing measured is lost.
    """
    import dagster as dg

    from contextcliff_dagster.defs.asset_specs import PREPARATION
    from contextcliff_dagster.defs.resources import Watch
    from contextcliff_dagster.experiments.common import preparation

    study, store = _as_asked(study, models, samples_per_bin, seed), store or Store.default()
    for model in study.models:
        get_model(model)
    study.recipe()  # reports missing parts of prompt and scoring before anything is drawn
    open_scorer(study.scoring.scorer)
    sampled = study.has_corpus
    frozen = not sampled or (not reread and preparation.find_frozen(study, store) is not None)
    with nullcontext(store.root) if keep else TemporaryDirectory(prefix="contextcliff-") as root:
        temporary = Store(Path(root))
        drawn, ledgered = store if frozen else temporary, store if store.has_ledger else temporary
        with StudyRun.open(study, ledgered, campaign) as run:
            name = run.campaign
        watch = Watch()
        manifests = _make_documents(LocalRuns(study, store, name, instance, cause)) if keep else []
        if not frozen or manifests:
            names = [*(() if frozen else PREPARATION), *manifests]
            where = instance if keep else dg.DagsterInstance.ephemeral()
            runs = LocalRuns(study, drawn, name, where, cause)
            config = {} if frozen else {"raw_corpus": {"reread": reread}}
            runs.materialize(None, [*names, "cost_estimate"] if keep else names, config, watch)
        manifest = preparation.load_frozen(study, drawn) if sampled else None
        if manifest is not None and not frozen and not keep:
            texts = manifest.documents  # while the temporary folder is there
            manifest = replace(manifest, read_documents=lambda: texts)
        if (estimate := watch.estimate) is None:
            with StudyRun.open(study, ledgered, name) as run:
                estimate = estimate_cost(replace(run, store=drawn), asked_experiments(study))
        audit = preparation.prepare_audit(study, drawn) if sampled else None
        account = manifest.header["corpus"].get("account", {}) if manifest else {}
        if note := new_files_note(study, drawn, account):
            estimate = replace(estimate, notes=(*estimate.notes, note))
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
    on_progress: Callable[[str, Progress], None] | None = None,
    on_wait: Callable[[str], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    wait_for_batches: bool = False,
    store: Store | None = None,
    instance: dg.DagsterInstance | None = None,
    cause: str = "python",
    with_answers: bool = False,
) -> Profiled:
    """Make the missing calls, then score, analyse and report.

    Args:
        models, samples_per_bin, seed: values that override the study's; another seed gives another
            study (see :meth:`Study.with_seed`).
        campaign: name of the campaign; None for the current one.
        budget: limit on spending; None for the study's.
        deadline_s: seconds after which no call is sent; None for the study's.
        on_progress: called with the model's name while its calls run.
        on_wait: called with a sentence if a device that a model needs is in use, or if the length
            of its window is unknown.
        should_stop: called between calls; True ends the run cleanly and keeps all answers.
        wait_for_batches: whether to wait for the answers of a study with ``calls: {batch: true}``.
        store: the store; None for :meth:`Store.default`.
        instance: Dagster instance that records the runs; None for ``DAGSTER_HOME``'s, if it is set.
        cause: what started the runs, a tag of each.
        with_answers: whether report.html includes questions and answers.

    Raises:
        BatchesOpenError: calls wait in batches; the same call goes on when their answers are there.
        EngineError: a model failed before the end; its answers so far are still reported, and are
            in the error's ``measured``.
        ContextCliffError: measuring failed; nothing measured is lost.
    """
    from contextcliff_dagster.defs.asset_specs import PREPARATION
    from contextcliff_dagster.defs.resources import Watch
    from contextcliff_dagster.experiments.common import preparation

    study, store = _as_asked(study, models, samples_per_bin, seed), store or Store.default()
    for model in study.models:
        get_model(model)
    runs = LocalRuns.of(study, store, campaign, instance, cause, with_answers)
    batching: Batching | None = "wait" if wait_for_batches and study.calls.batch else None
    watch = Watch(on_progress, should_stop, budget, on_wait, deadline_s, batching)
    # A frozen manifest needs no corpus: neither opened nor counted again.
    frozen = not study.has_corpus or preparation.find_frozen(study, store) is not None
    manifests = _make_documents(runs)
    try:
        _materialize(runs, [*(() if frozen else PREPARATION), *manifests, "cost_estimate"], watch)
    except EngineError as error:
        with suppress(ContextCliffError):  # nothing was answered
            _materialize(runs, from_ledger_only=True)
            error.measured = read_profiled(study, store, runs.campaign, watch.calls)
        raise
    watch.require_answers(study.name, runs.campaign)
    return read_profiled(study, store, runs.campaign, watch.calls)


def resume_batches(
    study: Study,
    campaign: str,
    *,
    on_wait: Callable[[str], None] | None = None,
    store: Store | None = None,
    instance: dg.DagsterInstance | None = None,
    cause: str = "python",
) -> Profiled:
    """Take in the answers of the study's open batches, ask again what those that have ended did not
    answer, and report; see :func:`profile_study`.

    Raises:
        BatchesOpenError: calls still wait for their answers.
        ContextCliffError: measuring failed; nothing measured is lost.
    """
    from contextcliff_dagster.defs.resources import Watch
    from contextcliff_dagster.experiments.common import preparation

    store = store or Store.default()
    if study.has_corpus:
        study = preparation.as_drawn(study, store)
    runs = LocalRuns.of(study, store, campaign, instance, cause)
    watch = Watch(on_wait=on_wait, batching="resume")
    _materialize(runs, watch=watch)
    watch.require_answers(study.name, campaign)
    return read_profiled(study, store, campaign, watch.calls)


def rebuild_report(
    study: Study,
    *,
    models: Sequence[str] | None = None,
    seed: int | None = None,
    campaign: str | None = None,
    store: Store | None = None,
    instance: dg.DagsterInstance | None = None,
    cause: str = "python",
    with_answers: bool = False,
) -> Profiled:
    """Rebuild records, profiles and report from the ledger and the manifest, without calls.

    If the study requests more examples than its frozen sample has, the report covers the sample.
    ``with_answers``: whether report.html includes questions and answers.

    Raises:
        StudyError: nothing is measured yet.
    """
    from contextcliff_dagster.experiments.common import preparation

    study, store = _as_asked(study, models, None, seed), store or Store.default()
    if study.has_corpus:
        study = preparation.as_drawn(study, store)
        preparation.load_frozen(study, store)
    runs = LocalRuns.of(study, store, campaign, instance, cause, with_answers)
    _materialize(runs, from_ledger_only=True)
    return read_profiled(study, store, runs.campaign, {})


def _make_documents(runs: LocalRuns) -> list[str]:
    """Generate the missing ones among the documents that the study's experiments store.

    Returns:
        The names of the assets that list these documents, to be materialized next.
    """
    manifests: list[str] = []
    for experiment in asked_experiments(runs.study):
        documents = experiment.documents
        if documents is not None and documents.frozen(runs.study, runs.store) is None:
            runs.materialize(experiment, experiment.document_assets()[:1])
            manifests += experiment.document_assets()[1:]
    return manifests


def _materialize(
    runs: LocalRuns,
    before: Sequence[str] = (),
    watch: Watch | None = None,
    *,
    from_ledger_only: bool = False,
) -> None:
    """Materialize the assets ``before`` and those of every experiment, the report with the last."""
    experiments = partitioned(runs.study)
    for experiment in experiments:
        asking = measuring_assets(runs.study, experiment)
        last = ["report"] if experiment is experiments[-1] else []
        names = [*before, *asking, *judged_assets(experiment), *last]
        config = {name: {"from_ledger_only": True} for name in asking if from_ledger_only}
        runs.materialize(experiment, names, config, watch)
        before = ()


def _as_asked(
    study: Study, models: Sequence[str] | None, samples_per_bin: int | None, seed: int | None
) -> Study:
    if seed is not None:
        study = study.with_seed(seed)
    if samples_per_bin is not None:
        study = study.with_samples(samples_per_bin)
    return study if models is None else study.with_models(models)


def read_profiled(
    study: Study, store: Store, campaign: str, calls: Mapping[str, RunSummary]
) -> Profiled:
    """Return the results in the store without rebuilding anything.

    Raises:
        StoreError: there are no results.
    """
    from contextcliff_dagster.experiments.common.records import read_record_table
    from contextcliff_dagster.experiments.length_profile.profile_and_report import (
        floor_sections,
        kv_sections,
    )
    from contextcliff_dagster.experiments.length_profile.profile_files import (
        read_cliffs,
        read_notes,
    )
    from contextcliff_dagster.experiments.study_report import study_sections
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.scoring.evaluate import COLUMNS, truncations

    folder = store.report_dir(study.name, campaign)
    page, machine, html = (folder / f"report.{kind}" for kind in ("md", "json", "html"))
    files = ReportFiles(page, machine, html, folder / "report.png" if study.has_corpus else None)
    cliffs = read_cliffs(study, store, campaign) if study.has_corpus else []
    sections: Sequence[Section] = ()
    others = any(experiment.name != "length_profile" for experiment in partitioned(study))
    floors = any(r.verdict is Verdict.FLOOR or not any(b.mean for b in r.bins) for r in cliffs)
    if others or floors or len(cliffs) > 1:  # several may be KV policies of one model
        with StudyRun.open(study, store, campaign, to_read=True) as run:
            sections = [
                *kv_sections(run, cliffs),
                *floor_sections(run, cliffs),
                *(study_sections(run) if others else ()),
            ]
    unchecked = None
    if study.has_corpus and calls:
        table = read_record_table(EVAL_RECORDS, study, store, campaign)
        rows = [row for row in table.select(COLUMNS).to_pylist() if row["model"] in calls]
        unchecked = sum(cut.unchecked for cut in truncations(rows))
    notes = read_notes(files.json)
    return Profiled(study, campaign, cliffs, files, calls, notes, sections, unchecked)
