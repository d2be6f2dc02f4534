"""Partitions: their tokens, a check without a baseline, and a top-up that is refused."""

from __future__ import annotations

from typing import Any

from contextcliff_dagster.defs.run import prepare_study
from contextcliff_dagster.defs.ui.token_ranges import range_of
from contextcliff_dagster.studies import load_study
from contextcliff_dagster_tests.scenarios.dagster_user.walk import LOCATION, Walk, asset

_LAUNCH = """
mutation ($job: JobOrPipelineSelector!, $config: RunConfigData!) { launchRun(executionParams: {
  selector: $job, runConfigData: $config, mode: "default" }) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_CHECK = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  assetChecksOrError { ... on AssetChecks { checks { name
    executionForLatestMaterialization { status } } } } } } }"""
_STATS = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionStats { numMaterialized numFailed numPartitions } } } }"""
_JOB = {
    "repositoryLocationName": LOCATION,
    "repositoryName": "__repository__",
    "jobName": "profile_tiny",
}
_SENTENCE = "The deadline was reached with some of 3 calls still open; everything measured is kept"


def look_at_tokens(walk: Walk) -> None:
    """Description, a table and each partition say which tokens a key stands for."""
    walk.reload(LOCATION)  # the sample was drawn after it was loaded
    manifest = prepare_study(load_study(walk.study)).manifest
    assert manifest is not None
    ranges = {one.bin: range_of(manifest.bins, one.bin) for one in manifest.bins}
    assert list(ranges) == ["b00", "b01", "b02"]
    browser = walk.browser
    browser.open("/assets/tiny/predictions")
    for key, tokens in ranges.items():
        browser.see(f"//li[normalize-space(.)='{key}: {tokens}']")
        browser.see(f"//table//td[normalize-space(.)='{tokens}']")
    browser.open("/assets/tiny/predictions?view=partitions")
    browser.click("//*[normalize-space(text())='left']")
    browser.click("//*[normalize-space(text())='b01']")
    browser.see(f"//td[normalize-space(.)='{ranges['b01']}']")
    walk.picture("partition")
    browser.open("/assets/tiny/eval_records")
    for tokens in ranges.values():
        browser.see(f"//table//td[normalize-space(.)='{tokens}']")
    walk.picture("records")


def look_at_skipped_check(walk: Walk) -> None:
    """`no_shrink` without a baseline is skipped, and the reason is where one looks."""
    node = walk.browser.ask(_CHECK, key=asset("cliffs"))["assetNodeOrError"]
    checks = {one["name"]: one for one in node["assetChecksOrError"]["checks"]}
    skipped = checks["no_shrink"]["executionForLatestMaterialization"]
    assert skipped["status"] == "SKIPPED"
    walk.browser.open("/assets/tiny/cliffs?view=checks")
    walk.browser.see("//*[normalize-space(text())='Skipped']")
    walk.picture("skipped")
    walk.browser.open("/assets/tiny/cliffs")
    walk.browser.see("//td[contains(normalize-space(.),'No baseline is pinned')]")


def refuse_a_top_up(walk: Walk) -> None:
    """Two more examples a bin, and no time for them."""
    known = {model: walk.received(model) for model in walk.logs}
    walk.edit("samples_per_bin: 4", "samples_per_bin: 5")
    browser = walk.browser
    config = {"ops": {"tiny__predictions": {"config": {"deadline_s": 1e-9}}}}
    answer = browser.ask(_LAUNCH, job=_JOB, config=config)["launchRun"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    run_id = answer["run"]["runId"]
    walk.wait_for_run(run_id, "FAILURE")
    assert {model: walk.received(model) for model in walk.logs} == known

    browser.open(f"/runs/{run_id}?logs=type:STEP_FAILURE")
    message = _row_of(walk, _SENTENCE)
    walk.picture("refused")
    assert message.splitlines()[0].endswith("of the study's `calls`).")
    assert message.index(_SENTENCE) < message.index("Stack Trace")

    stats: dict[str, Any] = browser.ask(_STATS, key=asset("predictions"))["assetNodeOrError"]
    whole = {"numMaterialized": 6, "numFailed": 0, "numPartitions": 6}
    assert stats["partitionStats"] == whole
    browser.open("/assets/tiny/predictions?view=partitions")
    browser.see("//*[normalize-space(.)='Materialized (6)']")
    browser.see("//*[normalize-space(.)='Failed (0)']")
    walk.picture("still-good")


def _row_of(walk: Walk, sentence: str) -> str:
    """The whole message of the log that has ``sentence``."""
    element = walk.browser.see(
        f"//*[contains(normalize-space(.),'{sentence}') and contains(normalize-space(.),'Stack')]"
        f"[not(.//*[contains(normalize-space(.),'{sentence}')"
        " and contains(normalize-space(.),'Stack')])]"
    )
    return element.text
