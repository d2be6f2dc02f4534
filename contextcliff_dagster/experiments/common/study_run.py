"""One campaign of one study in one store: the input of every step of an experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from contextcliff_dagster.contracts import StudyError, Table
from contextcliff_dagster.store import Store, read_table, slug
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.study import study_used

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from contextcliff_dagster.analysis.bin_statistics import ProfileContext
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.sampling.manifest import Manifest


Made = TypeVar("Made")


@dataclass(frozen=True)
class StudyRun:
    """A study, its store, the store's open call ledger, and the selected campaign.

    ``with_answers``: whether its report may include questions and answers.
    """

    study: Study
    store: Store
    ledger: Ledger
    campaign: str
    with_answers: bool = False
    _made: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    @contextmanager
    def open(
        cls,
        study: Study,
        store: Store,
        campaign: str | None = None,
        *,
        to_read: bool = False,
        may_begin: bool = False,
    ) -> Iterator[StudyRun]:
        """Open the ledger for the context; ``campaign`` and errors are as in `campaign_of`.

        The study cannot be renamed meanwhile. ``to_read``: only reads, so the store's folder may
        be read-only. ``may_begin``: whether the first call may begin ``campaign``.
        """
        with study_used(store, study.name), open_ledger(store, to_read=to_read) as ledger:
            name = campaign if campaign and may_begin else campaign_of(ledger, study, campaign)
            yield cls(study, store, ledger, name)

    @cached_property
    def manifest(self) -> Manifest:
        """Return the frozen sample; raise like `preparation.load_frozen`."""
        from contextcliff_dagster.experiments.common.preparation import load_frozen

        return load_frozen(self.study, self.store)

    def of_newest(self) -> StudyRun:
        """Return the same study's newest campaign that has begun; this one if it is."""
        newest = campaign_of(self.ledger, self.study)
        return self if newest == self.campaign else replace(self, campaign=newest)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the value of ``make``, called once per key and cached in the run."""
        if key not in self._made:
            self._made[key] = make()
        made: Made = self._made[key]
        return made

    def measured_models(self) -> list[str]:
        """Return the models with calls in this campaign, the study's models first, in order."""
        models = self.ledger.measured_models(self.study.name, self.campaign)
        return in_order(self.study, models)

    def identified_models(self) -> list[str]:
        """Return the models with a serving identity in this campaign, by name.

        These may include models without calls, because answers paid by another study are shared.
        """
        return self.ledger.identified_models(self.study.name, self.campaign)


def origins_of(run: StudyRun, records: pd.DataFrame) -> dict[str, int]:
    """Return how many of a model's answers come from each archive, by archive."""
    read_for = run.ledger.reads_for(run.study.name, run.campaign, records["model"].iloc[0])
    known = run.ledger.origins(records["call_key"].dropna(), read_for)
    return dict(Counter(records["call_key"].map(known).dropna()))


def origin_lines(run: StudyRun, records: pd.DataFrame) -> list[str]:
    """Return a sentence for each archive with answers of a model."""
    from contextcliff_dagster.inference.ledger.queries import UNRECORDED

    lines: list[str] = []
    for model, rows in records.groupby("model", sort=False):
        whose = f" of {model}" if records["model"].nunique() > 1 else ""
        lines += [
            f"{n:,} of {len(rows):,} answers{whose}: origin not recorded."
            if origin == UNRECORDED
            else f"{n:,} of {len(rows):,} answers{whose} come from {origin}."
            for origin, n in sorted(origins_of(run, rows).items())
        ]
    return lines


def guest_origins(run: StudyRun, guest: Experiment, model: str) -> list[str]:
    """Return `origin_lines` for a model's answers in a guest experiment."""
    records = guest_records(run, guest, model)
    if records is None:
        return []
    what, own = guest.name.replace("_", " "), records.select(["model", "call_key"]).to_pandas()
    return [f"Of {what}: {line}" for line in origin_lines(run, own)]


