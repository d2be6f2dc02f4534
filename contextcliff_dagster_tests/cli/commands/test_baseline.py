"""`baseline`: what is pinned is compared with; another model under a name is noticed at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster_tests.support.measured_stores import copy_of_made
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call

STUDY = """\
name: watched
corpus: {{kind: reference, task: lookup, documents: 500}}
tokenizer: reference
bins: {{count: 5}}
sampling: {{samples_per_bin: {samples}, pilot_per_bin: 2}}
prompt: {{max_output_tokens: 12}}
models: [served]
analysis: {{resamples: 100}}
"""


def serve(folder: Path, weights: str) -> None:
    entry = f"models:\n  served: {{engine: reference, weights: {weights_path(weights)}}}\n"
    (folder / "models.yaml").write_text(entry)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    studies = tmp_path / "studies"
    studies.mkdir()
    (studies / "watched.yaml").write_text(STUDY.format(samples=12))
    serve(tmp_path, "reference-long")
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(studies))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    return tmp_path


@pytest.fixture
def watched(
    folder: Path, contextcliff_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The study is measured in its first campaign."""
    copy_of_made(
        tmp_path_factory,
        "watched",
        lambda store: do("profile", "watched", "--yes", "--store", str(store)),
        contextcliff_home,
    )
    return folder


def do(*args: str) -> str:
    ended = call(*args)
    assert ended.code == 0, ended.err
    return ended.out


def test_another_model_under_the_name_fails_at_the_first_run(watched: Path) -> None:
    assert_one_sentence(call("baseline", "check", "watched"), "no pinned baseline")
    assert "served" in do("baseline", "set", "watched")
    pinned = json.loads(do("baseline", "show", "watched", "--json"))
    assert "baseline itself" in do("baseline", "check", "watched")

    do("campaign", "new", "watched", "--name", "same")
    do("profile", "watched")
    same = json.loads(do("baseline", "check", "watched", "--json"))
    assert (same["shrunk"], same["models"]["served"]["lost"]) == ([], 0)
    assert same["baseline"] == pinned["campaign"]

    quiet = json.loads(do("profile", "watched", "--sentinel", "--json"))
    assert (quiet["shrunk"], quiet["models"]["served"]["n"]) == ([], 12)
    serve(watched, "reference-short")
    loud = call("profile", "watched", "--sentinel")
    assert loud.code == 3
    assert "served has declined" in loud.out
    # A sentinel is no campaign to go on with, to compare with, or to pin.
    newest = json.loads(do("baseline", "check", "watched", "--json"))
    assert (newest["campaign"], newest["shrunk"]) == ("same", [])

    do("campaign", "new", "watched", "--name", "swapped")
    do("profile", "watched")
    ended = call("baseline", "check", "watched")
    assert ended.code == 3
    assert "served has declined" in ended.out
    do("baseline", "check", "watched", "--campaign", "same")
    nothing = call("baseline", "dismiss", "watched", "same", "--reason", "a bad week")
    assert_one_sentence(nothing, "no alarm to dismiss")
    empty = call("baseline", "dismiss", "watched", "swapped", "--reason", " ")
    assert_one_sentence(empty, "--reason TEXT")
    assert call("baseline", "check", "watched").code == 3

    said = do("baseline", "dismiss", "watched", "swapped", "--reason", "the other model,\nmeant")
    assert "Dismissed as a false alarm on 20" in said
    passed = json.loads(do("baseline", "check", "watched", "--json"))
    assert (passed["shrunk"], passed["models"]["served"]["shrunk"]) == ([], True)
    assert passed["dismissed"]["reason"] == "the other model, meant"
    assert ": the other model, meant." in Path(passed["page"]).read_text()
    # From now on the run shows how answers vary: unchanged are those two.
    do("campaign", "new", "watched", "--name", "later")
    do("profile", "watched")
    later = json.loads(call("baseline", "check", "watched", "--json").out)
    assert (later["dismissed"], later["models"]["served"]["runs"]) == (None, 2)
    # What is accepted becomes the new baseline.
    do("baseline", "set", "watched", "--campaign", "swapped")
    do("baseline", "check", "watched")


def test_a_sentinel_needs_a_baseline_and_no_campaign(folder: Path) -> None:
    assert_one_sentence(call("baseline", "set", "watched"), "no length profile")
    assert_one_sentence(call("baseline", "check", "watched"), "no pinned baseline")
    assert_one_sentence(call("profile", "watched", "--sentinel"), "baseline set watched")
    assert call("profile", "watched", "--sentinel", "--ttft-limit", "2s").code == 2
    odd = call("profile", "watched", "--sentinel", "--campaign", "x")
    assert_one_sentence(odd, "--campaign")
    assert_one_sentence(call("campaign", "new", "watched", "--name", "sentinel-x"), "sentinel-x")


@pytest.mark.usefixtures("watched")
def test_half_a_campaign_is_not_judged() -> None:
    do("baseline", "set", "watched")
    do("campaign", "new", "watched", "--name", "few")
    ended = call("baseline", "check", "watched")  # begun, and nothing came of it
    assert ended.code == 4
    assert "Campaign few has no profile to judge" in ended.out
    do("profile", "watched", "--samples-per-bin", "3")
    ended = call("baseline", "check", "watched", "--json")
    assert ended.code == 4
    result = json.loads(ended.out)
    assert result["models"] == {}
    assert "15 of the baseline's 60" in result["unjudged"]["served"]
