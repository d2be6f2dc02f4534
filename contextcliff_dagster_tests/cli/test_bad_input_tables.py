"""Bad input, every command: exit code 2, one sentence, no traceback, no hang, nothing kept.

Thousands of cases in this process, and some of each kind in processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.studies import load_study
from contextcliff_dagster_tests.cli.bad_input import (
    bad_files,
    table_of_contents,
    table_of_files,
    table_of_options,
)
from contextcliff_dagster_tests.cli.bad_input.law import Case, judge, refused
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.terminal import COMMAND, Ended, call

CASES = [*table_of_files.cases(), *table_of_options.cases(), *table_of_contents.cases()]


def _of_command(words: str) -> list[Case]:
    lines = [(" ".join(case.line), case) for case in CASES]
    return [case for line, case in lines if line == words or line.startswith(f"{words} ")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_bad_input_is_refused_in_one_sentence(
    case: Case, tmp_path: Path, contextcliff_home: Path
) -> None:
    refused(case, tmp_path, contextcliff_home)


def test_every_command_is_in_the_tables() -> None:
    for words in table_of_options.commands():
        assert _of_command(words), words
    assert len({case.id for case in CASES}) == len(CASES) >= 1_000


def test_the_lines_that_the_tables_spoil_are_fine_by_themselves(tmp_path: Path) -> None:
    # Else a case would pass for another reason than its own.
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(table_of_contents.VALID))
    (tmp_path / "p.json").write_text(bad_files.policy())
    (tmp_path / "s.csv").write_text(table_of_options.scores())
    for line in (
        ("prepare", str(tmp_path / "mine.yaml")),
        ("guard", str(tmp_path / "p.json"), "--tokens", "1"),
        ("analyze", str(tmp_path / "s.csv"), "--quick"),
    ):
        ended = call(*line)
        assert (ended.code, ended.sentences) == (0, []), ended


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
_KEYS = [*table_of_contents.VALID] + [
    f"{outer}.{inner}"
    for outer, section in table_of_contents.VALID.items()
    if isinstance(section, dict)
    for inner in section
]


@given(key=st.sampled_from(_KEYS), value=_VALUES)
@examples(150)
def test_any_value_under_any_key_is_a_study_or_a_sentence(
    key: str, value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(table_of_contents.changed(key, value)), encoding="utf-8")
    try:
        study, sentence = load_study(path), None
    except StudyError as error:
        study, sentence = None, str(error)
    if study is not None:
        json.dumps(study.model_dump(mode="json"), allow_nan=False)
        assert study.manifest_spec_hash()
    else:
        assert sentence is not None
        assert str(path) in sentence
        assert len(sentence) < 1_000


def _process(*line: str, cwd: Path, limits: str = "", env: dict[str, str] | None = None) -> Ended:
    """Run the command as a shell does, after the shell's command ``limits``."""
    script = f'{limits or "true"}; exec "$@"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND, *line], capture_output=True, text=True, cwd=cwd,
        env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, timeout=300, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


_SAMPLE = (
    "profile --data jsonl: pipe", "analyze csv: endless device", "guard: deep braces",
    "report (study): terabyte", "import: socket", "bins.count: True",
    "study of 3,000 levels", "profile quick --model {}: 5,000 characters",
)  # fmt: skip


@pytest.mark.parametrize("name", _SAMPLE)
def test_a_process_ends_as_its_table_says(name: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.id == name)
    case.make(tmp_path)
    ended = _process(*case.arguments(tmp_path), cwd=tmp_path)
    judge(case, ended, tmp_path)


@pytest.mark.parametrize(
    ("megabytes", "line"),
    [
        (400, ("analyze", "s.csv")),
        (1_500, ("analyze", "s.csv")),
        (900, ("profile", "quick", "--samples-per-bin", "2")),
        (1_600, ("prepare", "quick")),
    ],
)
def test_a_process_without_address_space_says_so(
    megabytes: int, line: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "s.csv").write_text(table_of_options.scores())
    ended = _process(*line, cwd=tmp_path, limits=f"ulimit -v {megabytes * 1000}")
    judge(Case("no room", line, ("ulimit",)), ended, tmp_path)


def test_what_comes_by_standard_input_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    reader, writer = os.pipe()  # nobody ever writes
    try:
        done = subprocess.run(
            [*COMMAND, "analyze", "/dev/stdin"], stdin=reader, capture_output=True, text=True,
            timeout=300, check=False, cwd=tmp_path,
        )  # fmt: skip
    finally:
        os.close(reader)
        os.close(writer)
    judge(Case("stdin", (), ("named pipe",)), Ended(done.returncode, "", done.stderr), tmp_path)
