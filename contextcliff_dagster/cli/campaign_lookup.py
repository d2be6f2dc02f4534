"""Which campaign of a study is meant, among those that are profiled."""

from __future__ import annotations

from pathlib import Path

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import Store


def profiled_campaigns(store: Store, study: str) -> list[str]:
    """Campaigns of ``study`` with a profile in the store, oldest first."""
    there = {path.parents[1].name for path in _profiles(store, study)}
    if not store.has_ledger:
        return sorted(there)
    from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    with Ledger.open(store.ledger) as ledger:
        begun = [campaign.name for campaign in list_campaigns(ledger, study)]
    return [*sorted(there - set(begun)), *(name for name in begun if name in there)]


def profiled_campaign(store: Store, study: str, campaign: str | None = None) -> str:
    """``campaign``, or the newest that is profiled.

    Raises:
        StudyError: there is none, or not that one; the sentence lists those there are.
    """
    there = profiled_campaigns(store, study)
    if not there:
        raise StudyError(
            f"Study {study!r} has no length profile in {store.root}; measure it with "
            f"`contextcliff profile {study}`."
        )
    if campaign is None:
        return there[-1]
    if campaign not in there:
        raise StudyError(
            f"Study {study!r} has no profile of a campaign {campaign!r} in {store.root}; it has "
            f"{', '.join(there)}."
        )
    return campaign


def _profiles(store: Store, study: str) -> list[Path]:
    return list((store.study_dir(study) / "profiles").glob("*/*/cliffs.json"))
