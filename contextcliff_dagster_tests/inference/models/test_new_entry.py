"""An entry that is added to models.yaml changes nothing that is there."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.inference.models.models_file import (
    NewEntry,
    added,
    load_models,
    with_entry,
)

FIELDS = {"engine": "openai", "model_id": "a/b", "base_url": "http://127.0.0.1:8000/v1"}
NEW = NewEntry("new", FIELDS, {"base_url": "here"}, ["A note."], ["window_tokens: 1"])

_COMMENTS = st.sampled_from(["", "   # a comment", "  # ünïcode: [}"])
_LINES = st.lists(
    st.sampled_from(["", "# at the top", "  # between", "    # within an entry", "      # deeper"]),
    max_size=3,
)


@st.composite
def _files(draw: st.DrawFn) -> str:
    """Files of models as people write them: comments, blanks, other indents, no last newline."""
    indent = " " * draw(st.sampled_from([2, 4, 3]))
    lines = [*draw(_LINES), "models:" + draw(_COMMENTS)]
    lines = [line for line in lines if line.startswith(("#", "models")) or not line]
    for number in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            flow = "{engine: reference, model_id: 'x: y'}"
            lines.append(f"{indent}m{number}: {flow}{draw(_COMMENTS)}")
        else:
            lines += [f"{indent}m{number}:{draw(_COMMENTS)}", f"{indent * 2}engine: openai"]
            lines += [f"{indent * 2}base_url: http://127.0.0.1:1/v1{draw(_COMMENTS)}"]
            if draw(st.booleans()):
                lines += [f"{indent * 2}description: >", f"{indent * 3}folded", f"{indent * 3}text"]
        lines += draw(_LINES)
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    # A newline at the end would become part of a folded text.
    ends = [newline] if any("folded" in line for line in lines) else [newline, ""]
    return newline.join(lines) + draw(st.sampled_from(ends))


def test_a_new_file_says_whose_it_is() -> None:
    text = with_entry(None, NEW, Path("models.yaml")).decode()
    assert text.startswith("# Your models; every key is explained in docs/models.md.")
    assert yaml.safe_load(text) == {"models": {"new": FIELDS}}


@given(_files())
def test_every_line_stays_where_it_is_and_the_entry_is_one_block(text: str) -> None:
    after = with_entry(text.encode(), NEW, Path("models.yaml")).decode()
    assert yaml.safe_load(after)["models"] == {**yaml.safe_load(text)["models"], "new": FIELDS}
    rest = after.splitlines()
    start = next(n for n, line in enumerate(rest) if line.strip() == "# A note.")
    assert [line.strip() for line in rest[start : start + 6]] == [
        "# A note.",
        "new:",
        "engine: openai",
        "model_id: a/b",
        "base_url: http://127.0.0.1:8000/v1   # here",
        "# window_tokens: 1",
    ]
    assert rest[:start] + rest[start + 6 :] == text.splitlines()


@pytest.mark.parametrize(
    "text",
    [
        "models: {a: {engine: reference}}\n",
        "base: &x {engine: reference}\nmodels: *x\n",
        '{"models": {"a": {"engine": "reference"}}}\n',
        "models:\n",
    ],
)
def test_what_cannot_be_added_to_is_left_with_the_entry_to_add_by_hand(text: str) -> None:
    with pytest.raises(StudyError, match=r"add this entry by hand: \{new: \{engine: openai"):
        with_entry(text.encode(), NEW, Path("models.yaml"))


@pytest.fixture
def models_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "sub" / "models.yaml"))
    return tmp_path / "sub" / "models.yaml"


def test_a_new_file_is_made_and_read_back(models_file: Path) -> None:
    with added(NEW) as path:
        assert path == models_file
    assert load_models()["new"].model_id == "a/b"
    with added(NEW):  # the same again changes nothing
        pass
    assert models_file.read_text().count("new:") == 1


def test_a_failure_afterwards_takes_it_back(models_file: Path) -> None:
    with pytest.raises(KeyError), added(NEW):
        assert models_file.exists()
        raise KeyError
    assert list(models_file.parent.iterdir()) == []
    models_file.write_text("models:\n  a: {engine: reference}\n")
    models_file.chmod(0o640)
    link = models_file.with_name("link.yaml")
    link.symlink_to(models_file)
    os.environ["CONTEXTCLIFF_MODELS"] = str(link)
    with pytest.raises(KeyError), added(NEW):
        assert "new:" in models_file.read_text()
        raise KeyError
    assert models_file.read_text() == "models:\n  a: {engine: reference}\n"
    assert link.is_symlink()
    assert models_file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models:\n  new: {engine: reference}\n", "Model 'new' already"),
        ("models:\n  a: {engine: steam}\n", "line 2"),
        ("models:\n  a: {engine\n", "not valid YAML"),
        ("\x00", "YAML"),
        ("", "empty"),
    ],
)
def test_a_taken_name_and_a_broken_file_change_nothing(
    models_file: Path, text: str, words: str
) -> None:
    models_file.parent.mkdir()
    models_file.write_text(text)
    with pytest.raises(StudyError, match=words), added(NEW):
        pass
    assert models_file.read_text() == text
    assert list(models_file.parent.iterdir()) == [models_file]


def test_a_shipped_name_is_taken_too(models_file: Path) -> None:
    shipped = NewEntry("reference-long", FIELDS)
    with pytest.raises(StudyError, match="choose another name"), added(shipped):
        pass
    assert not models_file.exists()


def test_many_at_once_are_all_there_afterwards(models_file: Path) -> None:
    def add(number: int) -> None:
        with added(NewEntry(f"m{number}", FIELDS)):
            pass

    threads = [threading.Thread(target=add, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {f"m{n}" for n in range(12)} <= load_models().keys()
    assert list(models_file.parent.iterdir()) == [models_file]


def test_a_folder_that_cannot_be_written_is_one_sentence(
    models_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StudyError, match=r"cannot be written .*Permission denied"), added(NEW):
        pass
    assert list(models_file.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["ü", "a b", "", "-x"])
def test_a_name_that_none_can_have_is_one_sentence(models_file: Path, name: str) -> None:
    with pytest.raises(StudyError, match="name"), added(NewEntry(name, FIELDS)):
        pass
    assert not models_file.exists()
