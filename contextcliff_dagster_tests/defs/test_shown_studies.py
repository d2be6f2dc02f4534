"""Which studies the code location shows, under which names, and what their keys stand for."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.definitions import defs
from contextcliff_dagster.defs.studies import EXAMPLES
from contextcliff_dagster.run.study import prepare_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster.studies.files import bring_back, retire
from contextcliff_dagster.studies.study import shipped_folders
from contextcliff_dagster_tests.support.tiny_study import Run

PREFIX = "CONTEXTCLIFF_ASSET_PREFIX"


@pytest.fixture(autouse=True)
def _tiny_is_ones_own(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(study.folder))
    monkeypatch.setenv(EXAMPLES, "0")


def graph() -> dg.AssetGraph:
    return location().resolve_asset_graph()


def location() -> dg.Definitions:
    made: dg.Definitions = defs()  # type: ignore[call-arg]
    return made


def shown() -> set[str]:
    return {key.path[0] for key in graph().get_all_asset_keys() if len(key.path) > 1}


def test_examples_are_shown_once_used_or_on_request(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown() == {"tiny", "reference"}
    store.study_dir("quick").mkdir()
    assert shown() == {"tiny", "reference", "quick"}
    monkeypatch.setenv(EXAMPLES, "1")
    assert {"tiny", "reference", "quick", "kv-local"} <= shown()


def test_a_retired_study_is_not_shown_however_its_name_is_written(
    study: Study, store: Store
) -> None:
    text = (study.folder / "tiny.yaml").read_text()
    (study.folder / "tiny.yaml").unlink()
    (study.folder / "other.yaml").write_text(text.replace("name: tiny", '"name": tiny'))
    store.study_dir("tiny").mkdir()
    assert "tiny" in shown()
    retire(store, "tiny")
    assert "tiny" not in shown()
    bring_back(store, "tiny")
    assert "tiny" in shown()


def test_a_link_to_an_example_is_ones_own(study: Study) -> None:
    (study.folder / "mine.yaml").symlink_to(shipped_folders()[0] / "quick.yaml")
    assert "quick" in shown()


def test_a_prefix_keeps_two_code_locations_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = graph().get_all_asset_keys()
    monkeypatch.setenv(PREFIX, "team/b")
    made = location()
    prefixed = made.resolve_asset_graph().get_all_asset_keys()
    assert prefixed == {dg.AssetKey(["team", "b", *key.path]) for key in plain}
    job = made.resolve_job_def("profile_tiny")
    assert {tuple(key.path[:3]) for key in job.asset_layer.executable_asset_keys} == {
        ("team", "b", "tiny")
    }


@pytest.mark.usefixtures("unrecorded")
def test_a_study_is_measured_under_a_prefix(
    run: Run, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX, "b")
    done = run()
    assert done.success
    keys = {event.asset_key for event in done.get_asset_materialization_events()}
    assert all(key is not None and key.path[:2] == ["b", "tiny"] for key in keys)
    assert len(keys) == 10


def test_a_study_says_how_its_assets_are_shown(study: Study) -> None:
    path = study.folder / "tiny.yaml"
    own = "{group: legal, owners: ['team:search', a@b.org], tags: {domain: legal}, kinds: [vllm]}"
    path.write_text(f"{path.read_text()}assets: {own}\n")
    of = graph()
    for key in (key for key in of.get_all_asset_keys() if key.path[0] == "tiny"):
        spec = of.get(key)
        assert (spec.group_name, list(spec.owners)) == ("legal", ["team:search", "a@b.org"])
        assert spec.tags["domain"] == "legal"
        assert "vllm" in spec.kinds
        assert len(spec.kinds) > 1
    changed = load_study(path)
    assert changed.manifest_spec_hash() == study.manifest_spec_hash()
    assert "profile_tiny" in {job.name for job in location().get_repository_def().get_all_jobs()}


@pytest.mark.parametrize(
    "section",
    ["{owners: [somebody]}", "{group: a-b}", "{tags: {a b: c}}", "{kinds: ['a b']}", "{x: 1}"],
)
def test_what_dagster_would_refuse_is_an_error_of_the_file(study: Study, section: str) -> None:
    path = study.folder / "tiny.yaml"
    path.write_text(f"{path.read_text()}assets: {section}\n")
    with pytest.raises(StudyError, match=r"assets"):
        load_study(path)


def test_keys_say_which_tokens_they_stand_for(study: Study, store: Store, tmp_path: Path) -> None:
    key = dg.AssetKey(["tiny", "predictions"])

    def described() -> str:
        return str(location().resolve_asset_graph().get(key).description)

    assert "appear once `manifest` exists" in described()
    manifest = prepare_study(study).manifest
    assert manifest is not None
    first, *_, last = manifest.bins
    spec = graph().get(key)
    assert f"- `b00`: {first.edge_low:,} to {first.edge_high - 1:,} tokens" in described()
    assert f"- `b02`: {last.edge_low:,} to {last.edge_high:,} tokens" in described()
    rows = [record.data for record in spec.metadata["token_ranges"].records]
    assert [row["key"] for row in rows] == ["b00", "b01", "b02"]
    assert spec.metadata.keys() >= {"dagster/column_schema"}
    # Those of another sample are not passed off as its own.
    path = study.folder / "tiny.yaml"
    path.write_text(path.read_text().replace("count: 3", "count: 4"))
    assert "appear once `manifest` exists" in described()


def test_each_partition_says_its_range(run: Run, prepared: None, study: Study) -> None:
    done = run("predictions", last="reference-short.b00")
    (event,) = done.get_asset_materialization_events()
    manifest = prepare_study(study).manifest
    assert manifest is not None
    one = manifest.bins[0]
    assert event.materialization.metadata["tokens"].value == (
        f"{one.edge_low:,} to {one.edge_high - 1:,} tokens"
    )


def test_without_a_dagster_home_the_code_location_says_which_to_set(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph()
    assert "DAGSTER_HOME" not in caplog.text
    monkeypatch.delenv("DAGSTER_HOME")
    graph()
    assert f"export DAGSTER_HOME={store.root / 'dagster_home'}" in caplog.text
