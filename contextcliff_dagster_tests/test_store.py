"""The store: paths that never collide, files that are whole or not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import LENGTH_MAP, Column, StoreError, Table
from contextcliff_dagster.store import (
    DatabaseUrl,
    Store,
    atomic_path,
    read_table,
    slug,
    store_root,
    write_atomic,
    write_json,
    write_table,
)

ROW = {"example_id": "e", "document_id": "d", "length_tokens": 3}


def test_plain_model_names_stay_as_they_are() -> None:
    assert slug("Qwen2.5-7B") == "Qwen2.5-7B"
    assert slug("reference-short") == "reference-short"


@given(st.text(max_size=100))
def test_a_slug_is_one_safe_path_part(name: str) -> None:
    made = slug(name)
    assert made
    assert made not in {".", ".."}
    assert not set(made) & set("/\\|:* \n\0")
    assert len(made) <= 80
    assert slug(made) == made


@given(st.lists(st.text(alphabet="ab/|. é", min_size=1, max_size=6), unique=True, max_size=30))
def test_different_names_have_different_slugs(names: list[str]) -> None:
    assert len({slug(name) for name in names}) == len(names)


def test_the_store_is_where_contextcliff_home_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "here"))
    assert store_root() == tmp_path / "here"


def test_in_a_checkout_the_store_is_its_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONTEXTCLIFF_HOME")
    (tmp_path / "contextcliff_dagster").mkdir()
    (tmp_path / "pyproject.toml").write_text('name = "contextcliff_dagster"')
    (tmp_path / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "down")
    assert store_root() == tmp_path / "data" / "store"


def test_outside_a_checkout_the_store_is_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONTEXTCLIFF_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert tmp_path in store_root().parents
    assert store_root().name == "contextcliff"


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "a" / "file"
    write_atomic(path, b"old")

    def write_half() -> None:
        with atomic_path(path) as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_where_nothing_can_be_written_one_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file is where a folder is needed") as caught:
        write_atomic(tmp_path / "file" / "inside", b"")
    assert str(caught.value).count("\n") == 0


def test_a_full_disk_is_named_as_such() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(StoreError, match="disk is full"), atomic_path(Path("/tmp/never")) as path:
        path.unlink()
        path.symlink_to("/dev/full")
        with path.open("wb", buffering=0) as file:
            file.write(b"x")


@pytest.mark.parametrize(
    "what", ["write_atomic(path, bytes(200_000))", "write_table(path, rows, t)"]
)
def test_a_limit_on_the_size_of_files_is_named_as_such(what: str, tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from contextcliff_dagster.contracts import LENGTH_MAP as t, StoreError\n"
        "from contextcliff_dagster.store import write_atomic, write_table\n"
        "rows = [{'example_id': str(i), 'document_id': str(i * i), 'length_tokens': i}"
        " for i in range(50_000)]\n"
        "path = Path(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        f"try: {what}\n"
        "except StoreError as fault: print(fault)\n"
    )
    path = tmp_path / "table.parquet"
    command = [sys.executable, "-c", code, str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.startswith(f"Cannot write {path}: ")
    assert "ulimit -f" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_table_comes_back_with_its_own_columns_only(tmp_path: Path) -> None:
    path = tmp_path / "model=m" / "bin=b00" / "length_map.parquet"
    assert write_table(path, [ROW], LENGTH_MAP) == 1
    assert read_table(path, LENGTH_MAP).to_pylist() == [ROW]


@pytest.mark.parametrize("content", [b"", b"PAR1 but no Parquet"])
def test_a_damaged_table_is_named_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(StoreError, match=r"t\.parquet .*delete it and rebuild"):
        read_table(tmp_path / "t.parquet", LENGTH_MAP)


def test_a_table_without_a_declared_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="length_tokens"):
        write_table(
            tmp_path / "t", pa.table({"example_id": ["e"], "document_id": ["d"]}), LENGTH_MAP
        )


def test_a_column_that_came_later_is_null_in_older_files(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    newer = Table(
        "length_map", "", (*LENGTH_MAP.columns, Column("more", "float64", "Later", later=True))
    )
    write_table(tmp_path / "old.parquet", [ROW], LENGTH_MAP)
    assert "more" not in pq.ParquetFile(tmp_path / "old.parquet").schema_arrow.names
    assert read_table(tmp_path / "old.parquet", newer).to_pylist() == [{**ROW, "more": None}]


def test_json_has_no_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"mean": float("nan")})
    assert not list(tmp_path.iterdir())


def test_every_bin_has_a_file_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    names = [
        ("a", "c", "m", "b00"),
        ("a", "c", "m", "b01"),
        ("a", "c", "n", "b00"),
        ("a", "d", "m", "b00"),
    ]
    paths = {store.table_file("predictions", *name) for name in names}
    paths |= {store.table_file("eval_records", *name) for name in names}
    assert len(paths) == 2 * len(names)
    assert all(os.fspath(path).startswith(os.fspath(tmp_path)) for path in paths)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:Kanarie@rest@host/db",
        "postgresql://u:Kanarie/rest@host/db",
        "postgresql://u:Kanarie#rest@host/db",
        "postgresql://u:Kanarie?rest@host/db",
        "postgresql://u:1/Kanarie@host/db",
        "postgresql://u:Kanarie rest@host/db",
        "mysql://u:Kanarie@host/db",
        "Kanarie",
    ],
)
def test_a_url_that_libpq_might_misread_is_refused_without_repeating_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_LEDGER", url)
    with pytest.raises(StoreError, match="percent-encoded") as caught:
        Store.default().ledger  # noqa: B018
    assert "anarie" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p%40ss@host:5432/db?sslmode=require", "postgresql://u@host:5432/db"),
        ("postgres://host/db", "postgresql://host/db"),
        ("postgresql:///db?host=/run/pg&password=p%40ss", "postgresql:///db"),
        ("postgresql://u:p%40ss@[::1]:5432/db", "postgresql://u@[::1]:5432/db"),
    ],
)
def test_the_ledgers_url_is_shown_without_its_password(
    url: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_LEDGER", url)
    where = Store.default().ledger
    assert (str(where), repr(where)) == (shown, f"DatabaseUrl({shown!r})")
    assert isinstance(where, DatabaseUrl)
    assert where.secret == url
    assert all(secret in ("p%40ss", "p@ss") for secret in where.secrets)
