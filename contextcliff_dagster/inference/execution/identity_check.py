"""Where two serving identities differ, as far as is known without starting an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.engines.open_engine import declared_identity
from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.identity import Identity, differences
from contextcliff_dagster.inference.models.kv_variants import parse_kv_variant
from contextcliff_dagster.inference.models.models_file import ModelEntry, get_model

SERVER_PREFIX = "server_"
"""Before the fields that are only known once the engine runs."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The identity that answered to a name in a campaign."""

    study: str
    campaign: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class Known:
    """What a model's entry and weights declare now (None where that is unknown: ``why_not``), and
    what a campaign has recorded."""

    model: str
    declared: Mapping[str, Any] | None
    why_not: str | None
    recorded: Recorded | None

    @property
    def fields(self) -> dict[str, Any]:
        """What is declared, and what the engine reported, unless it has changed since."""
        before = dict(self.recorded.identity.fields) if self.recorded else {}
        if self.declared is None:
            return before
        reported = {name: value for name, value in before.items() if name.startswith(SERVER_PREFIX)}
        return {**self.declared, **({} if self.changed else reported)}

    @property
    def changed(self) -> list[tuple[str, Any, Any]]:
        """What is declared otherwise than recorded: field, recorded, declared."""
        if self.declared is None or self.recorded is None:
            return []
        before = self.recorded.identity.fields
        return differences(
            {name: value for name, value in before.items() if not name.startswith(SERVER_PREFIX)},
            self.declared,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        there = self.recorded
        return {
            "model": self.model,
            "declared": None if self.declared is None else dict(self.declared),
            "declared_unknown": self.why_not,
            "recorded": there
            and {
                "study": there.study,
                "campaign": there.campaign,
                "identity_hash": there.identity.hash,
                "fields": dict(there.identity.fields),
            },
            "changed_since_recorded": [
                {"field": name, "recorded": before, "declared": now}
                for name, before, now in self.changed
            ],
        }


def known_identity(
    model: str,
    entries: Mapping[str, ModelEntry],
    ledger: Ledger | None,
    study: str | None = None,
    campaign: str | None = None,
) -> Known:
    """What ``entries`` declare of ``model``, and what its newest campaign recorded.

    Args:
        study, campaign: look only at what these recorded.

    Raises:
        StudyError: neither knows the name.
        EngineError: nothing is recorded, and what is declared cannot be had (no weights).
    """
    recorded = _newest(ledger, model, study, campaign) if ledger else None
    why_not = "it is not in models.yaml"
    if model in entries:
        try:
            return Known(model, declared_identity(entries[model]), None, recorded)
        except EngineError as error:
            if recorded is None:
                raise
            why_not = str(error)
    if recorded is None:
        if parse_kv_variant(model):
            get_model(model, entries)  # which says why its engine cannot be that
        raise StudyError(
            f"There is no model {model!r} in models.yaml, and no campaign has measured it; "
            f"there are {', '.join(sorted(entries))}."
        )
    return Known(model, None, why_not, recorded)


def require_campaign(ledger: Ledger | None, study: str | None, campaign: str | None) -> None:
    """
    Raises:
        StudyError: ``study`` or ``campaign`` is asked for, and nothing has recorded it.
    """
    if study is None and campaign is None:
        return
    campaigns = list_campaigns(ledger, study) if ledger else []
    if not any(campaign in (None, known.name) for known in campaigns):
        what = [f"study {study!r}" if study else "", f"campaign {campaign!r}" if campaign else ""]
        raise StudyError(
            f"The ledger has no {' with a '.join(filter(None, what))}; see `contextcliff campaign "
            "list`."
        )


def _newest(ledger: Ledger, model: str, study: str | None, campaign: str | None) -> Recorded | None:
    asked = {"m.model": model, "m.study": study, "m.campaign": campaign}
    given = {name: value for name, value in asked.items() if value is not None}
    rows = ledger.read(
        "SELECT m.study, m.campaign, i.body FROM campaign_models m"
        " JOIN identities i USING (identity_hash)"
        f" WHERE {' AND '.join(f'{name} = ?' for name in given)}"
        " ORDER BY m.recorded_at DESC LIMIT 1",
        tuple(given.values()),
    )
    return Recorded(rows[0][0], rows[0][1], Identity(json.loads(rows[0][2]))) if rows else None
