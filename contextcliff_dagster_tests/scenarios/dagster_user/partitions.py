"""Partitions: their tokens, a check without a baseline, and a top-up that is refused."""

from __future__ import annotations

import json
from typing import Any

from contextcliff_dagster.defs.asset_specs import PREPARATION
from contextcliff_dagster.defs.ui.results import range_of
from contextcliff_dagster.run.study import prepare_study
from contextcliff_dagster.studies import load_study
from contextcliff_dagster_tests.scenarios.dagster_user.walk import LOCATION, Walk, asset

_CHECK = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  assetChecksOrError { ... on AssetChecks { checks { name
    executionForLatestMaterialization { status } } } } } } }"""
_STATS = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionStats { numMaterialized numFailed numPartitions } } } }"""
_SHOWN = """
fragment entries on MetadataEntry { label
  ... on TextMetadataEntry { text } ... on MarkdownMetadataEntry { mdStr }
  ... on TableMetadataEntry { table { records } } }
query ($key: AssetKeyInput!, $partitions: [String!]) { assetNodeOrError(assetKey: $key) {
  ... on AssetNode { description metadataEntries { ...entries }
    assetMaterializations(partitions: $partitions, limit: 1) {
      metadataEntries { ...entries } } } } }"""
_SENTENCE = "The deadline was reached with some of 3 calls still open; everything measured is kept"


def look_at_tokens(walk: Walk) -> None:
    """Description, a table and each partition say which tokens a key stands for."""
    walk.reload(LOCATION)  # the sample was drawn after it was loaded
    manifest = prepare_study(load_study(walk.study)).manifest
    assert manifest is not None
    ranges = {one.bin: range_of(manifest.bins, one.bin) for one in manifest.bins}
    assert list(ranges) == ["b00", "b01", "b02"]
    node = _shown(walk, "predictions", f"{walk.campaign()}|left.b01")
    lines = node["description"].splitlines()
    assert [line for line in lines if line.startswith("- `b")] == [
        f"- `{key}`: {tokens}" for key, tokens in ranges.items()
    ]
    assert _column(node["metadataEntries"], "token_ranges", "tokens") == [*ranges.values()]
    (materialized,) = node["assetMaterializations"]
    assert {"label": "tokens", "text": ranges["b01"]} in materialized["metadataEntries"]


def look_at_skipped_check(walk: Walk) -> None:
    """`no_shrink` without a baseline is skipped, and the reason is where one looks."""
    node = walk.ui.ask(_CHECK, key=asset("cliffs"))["assetNodeOrError"]
    checks = {one["name"]: one for one in node["assetChecksOrError"]["checks"]}
    skipped = checks["no_shrink"]["executionForLatestMaterialization"]
    assert skipped["status"] == "SKIPPED"
    (materialized,) = _shown(walk, "cliffs")["assetMaterializations"]
    assert "No baseline is pinned" in json.dumps(materialized["metadataEntries"])


def refuse_a_top_up(walk: Walk) -> None:
    """Two more examples a bin, and no time for them."""
    known = {model: walk.received(model) for model in walk.logs}
    walk.edit("samples_per_bin: 4", "samples_per_bin: 5")
    drawn = walk.ui.launch("__ASSET_JOB", [["tiny", name] for name in PREPARATION])
    assert drawn["status"] == "SUCCESS"
    config = {"ops": {"tiny__predictions": {"config": {"deadline_s": 1e-9}}}}
    run = walk.ui.launch("profile_tiny", config=config)
    assert run["status"] == "FAILURE"
    assert {model: walk.received(model) for model in walk.logs} == known
    (error,) = (event["error"] for event in run["eventConnection"]["events"] if event)
    first = error["message"].splitlines()[0]
    assert _SENTENCE in first
    assert first.endswith("of the study's `calls`).")
    assert error["stack"]

    stats: dict[str, Any] = walk.ui.ask(_STATS, key=asset("predictions"))["assetNodeOrError"]
    whole = {"numMaterialized": 6, "numFailed": 0, "numPartitions": 6}
    assert stats["partitionStats"] == whole


def _shown(walk: Walk, name: str, *partitions: str) -> dict[str, Any]:
    """Description and metadata of an asset, and of its newest materialization."""
    node: dict[str, Any] = walk.ui.ask(_SHOWN, key=asset(name), partitions=[*partitions] or None)[
        "assetNodeOrError"
    ]
    return node


def _column(entries: list[dict[str, Any]], label: str, column: str) -> list[str]:
    """A column of a table."""
    (table,) = (entry["table"] for entry in entries if entry["label"] == label)
    return [json.loads(record)[column] for record in table["records"]]
