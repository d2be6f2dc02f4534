"""A study file that cannot be used is named, and stops nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.definitions import defs
from contextcliff_dagster_tests.cli.bad_input.bad_files import NO_FILES
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call, run

SOUND = (
    "name: {name}\ncorpus: {{kind: reference, task: lookup, documents: 60, max_tokens: 200}}\n"
    "tokenizer: reference\nbins: {{count: 2}}\nmodels: [reference-short]\n"
    "sampling: {{samples_per_bin: 2, pilot_per_bin: 1}}\n"
)
MODEL = "sound:reference-short"
FILES = {  # what CONTEXTCLIFF_STUDIES holds: name of the study -> its file, and what is said of it
    "unclosed": ("name: unclosed\nmodels: [a\n", "not valid YAML"),
    "binary": (b"\xff\xfe\x00", "not UTF-8"),
    "empty": ("", "empty"),
    "wrong": (SOUND.format(name="wrong") + "analysis: {tolerance: 7}\n", "analysis.tolerance"),
    "misspelt": (SOUND.format(name="misspelt") + "modls: [a]\n", "did you mean"),
    "badcron": (SOUND.format(name="badcron") + "schedule: {cron: 61 * * * *}\n", "minute"),
    "never": (SOUND.format(name="never") + "schedule: {cron: 0 0 31 2 *}\n", "no such day"),
    "later": (
        SOUND.format(name="later") + "schedule: {cron: 0 0 * * *, grace_hours: 1.0e+300}\n",
        "grace_hours",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "studies"
    folder.mkdir()
    for name, (text, _) in FILES.items():
        content = text if isinstance(text, bytes) else text.encode()
        (folder / f"{name}.yaml").write_bytes(content)
    (folder / "sound.yaml").write_text(SOUND.format(name="sound"))
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(folder))
    return folder


def test_the_list_of_studies_names_it_and_goes_on(folder: Path) -> None:
    ended = call("studies", "--json")
    assert ended.code == 0
    names = [study["name"] for study in json.loads(ended.out)]
    assert {"quick", "sound"} <= set(names)
    assert not FILES.keys() & set(names)
    for name, (_, words) in FILES.items():
        lines = [line for line in ended.err.splitlines() if f"{name}.yaml" in line]
        assert len(lines) == 1, ended.err
        for line in lines:
            assert line.startswith(f"Warning: study {name!r} cannot be loaded.")
            assert words in line


def test_a_sound_study_is_measured_next_to_it(folder: Path) -> None:
    ended = call("profile", "sound")
    assert ended.code == 0, ended.err
    for command in (
        ("report", "sound"),
        ("campaign", "list"),
        ("report", str(folder / "sound.yaml")),
    ):
        ended = call(*command)
        assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("name", FILES)
def test_only_where_it_is_wanted_is_it_an_error(name: str, folder: Path) -> None:
    words = FILES[name][1]
    for command in (
        ("prepare", name),
        ("report", name),
        ("policy", name),
        ("export", name, "x.zip"),
    ):
        assert_one_sentence(call(*command), f"{name}.yaml", words)


def test_doctor_names_it(folder: Path) -> None:
    ended = call("doctor")
    assert "badcron.yaml" in ended.out + ended.err


def test_ones_own_broken_study_does_not_give_way_to_the_shipped_one(folder: Path) -> None:
    (folder / "quick.yaml").write_text("name: quick\nmodls: [a]\n")
    assert_one_sentence(call("prepare", "quick"), "quick.yaml", "did you mean")


def test_a_spoiled_copy_leaves_the_sound_study_its_name(folder: Path) -> None:
    (folder / "copy.yaml").write_text("name: sound\nmodls: [a]\n")
    ended = call("studies")
    assert "\nsound " in ended.out
    assert "Warning: study 'copy.yaml' cannot be loaded." in ended.err


def test_in_dagster_it_is_a_failing_asset_of_its_own_group(folder: Path) -> None:
    location = defs()  # type: ignore[call-arg]
    dg.Definitions.validate_loadable(location)
    graph = location.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["sound", "report"])).group_name == "sound"
    for name, (_, words) in FILES.items():
        (key,) = graph.asset_keys_for_group(name)
        assert key.path[-1] == "study_file"
        assert name in graph.get(key).metadata["error"]
        assert words in str(graph.get(key).description)
        asset = location.get_assets_def(key)
        done = dg.materialize(
            [asset],
            raise_on_error=False,
            instance=dg.DagsterInstance.ephemeral(),
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        assert not done.success
        (failed,) = done.filter_events(lambda event: event.is_step_failure)
        assert words in str(failed.step_failure_data.user_failure_data.description)


def test_what_is_no_file_holds_nothing_up(tmp_path: Path, contextcliff_home: Path) -> None:
    crowd = tmp_path / "crowd"
    crowd.mkdir()
    for number, make in enumerate(NO_FILES.values()):
        make(crowd / f"no-file-{number}.yaml")
    names = [path.stem for path in crowd.iterdir()]
    (crowd / "sound.yaml").write_text(SOUND.format(name="sound"))
    env = {"CONTEXTCLIFF_STUDIES": str(crowd)}
    for command in (("studies",), ("doctor", "--offline"), ("campaign", "list")):
        ended = run(*command, env=env)
        if command != ("campaign", "list"):
            assert all(f"{name}.yaml" in ended.out + ended.err for name in names), command
    assert "\nsound " in run("studies", env=env).out
    location = (
        "from contextcliff_dagster.definitions import defs\n"
        "print(*(key.path[0] for key in defs().resolve_asset_graph().get_all_asset_keys()))\n"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", location],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert "sound" in loaded.stdout.split()
    assert all(name.replace("-", "_") in loaded.stdout for name in names)


def test_lists_nested_by_aliases_are_as_deep_as_written_out(folder: Path) -> None:
    nested = ", ".join(["&a0 {z: 1}", *(f"&a{n} {{z: *a{n - 1}}}" for n in range(1, 400))])
    corpus = f"{{kind: mixed, parts: [{nested}]}}"
    (folder / "nested.yaml").write_text(
        f"name: nested\ncorpus: {corpus}\ntokenizer: reference\nmodels: [reference-short]\n"
    )
    ended = call("studies", "--json")
    assert ended.code == 0
    (line,) = [line for line in ended.err.splitlines() if "nested.yaml" in line]
    assert "more than 100 levels" in line


def test_a_warning_is_one_line_whatever_the_file_is_called(folder: Path) -> None:
    before = call("studies").err.splitlines()
    (folder / "two\nlines\x1b[2J.yaml").write_text("a: 1\n")
    lines = call("studies").err.splitlines()
    assert len(lines) == len(before) + 1
    assert [line for line in lines if "/two\\nlines\\x1b[2J.yaml, line 1" in line]
