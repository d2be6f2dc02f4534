"""What all assets of a study have in common."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import dagster as dg

from contextcliff_dagster.contracts import Table
from contextcliff_dagster.defs.show.ui import column_schema
from contextcliff_dagster.studies import Study

# Four lines of warning per asset would bury what matters; the pin on dagster 1.x holds the API.
warnings.filterwarnings("ignore", message=".*`backfill_policy`.*", category=dg.BetaWarning)

OWNERS = ("team:evaluation",)

SINGLE_RUN = dg.BackfillPolicy.single_run()
"""On unpartitioned assets too: `dg launch --partition-range` wants it on everything it selects."""


def group(study: Study) -> str:
    """The study's asset group, also in op and job names, which allow no dash."""
    return study.name.replace("-", "_")


def asset_key(study: Study, name: str) -> dg.AssetKey:
    return dg.AssetKey([study.name, name])


def described(
    study: Study,
    name: str,
    description: str,
    *,
    deps: Sequence[str] = (),
    kinds: set[str],
    table: Table | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Arguments that ``dg.asset`` and ``dg.AssetSpec`` share: key, group, owner, column schema."""
    return {
        "key": asset_key(study, name),
        "description": description,
        "deps": [asset_key(study, dep) for dep in deps],
        "group_name": group(study),
        "owners": OWNERS,
        "kinds": kinds,
        "metadata": {"dagster/column_schema": column_schema(table)} if table else {},
        **more,
    }


def check(study: Study, asset: str, name: str, description: str) -> dg.AssetCheckSpec:
    """A check that its asset answers as it materializes."""
    return dg.AssetCheckSpec(name, asset=asset_key(study, asset), description=description)
