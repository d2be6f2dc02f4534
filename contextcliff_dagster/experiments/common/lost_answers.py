"""Answers in the store's tables that the call ledger does not have: it was lost, or another one is
used now. They are neither paid for again nor overwritten without consent."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.store import Store

PAY_AGAIN = "CONTEXTCLIFF_PAY_AGAIN"
"""Set to 1: go on without these answers."""


def lost_keys(ledger: Ledger, study: str, files: Iterable[Path]) -> set[str]:
    """Return the calls in files of predictions that have an outcome there and none in the ledger.

    Two columns are read. Damaged files hold nothing that can be lost.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    keys: set[str] = set()
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                rows = file.read(columns=["call_key", "no_answer"])
        except (pa.ArrowException, OSError):
            continue
        # Calls without an answer are asked again anyway, and were not paid for.
        unpaid = pa.array(["transport_error", "context_overflow"])
        given_up = pc.is_in(rows["no_answer"], unpaid)
        keys.update(rows["call_key"].filter(pc.invert(given_up)).to_pylist())
    return keys - ledger.answered(keys, study)


def is_own_store(store: Store, ledger: Ledger) -> bool:
    """Whether the answers in ``store`` were measured through ``ledger``: its id stands there.

    A store without an id gets that of ``ledger``.
    """
    known = store.ledger_id
    own = ledger.takes(known)
    if own and known is None:
        store.mark(ledger.id)
    return own


def require_known_answers(run: StudyRun, experiment: Experiment, models: Iterable[str]) -> None:
    """Refuse to measure, and pay, while the store has answers that the ledger has lost.

    Looked at are the campaign of ``run`` and those that the ledger has never heard of.

    Raises:
        StoreError: it has such answers of one of ``models``; not where ``CONTEXTCLIFF_PAY_AGAIN``
            is 1.
    """
    from contextcliff_dagster.inference.ledger.campaigns import list_campaigns

    is_own_store(run.store, run.ledger)
    study = run.study.name
    known = {slug(one.name) for one in list_campaigns(run.ledger, study)} - {slug(run.campaign)}
    folder = run.store.study_dir(study) / experiment.predictions.name
    parts = [part for part in folder.glob("campaign=*") if part.name[9:] not in known]
    wanted = {f"model={slug(model)}" for model in models}
    require_kept(
        run,
        [
            file
            for part in parts
            for file in part.glob("model=*/bin=*/*.parquet")
            if file.parent.parent.name in wanted
        ],
    )


def require_kept(run: StudyRun, files: Iterable[Path]) -> None:
    """Raises StoreError where ``files`` hold answers that the ledger has lost; see above."""
    if os.environ.get(PAY_AGAIN, "").strip() not in ("", "0"):
        return
    study = run.study.name
    if lost := len(lost_keys(run.ledger, study, files)):
        raise StoreError(
            f"The store holds {lost:,} answers of study {study!r} that the call ledger "
            f"{run.ledger.name} does not know: `contextcliff ledger restore {study}` takes them "
            f"back without a call; `profile --pay-again` (or {PAY_AGAIN}=1) measures them again."
        )
