"""`visibility prepare`, on small files in the competitions' formats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from contextcliff_dagster.extensions.visibility.tasks.kaggle import (
    FORMATS,
    Format,
    format_named,
    load_prepared,
    prepared_dir,
)
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.kaggle_files import table_of, zipped
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call

HOUSING = format_named("housing")
TABLE = table_of(HOUSING)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.mark.parametrize("format", FORMATS, ids=lambda one: one.name)
def test_a_downloaded_archive_is_prepared(format: Format, store: Store, tmp_path: Path) -> None:
    file = tmp_path / f"{format.page}.zip"
    file.write_bytes(zipped(train__csv__zip=zipped(train__csv=table_of(format).encode())))
    ended = call("visibility", "prepare", format.name, str(file), "--store", str(store.root))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"{format.name}: 60 rows of {len(format.features)} feature")
    assert str(prepared_dir(store, format.name)) in ended.out
    assert len(load_prepared(store, format.name).targets) == 60


def test_options_keep_fewer_rows_in_less_memory_and_json_says_so(
    store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "train.csv"
    file.write_text(TABLE, encoding="utf-8")
    options = ("--float32", "--max-samples", "20", "--json", "--store", str(store.root))
    ended = call("visibility", "prepare", "housing", str(file), *options)
    assert ended.code == 0
    summary = json.loads(ended.out)
    assert (summary["rows"], summary["float32"], summary["source"]) == (20, True, "train.csv")
    assert Path(summary["folder"]) == prepared_dir(store, "housing")
    features = load_prepared(store, "housing").features
    assert (features.dtype, features.shape) == (np.float32, (20, 8))


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("housing", None, "cannot be read"),
        ("housing", b"<!DOCTYPE html><html>", "is a web page"),
        ("housing", b"PK\x03\x04 and nothing more", "lacks the columns"),
        ("housing", zipped(readme__txt=b"hello"), "has no train.csv"),
        ("housing", TABLE.replace("MedInc", "Income").encode(), "lacks the columns MedInc"),
        ("housing", TABLE.replace("\n5,3", "\n5,nan").encode(), "row 6: MedHouseVal is 'nan'"),
        ("leaf", TABLE.encode(), "of leaf; use the train.csv"),
        ("digits", TABLE.encode(), "choose one of nomad, jigsaw, leaf, forest, housing"),
    ],
    ids=["absent", "web page", "broken", "no table", "column", "nan", "another", "bundled"],
)
def test_a_file_that_is_none_is_one_sentence(
    name: str, content: bytes | None, word: str, store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "given.zip"
    if content is not None:
        file.write_bytes(content)
    ended = call("visibility", "prepare", name, str(file), "--store", str(store.root))
    assert_one_sentence(ended, word)
    assert not store.root.exists() or not prepared_dir(store, name).exists()


def test_a_folder_and_no_rows_are_refused(tmp_path: Path) -> None:
    assert_one_sentence(
        call("visibility", "prepare", "housing", str(tmp_path), "--store", str(tmp_path / "s")),
        "it is a folder",
    )
    ended = call("visibility", "prepare", "housing", "x", "--max-samples", "0")
    assert_one_sentence(ended, "--max-samples")
