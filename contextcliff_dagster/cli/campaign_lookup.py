"""Which campaign of a study is meant, among those that are profiled."""

from __future__ import annotations

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies.length_profile_keys import require_length_profile


def profiled_campaigns(store: Store, study: str) -> list[str]:
    """Campaigns of ``study`` with a profile in the store, oldest first."""
    profiles = (store.study_dir(study) / "profiles").glob("*/*/cliffs.json")
    profiled = {path.parents[1].name for path in profiles}
    if not store.has_ledger:
        return sorted(profiled)
    from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    with Ledger.open(store.ledger) as ledger:
        begun = [campaign.name for campaign in list_campaigns(ledger, study)]
    return [*sorted(profiled - set(begun)), *(name for name in begun if name in profiled)]


def newest_campaign(store: Store, study: str) -> str | None:
    """The campaign of ``study`` that was begun last; sentinels do not count."""
    if not store.has_ledger:
        return None
    from contextcliff_dagster.inference.ledger.campaigns import SENTINEL, list_campaigns
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    with Ledger.open(store.ledger) as ledger:
        begun = [c.name for c in list_campaigns(ledger, study) if not c.name.startswith(SENTINEL)]
    return begun[-1] if begun else None


def profiled_campaign(store: Store, study: str, campaign: str | None = None) -> str:
    """``campaign``, or the newest that is profiled.

    Raises:
        StudyError: there is none, or not that one; the sentence lists those there are.
    """
    from contextcliff_dagster.studies import load_studies

    campaigns = profiled_campaigns(store, study)
    if not campaigns:
        if study in (known := load_studies()):
            require_length_profile(known[study])
        raise StudyError(
            f"Study {study!r} has no length profile in {store.root}; measure it with "
            f"`contextcliff profile {study}`."
        )
    if campaign is None:
        return campaigns[-1]
    if campaign not in campaigns:
        raise StudyError(
            f"Study {study!r} has no profile of a campaign {campaign!r} in {store.root}; it has "
            f"{', '.join(campaigns)}."
        )
    return campaign
