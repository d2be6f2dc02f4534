"""Campaigns, the dated measurements of a study, and the serving identities recorded in them.

A campaign begins when a person begins it, or with its first recorded call: a run that fails before
that leaves no campaign behind.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime

from contextcliff_dagster.contracts import ASKED_BY, EngineError, StudyError
from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.schema import ANSWERED, joined
from contextcliff_dagster.inference.ledger.statements import begin
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.requests.call_plan import utc_now

SENTINEL = "sentinel-"
"""Prefix of campaigns that measure only a few examples; they are never the current one."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """A dated measurement of a study."""

    study: str
    name: str
    created_at: datetime


def current_campaign(ledger: Ledger, study: str, *, today: date | None = None) -> str:
    """Return the newest campaign of ``study``, or a name for one that begins today."""
    names = [c.name for c in list_campaigns(ledger, study) if not c.name.startswith(SENTINEL)]
    return names[-1] if names else _day(today)


def new_campaign(
    ledger: Ledger, study: str, *, today: date | None = None, name: str | None = None
) -> str:
    """Begin a new campaign and return its name: the day, as in ``2026-11-21``, then with ``-2`` ...

    ``name`` replaces the day.
    """
    base_name = name or _day(today)

    # One transaction, so that two processes at once cannot get the same campaign.
    def operation(db: Database) -> str:
        rows = db.execute("SELECT campaign FROM campaigns WHERE study = ?", (study,)).fetchall()
        names = {row[0] for row in rows}
        numbered = (f"{base_name}-{number}" for number in itertools.count(2))
        free = next(name for name in itertools.chain([base_name], numbered) if name not in names)
        begin(db, study, free)
        return free

    return ledger.write(operation)


def ensure_campaign(
    ledger: Ledger, study: str, campaign: str, *, begun_at: str | None = None
) -> None:
    """Record that the campaign has begun (now, if None); do nothing if it already had."""
    ledger.write(lambda db: begin(db, study, campaign, begun_at))


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


def check_campaign_name(name: str) -> None:
    """Raise an error for names that are awkward in folders, shells or run tags.

    Raises:
        StudyError: not 1-60 letters, digits, ``.``, ``_``, ``-``, or starts with a sign, or has
            ``...``, which separates two keys where Dagster names a range.
    """
    if name.startswith(SENTINEL):
        raise StudyError(
            f"{name!r} is reserved for sentinels (`profile --sentinel`); choose another."
        )
    if _NAME.fullmatch(name) is None or "..." in name:
        raise StudyError(
            f"{name!r} is not a campaign name; use up to 60 letters, digits, '.', '_' and '-', "
            "starting with a letter or digit and without '...', for instance "
            "2026-11-21-new-weights."
        )


def list_campaigns(ledger: Ledger, study: str | None = None) -> list[Campaign]:
    """Return the campaigns of ``study`` (or of all studies), oldest first."""
    rows = ledger.read(
        f"SELECT study, campaign, created_at FROM campaigns {'WHERE study = ?' if study else ''}"
        " ORDER BY created_at, study, campaign",
        (study,) if study else (),
    )
    return [Campaign(row[0], row[1], datetime.fromisoformat(row[2])) for row in rows]


def _day(today: date | None) -> str:
    return (today or datetime.now(UTC).date()).isoformat()


def recorded_identity(ledger: Ledger, study: str, campaign: str, model: str) -> Identity | None:
    """Return the serving identity of ``model`` in the campaign; None before its first call."""
    rows = ledger.read(
        "SELECT i.body FROM campaign_models m JOIN identities i USING (identity_hash)"
        " WHERE m.study = ? AND m.campaign = ? AND m.model = ?",
        (study, campaign, model),
    )
    return Identity(json.loads(rows[0][0])) if rows else None


def record_identity(
    ledger: Ledger, study: str, campaign: str, model: str, identity: Identity
) -> None:
    """Record the serving identity of ``model``, which has to stay the same in the campaign.

    An identity without any measurement may be replaced, because a setting was corrected.

    Raises:
        EngineError: the name had another identity in this campaign.
    """
    before = recorded_identity(ledger, study, campaign, model)
    if before is not None and before.hash == identity.hash:
        return
    of = (study, campaign, model)
    if before is not None and ledger.read(
        f"SELECT 1 FROM calls c{joined()} WHERE {ANSWERED} AND c.study = ?"
        " AND c.campaign = ? AND c.model = ? AND c.identity_hash = ? UNION ALL"
        " SELECT 1 FROM call_batches WHERE study = ? AND campaign = ? AND model = ?"
        " AND ended_at IS NULL LIMIT 1",
        (*of, before.hash, *of),
    ):
        raise identity_changed(study, campaign, model, before.differences(identity))

    def operation(db: Database) -> None:
        body = json.dumps(dict(identity.fields), sort_keys=True)
        db.execute(
            "INSERT INTO identities VALUES (?, ?) ON CONFLICT DO NOTHING", (identity.hash, body)
        )
        db.execute(
            "INSERT INTO campaign_models VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (study, campaign, model) DO UPDATE SET"
            " identity_hash = excluded.identity_hash, recorded_at = excluded.recorded_at",
            (study, campaign, model, identity.hash, utc_now()),
        )

    ledger.write(operation)


def identity_changed(study: str, campaign: str, model: str, differences: list[str]) -> EngineError:
    """Return the error for a model whose identity changed since the campaign began."""
    if differences and all(
        difference.startswith(f"server_{ASKED_BY}:") for difference in differences
    ):
        return EngineError(
            f"Campaign {campaign} of study {study!r} asked model {model!r} the other way, streamed "
            "or in batches; ask it as before (with or without --batch), or pool both "
            "(`pool_batch: true` in its `batch` block), or begin a new campaign "
            f"(`contextcliff campaign new {study}`)."
        )
    return EngineError(
        f"Model {model!r} has changed since campaign {campaign} of study {study!r} began "
        f"({'; '.join(differences)}). The two are never pooled: start a new campaign "
        f"(`contextcliff campaign new {study}`) or give the changed model its own name in "
        "models.yaml."
    )
