"""A study that cannot be loaded, as an asset that says why."""

from __future__ import annotations

import re

import dagster as dg

from contextcliff_dagster.defs.asset_specs import OWNERS, key_prefix
from contextcliff_dagster.studies import BrokenStudy


def broken_study_asset(broken: BrokenStudy, number: int) -> dg.AssetsDefinition:
    """The asset `study_file` in the study's own group; materializing it fails with the reason.

    ``number`` keeps apart those whose names differ in signs alone.
    """
    plain = re.sub(r"\W", "_", broken.name, flags=re.ASCII)[:60] or "study"

    @dg.asset(
        name="study_file",
        key_prefix=[*key_prefix(), f"{plain}_{number}" if plain != broken.name else plain],
        group_name=plain,
        description=f"This study cannot be loaded. {broken.error}",
        metadata={"error": broken.error, "file": dg.MetadataValue.path(str(broken.path))},
        owners=OWNERS,
        kinds={"yaml"},
    )
    def study_file() -> None:
        raise dg.Failure(broken.error, allow_retries=False)

    return study_file
