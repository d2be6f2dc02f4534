"""Answers in the store's tables that the call ledger does not have: it was lost, or another one is
used now. They are neither paid for again nor overwritten without consent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.requests.outcome import ORIGIN
from contextcliff_dagster.store import slug, write_json

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.store import Store

_LOOKED_AT = ("call_key", "no_answer", "extra")
PAY_AGAIN = "CONTEXTCLIFF_PAY_AGAIN"
"""Set to 1: go on without these answers."""


def lost_keys(ledger: Ledger, study: str, files: Iterable[Path], *, own: bool = True) -> set[str]:
    """Return the calls in files of predictions that have an outcome there and none in the ledger.

    What was imported stands for what was imported alone, or where the answers are not the ledger's
    ``own`` (`is_own`). No text is read. Damaged files hold nothing that can be lost.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    keys, imported = set[str](), set[str]()
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                names = [name for name in _LOOKED_AT if name in file.schema_arrow.names]
                rows = file.read(columns=names)
        except (pa.ArrowException, OSError):
            continue
        # Calls without an answer are asked again anyway, and were not paid for.
        unpaid = pa.array(["transport_error", "context_overflow"])
        rows = rows.filter(pc.invert(pc.is_in(rows["no_answer"], unpaid)))
        keys.update(rows["call_key"].to_pylist())
        if "extra" in names:
            foreign = pc.match_substring(rows["extra"], f'"{ORIGIN}"')
            imported.update(rows["call_key"].filter(foreign).to_pylist())
    measured = keys - imported if own else set()
    others = keys - measured
    return (measured - ledger.answered(measured)) | (others - ledger.answered(others, study))


def is_own(study: str, store: Store, ledger: Ledger) -> bool:
    """Whether the study's answers in ``store`` were measured through ``ledger``: its id is noted
    beside them. Where there is none yet, it is now."""
    known, file = None, store.ledger_note(study)
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = str(json.loads(file.read_bytes())["ledger"])
    own = ledger.takes(known)
    if own and known is None:
        write_json(file, {"ledger": ledger.id})
    return own


def require_known_answers(run: StudyRun, experiment: Experiment, models: Iterable[str]) -> None:
    """Refuse to measure, and pay, while the store has answers that the ledger has lost.

    Looked at are the campaign of ``run`` and those that the ledger has never heard of.

    Raises:
        StoreError: it has such answers of one of ``models``; not where ``CONTEXTCLIFF_PAY_AGAIN``
            is 1.
    """
    from contextcliff_dagster.inference.ledger.campaigns import list_campaigns

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
    own = is_own(study, run.store, run.ledger)
    if lost := len(lost_keys(run.ledger, study, files, own=own)):
        raise StoreError(
            f"The store holds {lost:,} answers of study {study!r} that the call ledger "
            f"{run.ledger.name} does not know: `contextcliff ledger restore {study}` takes them "
            f"back without a call; `profile --pay-again` (or {PAY_AGAIN}=1) measures them again."
        )
