"""An edited study: what it turned stale, and what materializing that asks anew."""

from __future__ import annotations

from contextcliff_dagster_tests.scenarios.dagster_user.walk import Walk, asset
from contextcliff_dagster_tests.support.dagster_ui import REPOSITORY

_STALE = """
query ($group: AssetGroupSelector!) { assetNodes(group: $group) {
  assetKey { path } staleStatus } }"""
_PARTITIONS = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionKeys staleStatusByPartition } } }"""
_GROUP = {"groupName": "legal", **REPOSITORY}
UNSYNCED = {"distribution_audit", "cost_estimate"}


def add_a_model(walk: Walk) -> None:
    """To a study that is whole."""
    assert stale(walk) == set()
    assert set(stale_partitions(walk).values()) == {"FRESH"}
    walk.edit("[left]", "[left, right]")
    look_at_added_model(walk)


def look_at_added_model(walk: Walk) -> None:
    assert stale(walk) == UNSYNCED
    assert stale_partitions(walk) == {
        **{f"left.b0{number}": "STALE" for number in range(3)},
        **{f"right.b0{number}": "MISSING" for number in range(3)},
    }


def measure_added_model(walk: Walk) -> None:
    """Only its own calls are asked."""
    known = walk.received("left")
    names = ("predictions", *UNSYNCED)
    cells = [f"{walk.campaign()}|{cell}" for cell in stale_partitions(walk)]
    walk.ui.backfill([["tiny", name] for name in names], cells)
    assert walk.received("left") == known
    assert len(walk.received("right")) == len({*walk.received("right")}) == len(known)
    assert set(stale_partitions(walk).values()) == {"FRESH"}
    # What is made of them is marked now: by their data, not by code.
    assert stale(walk) == {"eval_records", "manifest"}


def edit_only_the_judgement(walk: Walk) -> None:
    """Another tolerance asks for no call, and its assets alone are marked."""
    before = stale(walk)
    walk.edit("resamples: 100", "resamples: 100, tolerance: 0.2")
    assert stale(walk) == before | {"metrics", "cliffs"}
    assert set(stale_partitions(walk).values()) == {"FRESH"}


def stale(walk: Walk) -> set[str]:
    """The study's assets that are not fresh, in some campaign, besides the predictions."""
    nodes = walk.ui.ask(_STALE, group=_GROUP)["assetNodes"]
    whole = {node["assetKey"]["path"][-1] for node in nodes if node["staleStatus"] != "FRESH"}
    by_campaign = {
        name: {*_by_partition(walk, name).values()}
        for name in ("eval_records", "metrics", "cliffs", "report")
    }
    return whole | {name for name, of in by_campaign.items() if of != {"FRESH"}}


def stale_partitions(walk: Walk) -> dict[str, str]:
    """Status by cell, of the one campaign."""
    return {
        key.partition("|")[2]: status for key, status in _by_partition(walk, "predictions").items()
    }


def _by_partition(walk: Walk, name: str) -> dict[str, str]:
    node = walk.ui.ask(_PARTITIONS, key=asset(name))["assetNodeOrError"]
    return dict(zip(node["partitionKeys"], node["staleStatusByPartition"], strict=True))
