"""Pruning a study, a campaign, or only their texts from a ledger; and renaming a study in it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.schema import columns, table_names
from contextcliff_dagster.inference.requests.call_plan import utc_now

_TABLES = tuple(name for name in table_names() if "study" in columns(name))
"""Tables to rename in. Call keys do not contain the study, so every answer stays available."""


def rename_in_ledger(ledger: Ledger, old: str, new: str) -> None:
    """Move the campaigns, calls, attempts and sums of ``old`` to ``new`` in one transaction.

    Do nothing if the ledger has no rows of ``old``.

    Raises:
        StudyError: the ledger has measurements of ``new``.
        StoreError: a run is measuring ``old``, or the ledger cannot be written.
    """

    def operation(db: Database) -> None:
        if not _rows(db, old):
            return
        if _rows(db, new):
            raise StudyError(
                f"The ledger already has measurements of a study {new!r}; choose another name."
            )
        owners = db.execute(
            "SELECT DISTINCT owner FROM claims WHERE call_key IN"
            " (SELECT call_key FROM attempts WHERE study = ?)",
            (old,),
        ).fetchall()
        if any(ledger.backend.is_alive(row[0]) for row in owners):
            raise _in_use(old, "rename")
        for table in _TABLES:
            db.execute(f"UPDATE {table} SET study = ? WHERE study = ?", (new, old))

    ledger.write(operation)


def _in_use(study: str, action: str) -> StoreError:
    return StoreError(
        f"Study {study!r} is being measured; end that run, or its batches (`contextcliff batches "
        f"list`), then {action} it."
    )


def ledger_rows(ledger: Ledger, study: str) -> dict[str, int]:
    """Return table -> number of rows of ``study``, without empty tables."""
    with ledger.snapshot() as db:
        return _rows(db, study)


def _rows(db: Database, study: str) -> dict[str, int]:
    counts = {
        table: int(
            db.execute(f"SELECT count(*) FROM {table} WHERE study = ?", (study,)).fetchone()[0]
        )
        for table in _TABLES
    }
    return {table: count for table, count in counts.items() if count}


@dataclass(slots=True)
class PrunePlan:
    """What pruning removes. ``leaning``: other studies that may share the campaign's answers.

    ``documents`` are used only by removed calls; ``shared_documents`` also by other calls, so they
    stay.
    """

    study: str
    campaign: str | None
    texts: bool
    campaigns: tuple[str, ...]
    calls: int = 0
    answers: int = 0
    usd: float = 0.0
    documents: int = 0
    shared_documents: int = 0
    leaning: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def losses(self) -> list[str]:
        """Return a sentence for each loss that cannot be rebuilt afterwards."""
        if self.texts:
            lost = [
                f"The prompts over {self.documents:,} documents cannot be rebuilt from the ledger.",
                f"The outputs of {self.answers:,} calls cannot be judged again; the calls still "
                "count as paid, so measuring them again takes a new campaign.",
            ]
        else:
            lost = [
                f"The {self.answers:,} answers cannot be rebuilt: measuring them again means "
                f"paying again (${self.usd:.2f} were charged).",
                f"The texts of {self.documents:,} documents are gone from the ledger.",
            ]
        if self.shared_documents:
            lost.append(f"{self.shared_documents:,} documents stay because other calls use them.")
        if self.leaning and not self.texts:
            lost.append(f"Answers shared with {', '.join(self.leaning)} are removed there too.")
        return lost


def plan_prune(
    ledger: Ledger, study: str, campaign: str | None = None, *, texts: bool = False
) -> PrunePlan:
    """Return the rows that `prune` would remove; change nothing.

    Raises:
        StudyError: the ledger has no such study or campaign.
    """
    with ledger.snapshot() as db:
        return _plan(db, study, campaign, texts)


def prune(
    ledger: Ledger, study: str, campaign: str | None = None, *, texts: bool = False
) -> PrunePlan:
    """Remove the study (or one campaign of it); if ``texts``, remove only the texts.

    It happens completely or not at all; no deleted text is left in the database's files. Money
    spent stays in the day's sum.

    Raises:
        StudyError: the ledger has no such study or campaign.
        StoreError: a run is measuring it, or the ledger cannot be written.
    """

    def operation(db: Database) -> PrunePlan:
        plan = _plan(db, study, campaign, texts)
        owners = db.execute(
            "SELECT DISTINCT owner FROM claims WHERE call_key IN"
            f" (SELECT call_key FROM calls WHERE {_where(plan)})",
            _values(plan),
        ).fetchall()
        if any(ledger.backend.is_alive(row[0]) for row in owners):
            raise _in_use(study, "prune")
        (_blank if texts else _delete)(db, plan)
        return plan

    plan = ledger.write(operation)
    ledger.forget_documents()
    ledger.backend.compact()
    return plan


def _where(plan: PrunePlan) -> str:
    """Return the SQL condition on ``study`` and ``campaign``, whose parameters are `_values`."""
    return f"study = ? AND campaign IN ({', '.join('?' * len(plan.campaigns))})"


def _values(plan: PrunePlan) -> tuple[str, ...]:
    return (plan.study, *plan.campaigns)


def _imported(plan: PrunePlan) -> str:
    """Return the SQL condition on answers imported for the study; its parameters are `_values`."""
    campaigns = ", ".join("?" * len(plan.campaigns))
    return f"study = ? AND call_key IN (SELECT call_key FROM calls WHERE campaign IN ({campaigns}))"


_OTHERS = (
    "FROM attempts a WHERE a.call_key = calls.call_key AND a.study <> calls.study AND NOT EXISTS"
    " (SELECT 1 FROM imported_results i WHERE i.call_key = a.call_key AND i.study = a.study)"
)
_PAID_BY_OTHERS = f"EXISTS (SELECT 1 {_OTHERS})"
"""Condition on calls that other studies paid for. Studies with the same questions in campaigns with
the same name share a call, recorded for the first. Requests from archives were paid elsewhere."""


def _plan(db: Database, study: str, campaign: str | None, texts: bool) -> PrunePlan:
    rows = db.execute(
        "SELECT campaign FROM campaigns WHERE study = ? ORDER BY created_at, campaign", (study,)
    ).fetchall()
    study_campaigns = tuple(row[0] for row in rows)
    campaigns = tuple(name for name in study_campaigns if campaign in (None, name))
    if not campaigns:
        which = f"campaign {campaign!r} of study {study!r}" if campaign else f"study {study!r}"
        has = f"; the study has {', '.join(study_campaigns)}" if study_campaigns else ""
        raise StudyError(f"The ledger has no {which}{has}; see `contextcliff campaign list`.")
    plan = PrunePlan(study, campaign, texts, campaigns)
    where, values = _where(plan), _values(plan)
    # Calls that lose their rows or texts: a study that has paid for an answer keeps it.
    removed = where if texts else f"{where} AND NOT {_PAID_BY_OTHERS}"

    def number(sql: str, times: int = 1) -> Any:
        return db.execute(f"SELECT {sql}", values * times).fetchone()[0]

    plan.calls = number(f"count(*) FROM calls WHERE {removed}")
    plan.answers = number(
        f"count(*) FROM results WHERE call_key IN (SELECT call_key FROM calls WHERE {removed})"
    ) + number(f"count(*) FROM imported_results WHERE {_imported(plan)}")
    plan.usd = number(f"coalesce(sum(usd), 0.0) FROM spend WHERE {where}")
    plan.documents = number(f"count(*) FROM ({_own_documents(removed)}) d", 2)
    asked_about = number(f"count(DISTINCT document_id) FROM calls WHERE {removed}")
    plan.shared_documents = asked_about - plan.documents
    leaning = db.execute(
        "SELECT DISTINCT o.study FROM campaign_models o JOIN campaign_models m"
        " ON o.campaign = m.campaign AND o.identity_hash = m.identity_hash AND o.study <> m.study"
        f" WHERE m.study = ? AND m.campaign IN ({', '.join('?' * len(campaigns))}) ORDER BY 1",
        values,
    ).fetchall()
    plan.leaning = tuple(row[0] for row in leaning)
    return plan


def _own_documents(where: str) -> str:
    """Return a query for documents that only these calls use; it takes the values twice."""
    return (
        f"SELECT DISTINCT document_id FROM calls WHERE {where} AND document_id NOT IN"
        f" (SELECT document_id FROM calls WHERE NOT ({where}))"
    )


def _blank(db: Database, plan: PrunePlan) -> None:
    """Remove the texts; the record of calls, times and charges stays."""
    where, values = _where(plan), _values(plan)
    now = utc_now()
    calls = f"SELECT call_key FROM calls WHERE {where}"
    unshared = [row[0] for row in db.execute(_own_documents(where), values * 2).fetchall()]
    own_answers = (("results", f"call_key IN ({calls})"), ("imported_results", _imported(plan)))
    for table, condition in own_answers:
        db.execute(
            f"UPDATE {table} SET raw_output = NULL, reasoning = NULL, error = NULL, extra = NULL,"
            f" checksum = NULL, pruned_at = ? WHERE {condition}",
            (now, *values),
        )
    db.execute(f"UPDATE failures SET message = '' WHERE call_key IN ({calls})", values)
    # A later question of a conversation contains earlier answers, whatever its document.
    db.execute(
        f"UPDATE calls SET question = '', parts = NULL WHERE {where} AND parts IS NOT NULL", values
    )
    for document_id in unshared:
        db.execute("UPDATE calls SET question = '' WHERE document_id = ?", (document_id,))
        db.execute(
            "UPDATE documents SET zstd = ?, pruned_at = ? WHERE document_id = ?",
            (b"", now, document_id),
        )


def _delete(db: Database, plan: PrunePlan) -> None:
    where, values = _where(plan), _values(plan)
    db.execute(
        f"UPDATE calls SET study = (SELECT min(a.study) {_OTHERS}) WHERE {where}"
        f" AND {_PAID_BY_OTHERS}",
        values,
    )
    attempts = f"SELECT attempt_id FROM attempts WHERE {where}"
    db.execute(f"DELETE FROM failures WHERE attempt_id IN ({attempts})", values)
    db.execute(f"DELETE FROM attempts WHERE {where}", values)
    db.execute(f"DELETE FROM imported_results WHERE {_imported(plan)}", values)
    calls = f"SELECT call_key FROM calls WHERE {where}"
    for table in ("results", "claims"):
        db.execute(f"DELETE FROM {table} WHERE call_key IN ({calls})", values)
    others = "FROM imported_results i WHERE i.call_key = calls.call_key"  # still read there
    db.execute(
        f"UPDATE calls SET study = (SELECT min(i.study) {others}) WHERE {where}"
        f" AND EXISTS (SELECT 1 {others})",
        values,
    )
    for table in ("calls", "call_batches", "campaign_models", "campaigns", "spend"):
        db.execute(f"DELETE FROM {table} WHERE {where}", values)
    for table, key, users in _SHARED:
        used = " UNION ".join(f"SELECT {key} FROM {user}" for user in users)
        db.execute(f"DELETE FROM {table} WHERE {key} NOT IN ({used})")


_SHARED = (
    ("documents", "document_id", ("calls",)),
    ("recipes", "recipe_hash", ("calls",)),
    ("identities", "identity_hash", ("calls", "campaign_models")),
)
