"""The timeline and the list of runs: which job, for what, started by whom."""

from __future__ import annotations

from contextcliff_dagster_tests.scenarios.dagster_user.walk import LOCATION, Walk

OWN = ("study", "models", "campaign", "cause")


def look_at_timeline(walk: Walk) -> None:
    """Runs of the command line are there like any other."""
    runs = walk.runs()
    assert {run["pipelineName"] for run in runs.values()} == {"profile_tiny"}
    browser = walk.browser
    browser.open("/overview/activity/timeline")
    browser.see("//*[normalize-space(text())='profile_tiny']")
    walk.picture("timeline")
    browser.open("/runs")
    for tag in ("cause: command line", "models: left", "study: tiny"):
        browser.see(f"//*[normalize-space(.)='contextcliff/{tag}']")
    walk.picture("runs")
    browser.open(f"/locations/{LOCATION}/jobs/profile_tiny/runs")
    for run_id in runs:
        browser.see(f"//a[contains(@href,'/runs/{run_id}')]")
    _insist_on_tags(walk)


def look_at_tags_of_a_backfill(walk: Walk) -> None:
    """Each of its runs names its own models, and no partition of another run."""
    by_range = {
        run["tags"].get("dagster/asset_partition_range_start"): run["tags"]["contextcliff/models"]
        for run in walk.runs().values()
        if run["tags"]["contextcliff/cause"] == "backfill"
    }
    assert by_range == {None: "left, right", "left|b00": "left", "right|b00": "right"}
    _insist_on_tags(walk)


def _insist_on_tags(walk: Walk) -> None:
    for run in walk.runs().values():
        tags = run["tags"]
        assert {f"contextcliff/{name}" for name in OWN} <= tags.keys()
        assert not [name for name in tags if name.startswith("dagster/partition")]
