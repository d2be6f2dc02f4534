"""The catalog: studies in use alone, under their owners, and two code locations without a clash."""

from __future__ import annotations

from contextcliff_dagster_tests.scenarios.dagster_user.walk import LOCATION, OTHER_LOCATION, Walk

_ASSETS = """
{ assetNodes { assetKey { path } repository { location { name } } } }"""
_CLASHES = """
query ($keys: [AssetKeyInput!]!) { assetNodeDefinitionCollisions(assetKeys: $keys) {
  assetKey { path } } }"""
_PREFIX = "CONTEXTCLIFF_ASSET_PREFIX"


def look_at_catalog(walk: Walk) -> None:
    """The second location first has the keys of the first, then a prefix of its own."""
    clashes = _clashes(walk)
    assert {key[0] for key in clashes} == {"reference", "database"}
    text = walk.other_location.read_text()
    walk.other_location.write_text(text.replace("{", f"{{{_PREFIX!r}: 'team_b', ", 1))
    walk.reload(OTHER_LOCATION)
    assert _clashes(walk) == []

    shown = _assets(walk)
    assert {key[0] for key in shown[LOCATION]} == {"tiny", "reference", "database"}
    examples = {key[1] for key in shown[OTHER_LOCATION]}
    assert {"reference", "quick", "utilization", "visibility-local"} <= examples
    assert {key[0] for key in shown[OTHER_LOCATION]} == {"team_b"}

    browser = walk.browser
    browser.open(f"/locations/{LOCATION}/jobs")
    browser.see("//a[contains(@href,'/jobs/profile_tiny')]")
    walk.picture("jobs")
    listed = {text for text in walk.texts("//a[contains(@href,'/jobs/')]") if "profile_" in text}
    assert listed == {"profile_tiny", "profile_reference"}
    browser.open("/assets/tiny/predictions")
    for shown_of_study in ("legal", "search", "domain: legal"):
        browser.see(f"//*[normalize-space(.)='{shown_of_study}']")
    walk.picture("owners")


def _assets(walk: Walk) -> dict[str, list[list[str]]]:
    """Code location -> keys of its assets."""
    found: dict[str, list[list[str]]] = {LOCATION: [], OTHER_LOCATION: []}
    for node in walk.browser.ask(_ASSETS)["assetNodes"]:
        found[node["repository"]["location"]["name"]].append(node["assetKey"]["path"])
    return found


def _clashes(walk: Walk) -> list[list[str]]:
    """Keys that more than one code location has."""
    keys = [{"path": key} for keys in _assets(walk).values() for key in keys]
    clashes = walk.browser.ask(_CLASHES, keys=keys)["assetNodeDefinitionCollisions"]
    return [clash["assetKey"]["path"] for clash in clashes]
