"""What the program writes is its user's alone, or by a setting the group's, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import LENGTH_MAP, StoreError
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.private_files import (
    GROUP,
    file_mode,
    hide_from_others,
    make_folder,
    private_umask,
    share_with_group,
)
from contextcliff_dagster.store import write_atomic, write_table
from contextcliff_dagster_tests.support.measured_stores import FEW
from contextcliff_dagster_tests.support.terminal import call

ROW = {"example_id": "e", "document_id": "d", "length_tokens": 3}


@pytest.fixture(params=[0o000, 0o022, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write_all(root: Path) -> list[tuple[Path, int]]:
    """Write a file, a table and a ledger; the ledger's files while it is open."""
    write_atomic(root / "a" / "b" / "file", b"text")
    write_table(root / "t" / "table.parquet", [ROW], LENGTH_MAP)
    with Ledger.open(root / "l" / "state.db") as ledger:
        ledger.write(lambda db: db.execute("INSERT INTO campaigns VALUES ('s', 'c', 'now')"))
        open_files = {path: mode(path) for path in root.rglob("*")}
    assert {path.name for path in open_files} >= {"state.db-wal", "state.db-shm", "opening"}
    return sorted(open_files.items())


@pytest.mark.parametrize(
    ("shared", "file", "folder"), [("", 0o600, 0o700), ("0", 0o600, 0o700), ("1", 0o660, 0o2770)]
)
def test_files_and_folders_are_the_users_or_by_a_setting_the_groups(
    tmp_path: Path,
    umask: int,
    monkeypatch: pytest.MonkeyPatch,
    shared: str,
    file: int,
    folder: int,
) -> None:
    monkeypatch.setenv(GROUP, shared)
    modes = write_all(tmp_path / "store")
    assert dict(modes) == {
        path: folder if path.suffix == ".owners" or path.name in "abtl" else file
        for path, _ in modes
    }
    assert mode(tmp_path / "store") == folder
    with private_umask():
        (tmp_path / "other").write_text("")
    assert mode(tmp_path / "other") == file


@pytest.mark.parametrize(("shared", "modes"), [("", [0o700, 0o640]), ("1", [0o2770, 0o660])])
def test_a_group_gets_what_other_libraries_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str, modes: list[int]
) -> None:
    """As SQLite does, whose files no group may write."""
    monkeypatch.setenv(GROUP, shared)
    (tmp_path / "history").mkdir(mode=0o700)
    (tmp_path / "history" / "runs.db").touch(0o640)
    (tmp_path / "link").symlink_to("/etc/hostname")
    share_with_group(tmp_path)
    assert [mode(tmp_path / "history"), mode(tmp_path / "history" / "runs.db")] == modes


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_folder(tmp_path / "new")
    assert (mode(tmp_path), mode(tmp_path / "new")) == (0o755, 0o700)


def test_a_file_for_others_to_read_is_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    write_atomic(tmp_path / "x" / "cap.json", b"{}", private=False)
    os.umask(before)
    assert (mode(tmp_path / "x"), mode(tmp_path / "x" / "cap.json")) == (0o755, 0o644)


def test_another_value_of_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GROUP, "yes")
    with pytest.raises(StoreError, match=f"{GROUP} is 'yes'; set it to 1"):
        file_mode()


@pytest.mark.parametrize("older", [False, True], ids=["new", "older"])
def test_a_measured_study_leaves_nothing_that_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    """In a store, too, that was made when its folders followed the umask."""
    monkeypatch.delenv("DAGSTER_HOME")
    before, store = os.umask(0), tmp_path / "store"
    if older:
        (store / "dagster_home" / "storage").mkdir(parents=True)
        (store / "dagster_home" / "logs").mkdir()
    try:
        ended = call("profile", "quick", *FEW, "--store", str(store), recorded=True)
    finally:
        os.umask(before)
    assert ended.code == 0, ended.err
    home = store / "dagster_home"
    assert {mode(home), *(mode(path) for path in home.iterdir() if path.is_dir())} == {0o700}
    assert sum(path.is_file() for path in home.rglob("*")) > 3
    ours = [p for p in store.rglob("*") if home not in p.parents and not p.is_symlink()]
    assert len(ours) > 20
    assert [path for path in ours if mode(path) & 0o077 and path not in (store,)[:older]] == []


@pytest.mark.parametrize(("shared", "modes"), [("", [0o700, 0o755]), ("1", [0o770, 0o755])])
def test_a_folder_is_hidden_from_others_with_all_that_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str, modes: list[int]
) -> None:
    monkeypatch.setenv(GROUP, shared)
    for name in ("ours", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "ours").chmod(0o777)
    (tmp_path / "target").chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("ours", "link", "missing"):
        hide_from_others(tmp_path / name)
    assert [mode(tmp_path / "ours"), mode(tmp_path / "target")] == modes
