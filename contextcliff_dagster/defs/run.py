"""The same assets, materialized in this process: what the command line and notebooks call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.inference.progress import Progress, RunSummary
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import dagster as dg

    from contextcliff_dagster.inference.budget import Budget
    from contextcliff_dagster.inference.cost import CostEstimate
    from contextcliff_dagster.reporting.report import ReportFiles
    from contextcliff_dagster.sampling.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Prepared:
    """A study that is ready to be measured: its frozen sample, and what measuring it would cost.

    ``audit`` is the distribution audit as a JSON object; None where the corpus is no longer needed
    and was not read.
    """

    study: Study
    manifest: Manifest
    estimate: CostEstimate
    audit: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Profiled:
    """A measured study. ``calls`` is empty where nothing but files was rebuilt."""

    study: Study
    campaign: str
    cliffs: list[dict[str, Any]]
    report: ReportFiles
    calls: Mapping[str, RunSummary] = field(default_factory=dict)


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
    store: Store | None = None,
    instance: dg.DagsterInstance | None = None,
) -> Prepared:
    """Corpus to frozen manifest and cost estimate; makes no call.

    A manifest that was frozen for the same specification is reused: the corpus is then not opened.
    ``reread=True`` opens it again, and draws a new sample if its bytes have changed.

    Raises:
        ContextCliffError: one sentence; nothing measured is lost.
    """
    raise NotImplementedError


def profile_study(
    study: Study,
    *,
    models: Sequence[str] | None = None,
    samples_per_bin: int | None = None,
    seed: int | None = None,
    campaign: str | None = None,
    budget: Budget | None = None,
    on_progress: OnProgress | None = None,
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
        stop: asked between calls; True ends cleanly, with what is measured kept.
        store: :meth:`Store.default` when None.
        instance: where the runs are recorded; ``DAGSTER_HOME``'s when that is set, else nowhere.

    Raises:
        ContextCliffError: one sentence; nothing measured is lost.
    """
    raise NotImplementedError


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

    Raises:
        StudyError: nothing is measured yet.
    """
    raise NotImplementedError
