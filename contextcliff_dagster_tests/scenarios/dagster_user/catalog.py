"""The catalog: studies in use alone, under their owners, and two code locations without a clash."""

from __future__ import annotations

from pathlib import Path

from contextcliff_dagster_tests.scenarios.dagster_user.walk import (
    LOCATION,
    OTHER_LOCATION,
    Walk,
    asset,
)
from contextcliff_dagster_tests.support.dagster_ui import REPOSITORY

_ASSETS = """
{ assetNodes { assetKey { path } repository { location { name } } } }"""
_CLASHES = """
query ($keys: [AssetKeyInput!]!) { assetNodeDefinitionCollisions(assetKeys: $keys) {
  assetKey { path } } }"""
_JOBS = """
query ($repository: RepositorySelector!) { repositoryOrError(repositorySelector: $repository) {
  ... on Repository { jobs { name } } } }"""
_OWNERS = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  groupName owners { ... on TeamAssetOwner { team } } tags { key value } } } }"""
_PREFIX = "CONTEXTCLIFF_ASSET_PREFIX"


def look_at_catalog(walk: Walk, other_location: Path) -> None:
    """The second location first has the keys of the first, then a prefix of its own.

    ``other_location``: its file, which begins with its environment and is read at each load.
    """
    clashes = _clashes(walk)
    assert {key[0] for key in clashes} == {"reference", "database"}
    text = other_location.read_text()
    other_location.write_text(text.replace("{", f"{{{_PREFIX!r}: 'team_b', ", 1))
    walk.reload(OTHER_LOCATION)
    assert _clashes(walk) == []

    shown = _assets(walk)
    assert {key[0] for key in shown[LOCATION]} == {"tiny", "reference", "database"}
    examples = {key[1] for key in shown[OTHER_LOCATION]}
    assert {"reference", "quick", "kv-local"} <= examples
    assert {key[0] for key in shown[OTHER_LOCATION]} == {"team_b"}

    jobs = walk.ui.ask(_JOBS, repository=REPOSITORY)["repositoryOrError"]["jobs"]
    names = {job["name"] for job in jobs if job["name"].startswith("profile_")}
    assert names == {"profile_tiny", "profile_reference"}
    predictions = walk.ui.ask(_OWNERS, key=asset("predictions"))["assetNodeOrError"]
    assert predictions["groupName"] == "legal"
    assert predictions["owners"] == [{"team": "search"}]
    assert {"key": "domain", "value": "legal"} in predictions["tags"]


def _assets(walk: Walk) -> dict[str, list[list[str]]]:
    """Code location -> keys of its assets."""
    found: dict[str, list[list[str]]] = {LOCATION: [], OTHER_LOCATION: []}
    for node in walk.ui.ask(_ASSETS)["assetNodes"]:
        found[node["repository"]["location"]["name"]].append(node["assetKey"]["path"])
    return found


def _clashes(walk: Walk) -> list[list[str]]:
    """Keys that more than one code location has."""
    keys = [{"path": key} for keys in _assets(walk).values() for key in keys]
    clashes = walk.ui.ask(_CLASHES, keys=keys)["assetNodeDefinitionCollisions"]
    return [clash["assetKey"]["path"] for clash in clashes]