def guest_records(run: StudyRun, guest: Experiment, model: str) -> pa.Table | None:
    """Return a model's records in a guest experiment; None if there are none."""
    import pyarrow as pa

    files = table_files(run.store, guest.records, run.study.name, run.campaign, slug(model))
    return pa.concat_tables(read_table(f, guest.records) for f in files) if files else None


def context_of(
    run: StudyRun,
    records: pd.DataFrame,
    model: str,
    tokenizer: str | None,
    window_tokens: int | None = None,
) -> ProfileContext:
    """Return the context of a model's ``records``.

    Its time is the time of the last answer, so the same records always give the same result.
    """
    from contextcliff_dagster.analysis.bin_statistics import ProfileContext

    times = records["finished_at"].dropna()
    return ProfileContext(
        model=model,
        study=run.study.name,
        campaign=run.campaign,
        tokenizer=tokenizer,
        window_tokens=window_tokens,
        warnings=origin_lines(run, records),
        created_at=times.max().isoformat(timespec="seconds") if len(times) else None,
    )


def in_order(study: Study, models: Iterable[str]) -> list[str]:
    """Return ``models``: first the study's, in its order, then the others by name."""
    rank = {model: number for number, model in enumerate(study.models)}
    return sorted(map(str, models), key=lambda model: (rank.get(model, len(rank)), model))


def open_ledger(store: Store, *, to_read: bool = False) -> Ledger:
    """Open the store's call ledger; a context manager. ``to_read``: see `Ledger.open_to_read`.

    Raises:
        StoreError: it cannot be opened.
    """
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    return (Ledger.open_to_read if to_read else Ledger.open)(store.ledger)


def campaign_of(ledger: Ledger, study: Study, campaign: str | None = None) -> str:
    """Return ``campaign``, or the study's current campaign; no campaign is begun.

    Raises:
        StudyError: ``campaign`` is named but was never begun: a misspelt name would measure, and
            pay for, everything again.
    """
    from contextcliff_dagster.inference.ledger.campaigns import current_campaign, list_campaigns

    if campaign is None:
        return current_campaign(ledger, study.name)
    begun = list_campaigns(ledger)
    known = [entry.name for entry in begun if entry.study == study.name]
    today = datetime.now(UTC).date()
    # A run names its study's first campaign at the start; later steps may run after midnight.
    first = {today.isoformat(), (today - timedelta(days=1)).isoformat()}
    # With another study's campaign name, it shares the answers to common questions.
    first |= {entry.name for entry in begun}
    if campaign not in (known or first):
        raise StudyError(
            f"Study {study.name!r} has no campaign {campaign!r}; it has "
            f"{', '.join(known) or 'none'}, and "
            f"`contextcliff campaign new {study.name} --name {campaign}` begins one."
        )
    return campaign


def begin_campaign(store: Store, study: str, name: str | None = None) -> str:
    """Begin a campaign of ``study`` and return its name; None: today's date, as `new_campaign`.

    Raises:
        StudyError: the name cannot be used, or the study has such a campaign.
    """
    from contextcliff_dagster.inference.ledger import campaigns

    if name is not None:
        campaigns.check_campaign_name(name)
    with study_used(store, study), open_ledger(store) as ledger:
        if name is None:
            return campaigns.new_campaign(ledger, study)
        if name in [known.name for known in campaigns.list_campaigns(ledger, study)]:
            raise StudyError(
                f"Study {study!r} already has a campaign {name!r}; continue it with "
                f"`contextcliff profile {study} --campaign {name}`, or choose another name."
            )
        campaigns.ensure_campaign(ledger, study, name)
    return name


def table_files(
    store: Store, table: Table, study: str, campaign: str, model: str = "*"
) -> list[Path]:
    """Return the files of one table and campaign, for all cells; ``model``: a slug."""
    folder = store.campaign_dir(table.name, study, campaign)
    return sorted(folder.glob(f"model={model}/bin=*/*.parquet"))
