"""The list of runs: which job, for what, started by whom."""

from __future__ import annotations

from contextcliff_dagster_tests.scenarios.dagster_user.walk import Walk

OWN = ("study", "models", "campaign", "cause")
COMMAND_LINE = {
    "contextcliff/cause": "command line",
    "contextcliff/models": "left",
    "contextcliff/study": "tiny",
}


def look_at_runs(walk: Walk) -> None:
    """Runs of the command line are there like any other."""
    runs = walk.runs().values()
    assert {run["pipelineName"] for run in runs} == {"profile_tiny", "report_tiny"}
    assert any(run["tags"].items() >= COMMAND_LINE.items() for run in runs)
    _insist_on_tags(walk)


def look_at_tags_of_a_backfill(walk: Walk) -> None:
    """Each of its runs names its own models, and no partition of another run."""
    by_range = {
        str(run["tags"].get("dagster/asset_partition_range_start")).partition("|")[2]: run["tags"][
            "contextcliff/models"
        ]
        for run in walk.runs().values()
        if run["tags"]["contextcliff/cause"] == "backfill"
    }
    assert by_range == {"": "left, right", "left.b00": "left", "right.b00": "right"}
    _insist_on_tags(walk)


def _insist_on_tags(walk: Walk) -> None:
    for run in walk.runs().values():
        tags = run["tags"]
        assert {f"contextcliff/{name}" for name in OWN} <= tags.keys()
        assert not [name for name in tags if name.startswith("dagster/partition/")]
