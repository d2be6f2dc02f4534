"""An edited study: what it turned stale, and what materializing that asks anew."""

from __future__ import annotations

import time

from dagster._daemon.controller import RELOAD_WORKSPACE_INTERVAL

from contextcliff_dagster_tests.scenarios.dagster_user.walk import LOCATION, Walk, asset
from contextcliff_dagster_tests.support.child_processes import wait_until

_STALE = """
query ($group: AssetGroupSelector!) { assetNodes(group: $group) {
  assetKey { path } staleStatus staleCauses { key { path } category } } }"""
_PARTITIONS = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionKeys staleStatusByPartition } } }"""
_GROUP = {
    "groupName": "legal",
    "repositoryName": "__repository__",
    "repositoryLocationName": LOCATION,
}
_NODE = "//div[contains(@class,'AssetNode_assetNodeContainer')]"
_BACKFILLS = """
{ partitionBackfillsOrError { ... on PartitionBackfills { results { error { message } } } } }"""
_OLD_DEFINITIONS = "have been removed since this backfill was stored"
"""Dagster's daemon reads the code locations once a minute. Where that meets a reload, it may keep
the older definitions for a minute more (docs/ui.md)."""
_DIALOG = "//div[contains(@class,'dagster-dialog')]"


def add_a_model(walk: Walk) -> None:
    """Of a study that is whole, and measure what that turned stale."""
    assert stale(walk) == set()
    assert set(stale_partitions(walk).values()) == {"FRESH"}
    known = walk.received("left")

    walk.edit("[left]", "[left, right]")
    unsynced = {"distribution_audit", "cost_estimate"}
    assert stale(walk) == unsynced
    assert stale_partitions(walk) == {
        **{f"left|b0{number}": "STALE" for number in range(3)},
        **{f"right|b0{number}": "MISSING" for number in range(3)},
    }
    _open_lineage(walk)
    wait_until(lambda: len(_badges(walk)) == len(unsynced))
    walk.picture("unsynced")
    assert _badges(walk) == unsynced

    _materialize_unsynced(walk)
    try:
        walk.browser.wait_for_backfills(1)
    except AssertionError:
        asked = walk.browser.ask(_BACKFILLS)["partitionBackfillsOrError"]["results"]
        if not any(_OLD_DEFINITIONS in str(one["error"]) for one in asked):
            raise
        time.sleep(RELOAD_WORKSPACE_INTERVAL + 10)
        _open_lineage(walk)
        _materialize_unsynced(walk)
        walk.browser.wait_for_backfills(2)

    assert walk.received("left") == known
    assert len(walk.received("right")) == len({*walk.received("right")}) == len(known)
    assert set(stale_partitions(walk).values()) == {"FRESH"}
    # What is made of them is marked now: by their data, not by code.
    assert stale(walk) == {"eval_records", "manifest"}
    _open_lineage(walk)
    wait_until(lambda: _badges(walk) == {"eval_records", "manifest"})
    walk.picture("measured")


def edit_only_the_judgement(walk: Walk) -> None:
    """Another tolerance asks for no call, and its assets alone are marked."""
    before = stale(walk)
    walk.edit("resamples: 100", "resamples: 100, tolerance: 0.2")
    assert stale(walk) == before | {"metrics", "cliffs"}
    assert set(stale_partitions(walk).values()) == {"FRESH"}


def _materialize_unsynced(walk: Walk) -> None:
    browser = walk.browser
    browser.click("//button[contains(normalize-space(.),'Materialize all')]/following::button[1]")
    browser.click("//*[normalize-space(text())='Materialize unsynced']")
    browser.see(f"{_DIALOG}//*[contains(normalize-space(.),'predictions')]")
    walk.picture("materialize-unsynced")
    browser.click_button("Materialize 3 assets", _DIALOG)
    browser.launch_all_partitions()


def stale(walk: Walk) -> set[str]:
    """The study's assets without partitions that are not fresh."""
    nodes = walk.browser.ask(_STALE, group=_GROUP)["assetNodes"]
    return {node["assetKey"]["path"][-1] for node in nodes if node["staleStatus"] != "FRESH"}


def stale_partitions(walk: Walk) -> dict[str, str]:
    node = walk.browser.ask(_PARTITIONS, key=asset("predictions"))["assetNodeOrError"]
    return dict(zip(node["partitionKeys"], node["staleStatusByPartition"], strict=True))


def _open_lineage(walk: Walk) -> None:
    walk.browser.resize(2200, 1100)  # in a narrower window the assets show their names alone
    walk.browser.open(f"/locations/{LOCATION}/asset-groups/legal/lineage")
    walk.browser.see("//*[normalize-space(text())='Materialized']")


def _badges(walk: Walk) -> set[str]:
    """The assets that the graph marks as unsynced: the badge, and the name under it."""
    marked = walk.texts(f"{_NODE}[.//*[contains(normalize-space(text()),'Unsynced')]]")
    return {text.splitlines()[1] for text in marked}
