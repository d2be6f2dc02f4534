"""Selection and reading of a campaign's answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.cli.display.output import Survey, is_right, is_wrong
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.requests.call_plan import PlannedCall
    from contextcliff_dagster.studies import Study


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options that select answers; empty options select all."""

    models: tuple[str, ...]
    bins: tuple[str, ...]
    failures: tuple[str, ...]
    wrong: bool
    right: bool
    control: str | None
    limit: int | None

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the matching answers of the chosen models and bins, before the limit."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.wrong:
            return rows.filter(is_wrong(rows))
        if self.right:
            return rows.filter(is_right(rows))
        if self.failures:
            return rows.filter(pc.is_in(rows["failure"], value_set=pa.array(self.failures)))
        return rows


class ChosenAnswers:
    """The selected answers of a campaign, read anew on each call."""

    def __init__(self, run: StudyRun, wanted: Wanted) -> None:
        self._run, self._wanted = run, wanted
        self._experiments = _experiments(run.study, wanted.control)
        self._require_known()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the answers by bin, then length; `ANSWERS` as values."""
        for table in self._tables():
            yield from table.to_pylist()

    def calls(self, example_id: str) -> list[PlannedCall]:
        """Return the calls that asked about an example; empty if the sample lacks it."""
        from contextcliff_dagster.experiments.common.measurement import example_calls
        from contextcliff_dagster.experiments.common.preparation import as_drawn

        with suppress(StudyError):  # the sample is gone
            run = replace(self._run, study=as_drawn(self._run.study, self._run.store))
            return [
                call
                for experiment in self._experiments
                for call in example_calls(run, experiment, example_id)
            ]
        return []

    def survey(self) -> Survey:
        """Return counts of the chosen models and bins, and the widths of the shown columns."""
        survey, left = Survey(), self._wanted.limit
        for table in self._read():
            survey.count(table)
            selected = self._wanted.of(table).slice(0, left)
            survey.measure(selected)
            left = None if left is None else left - selected.num_rows
        return survey

    def _tables(self) -> Iterator[pa.Table]:
        left = self._wanted.limit
        for table in self._read():
            selected = self._wanted.of(table).slice(0, left)
            yield selected
            if left is not None and (left := left - selected.num_rows) <= 0:
                return

    def _read(self) -> Iterator[pa.Table]:
        from contextcliff_dagster.experiments.common.answers import iter_answers

        models, bins, control = self._wanted.models, self._wanted.bins, self._wanted.control
        for experiment in self._experiments:
            for table in iter_answers(self._run, models or None, bins or None, experiment):
                if control is None:
                    yield table
                else:
                    yield table.filter([c == control for c in table["control"].to_pylist()])

    def _require_known(self) -> None:
        """Raise StudyError for a model or bin without answers, listing those with answers."""
        from contextcliff_dagster.experiments.common.answers import answered_cells

        bins_by_model: dict[str, set[str]] = {}
        for experiment in self._experiments:
            for model, cells in answered_cells(self._run, experiment).items():
                bins_by_model.setdefault(model, set()).update(cells)
        of = f"Campaign {self._run.campaign} of study {self._run.study.name!r}"
        if not bins_by_model:
            raise StudyError(f"{of} has no answers of controls; `profile --controls` asks them.")
        bins = sorted(set().union(*bins_by_model.values()))
        for kind, wanted, names in (
            ("of model", self._wanted.models, [*bins_by_model]),
            ("in bin", self._wanted.bins, bins),
        ):
            for name in wanted:
                if name not in names:
                    raise StudyError(f"{of} has no answers {kind} {name!r}; it has {_some(names)}.")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20])
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"


def _experiments(study: Study, control: str | None) -> list[Experiment]:
    from contextcliff_dagster.experiments.lookup import partitioned
    from contextcliff_dagster.studies.experiment_table import load_experiment

    if control is not None:
        return [load_experiment("controls")]
    # Experiments that share their tables are read once.
    return [*{e.records.name: e for e in reversed(partitioned(study))}.values()][::-1]


@contextmanager
def answered_campaign(study: Study, campaign: str | None) -> Iterator[StudyRun]:
    """Yield the named campaign, or the newest with answers, preferring one that is not a sentinel.

    Raises:
        StudyError: no campaign, or not the named one, has answers; the message lists those that do.
        StoreError: the ledger cannot be opened.
    """
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    store = Store.default()
    nothing = StudyError(
        f"Study {study.name!r} has no answers in {store.root}; measure it with "
        f"`contextcliff profile {study.name}`."
    )
    if not store.has_ledger:
        raise nothing
    with Ledger.open_to_read(store.ledger) as ledger:
        names = _answered_campaigns(study, store, ledger)
        if not names:
            raise nothing
        if campaign is not None and campaign not in names:
            raise StudyError(
                f"Study {study.name!r} has no answers in a campaign {campaign!r}; it has "
                f"{_some(names)}."
            )
        yield StudyRun(study, store, ledger, campaign or _newest(names))


def _answered_campaigns(study: Study, store: Store, ledger: Ledger) -> list[str]:
    """Campaigns with records or predictions in the store, oldest first."""
    from contextcliff_dagster.experiments.lookup import partitioned
    from contextcliff_dagster.inference.ledger.campaigns import list_campaigns

    stored = {
        folder.name.removeprefix("campaign=")
        for experiment in partitioned(study)
        for table in (experiment.records, experiment.predictions)
        for folder in (store.study_dir(study.name) / table.name).glob("campaign=*")
        if next(folder.glob("model=*/bin=*/*.parquet"), None) is not None
    }
    begun = [campaign.name for campaign in list_campaigns(ledger, study.name)]
    return [*sorted(stored - set(begun)), *(name for name in begun if name in stored)]


def _newest(names: Sequence[str]) -> str:
    from contextcliff_dagster.inference.ledger.campaigns import SENTINEL

    return next((name for name in reversed(names) if not name.startswith(SENTINEL)), names[-1])
