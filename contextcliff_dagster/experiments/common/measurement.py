"""Asking the models: cost beforehand, then every call that has no outcome yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import PREDICTIONS, StudyError
from contextcliff_dagster.inference.models.registry import get_model
from contextcliff_dagster.inference.spending.budget import Budget
from contextcliff_dagster.store import Store, write_table
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from contextcliff_dagster.inference.execution.cost_estimate import CostEstimate
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.models.registry import ModelEntry
    from contextcliff_dagster.inference.telemetry.progress import Progress, RunSummary
    from contextcliff_dagster.sampling.manifest import Manifest
    from contextcliff_dagster.sampling.sample_source import PlannedSample, SampleSource

Rows = Sequence[Mapping[str, Any]]


def open_ledger(store: Store) -> Ledger:
    """The store's call ledger; a context manager.

    Raises:
        StoreError: it cannot be opened.
    """
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    return Ledger.open(store.ledger)


def campaign_of(ledger: Ledger, study: Study, campaign: str | None = None) -> str:
    """``campaign``, or the study's current one; nothing is begun by asking.

    Raises:
        StudyError: ``campaign`` is named but was never begun: a misspelt one would measure, and
            pay for, everything again.
    """
    from contextcliff_dagster.inference.ledger.campaigns import current_campaign, list_campaigns

    if campaign is None:
        return current_campaign(ledger, study.name)
    known = [found.name for found in list_campaigns(ledger, study.name)]
    today = datetime.now(UTC).date()
    # A run names its study's first campaign as it starts; its steps may come after midnight.
    first = {today.isoformat(), (today - timedelta(days=1)).isoformat()}
    if campaign not in (known or first):
        raise StudyError(
            f"Study {study.name!r} has no campaign {campaign!r}; it has "
            f"{', '.join(known) or 'none'}, and "
            f"`contextcliff campaign new {study.name} --name {campaign}` begins one."
        )
    return campaign


def estimate_cost(study: Study, manifest: Manifest, ledger: Ledger, campaign: str) -> CostEstimate:
    """Tokens, money and time of the calls that have no outcome yet.

    Raises:
        StudyError: a model of the study is not in the registry.
    """
    from contextcliff_dagster.inference.execution.cost_estimate import estimate

    return estimate(
        manifest,
        [get_model(name) for name in study.models],
        study.recipe(),
        ledger,
        study=study.name,
        campaign=campaign,
        bins=study.bin_keys,
        n=study.sampling.samples_per_bin,
        controls=study.controls,
    )


def measure_bins(
    study: Study,
    store: Store,
    manifest: Manifest,
    ledger: Ledger,
    campaign: str,
    model: str,
    bins: Sequence[str],
    *,
    samples_per_bin: int | None = None,
    samples: Mapping[str, int] | None = None,
    budget: Budget | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    on_bin: Callable[[str, Rows], None] | None = None,
    until: float | None = None,
    say: Callable[[str], None] | None = None,
) -> RunSummary:
    """Ask ``model`` what it was not asked before, and write each finished bin's predictions.

    ``samples`` says how many examples each bin is to have, instead of one number for all.
    ``on_bin`` is called after a bin's file is written, with its rows; ``say`` where a device must
    be waited for.

    Raises:
        StudyError: no such model, or the manifest was drawn for fewer examples than asked for.
        EngineError, BudgetError, StoreError: see ``inference.measure``; what is measured is kept.
    """
    from contextcliff_dagster.inference.execution.measure import measure

    most = max(samples.values(), default=0) if samples is not None else samples_per_bin
    n = most or study.sampling.samples_per_bin
    if n > study.sampling.samples_per_bin:
        raise StudyError(
            f"{n} examples a bin are asked for, but study {study.name!r} is sampled with "
            f"{study.sampling.samples_per_bin}; raise sampling.samples_per_bin in the study and "
            "prepare it again (what is measured stays measured)."
        )

    def keep(bin: str, _: Rows) -> None:
        # The rows of this run alone would shrink a bin that an earlier, larger run has measured.
        rows = write_predictions(study, store, manifest, ledger, campaign, model, bin)
        if on_bin is not None:
            on_bin(bin, rows)

    return measure(
        manifest if samples is None else OfEachBin(manifest, samples),
        entry_of(study, model),
        study.recipe(),
        ledger,
        study=study.name,
        campaign=campaign,
        bins=bins,
        n=n,
        budget=budget or Budget(usd=study.budget.usd),
        progress=progress,
        stop=stop,
        on_bin=keep,
        until=until,
        say=say,
    )


def entry_of(study: Study, model: str) -> ModelEntry:
    """The model's entry, at most as many calls at once as the study allows.

    Raises:
        StudyError: no such model.
    """
    entry = get_model(model)
    if study.calls.concurrency is None:
        return entry
    fewer = min(entry.concurrency, study.calls.concurrency)
    return entry.model_copy(update={"concurrency": fewer})


class OfEachBin:
    """A manifest that gives of each bin only as many examples as ``samples`` says."""

    def __init__(self, source: SampleSource, samples: Mapping[str, int]) -> None:
        self._source, self._samples = source, samples

    def planned(self, bin: str, n: int) -> Sequence[PlannedSample]:
        return self._source.planned(bin, min(n, self._samples.get(bin, 0)))

    def document_text(self, document_id: str) -> str:
        return self._source.document_text(document_id)


def models_left(
    study: Study,
    store: Store,
    campaign: str | None,
    bins_of: Mapping[str, Sequence[str]],
    samples_per_bin: int | None = None,
) -> list[str]:
    """Those of ``bins_of`` (model -> bins) that `measure_bins` would ask something.

    Raises:
        StudyError: no such campaign, or no manifest is drawn.
        StoreError: the ledger cannot be read.
    """
    from contextcliff_dagster.experiments.common.preparation import load_frozen
    from contextcliff_dagster.inference.execution.measure import finished

    manifest = load_frozen(study, store)
    n = samples_per_bin or study.sampling.samples_per_bin
    with open_ledger(store) as ledger:
        dated = campaign_of(ledger, study, campaign)
        recipe = study.recipe()
        return [
            model
            for model, bins in bins_of.items()
            if not finished(
                *(manifest, model, recipe, ledger), study=study.name, campaign=dated, bins=bins, n=n
            )
        ]


def write_predictions(
    study: Study,
    store: Store,
    manifest: Manifest,
    ledger: Ledger,
    campaign: str,
    model: str,
    bin: str,
) -> Rows:
    """Write what the ledger holds for one bin, without a call; its rows, if any.

    All that the manifest holds, however few ``study`` asks for: a smaller run shrinks no bin.
    """
    from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows

    rows = prediction_rows(
        manifest,
        ledger,
        study=study.name,
        campaign=campaign,
        model=model,
        recipe=study.recipe(),
        bins=[bin],
        n=manifest.examples.num_rows,
    )
    if rows:
        write_table(store.predictions_file(study.name, campaign, model, bin), rows, PREDICTIONS)
    return rows
