"""Small files in the formats of the competitions, made here: prepared, loaded, trained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from contextcliff_dagster.contracts import ContextCliffError, DataError, StudyError
from contextcliff_dagster.extensions.visibility.tasks import kaggle
from contextcliff_dagster.extensions.visibility.tasks.catalogue import load_data, task_named
from contextcliff_dagster.extensions.visibility.tasks.kaggle import (
    FORMATS,
    Format,
    format_named,
    load_prepared,
    prepare,
    prepared_dir,
)
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.kaggle_files import table_of, zipped


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def written(tmp_path: Path, content: bytes, name: str = "train.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


SMALL = {
    "nomad": {"max_iter": 50, "min_samples_leaf": 2},
    "jigsaw": {"max_features": 500, "min_df": 1},
    "leaf": {},
    "forest": {"n_estimators": 50},
    "housing": {"n_estimators": 10, "bootstrap": True},
}


@pytest.mark.parametrize("format", FORMATS, ids=lambda one: one.name)
def test_a_file_of_each_competition_is_prepared_and_trained(
    format: Format, store: Store, tmp_path: Path
) -> None:
    prepared = prepare(store, format.name, written(tmp_path, table_of(format).encode()))
    assert (prepared.rows, prepared.float32) == (60, False)
    task = task_named(format.name)
    data = load_data(task, store)
    config = {**task.space.start, **SMALL[format.name]}
    evaluation = task.objective(data, 0)(config)
    constant = task.score.unit(data.targets)
    if task.score.higher_is_better:
        assert min(evaluation) > 0.6
    else:
        assert max(evaluation) < 0.6 * constant
    metadata = json.loads((prepared_dir(store, format.name) / "metadata.json").read_text())
    assert metadata["source"] == "train.csv"
    assert metadata["features"] == list(format.features)


def test_formats_have_the_columns_of_the_competitions() -> None:
    counts = {one.name: (len(one.features), len(one.targets)) for one in FORMATS}
    assert counts == {
        "nomad": (12, 1),
        "jigsaw": (1, 6),
        "leaf": (192, 1),
        "forest": (54, 1),
        "housing": (8, 1),
    }


def test_a_zip_file_and_one_within_another_give_the_same_arrays(
    store: Store, tmp_path: Path
) -> None:
    table = table_of(format_named("nomad")).encode()
    inner = zipped(train__csv=table)
    files = [
        written(tmp_path, table),
        written(tmp_path, inner, "train.csv.zip"),
        written(tmp_path, zipped(test__csv=b"id\n", train__csv__zip=inner), "nomad2018.zip"),
        written(tmp_path, zipped(other__csv=table), "renamed.zip"),
    ]
    hashes = {prepare(store, "nomad", path).data_sha256 for path in files}
    assert len(hashes) == 1


def test_classes_are_numbered_and_named(store: Store, tmp_path: Path) -> None:
    prepared = prepare(store, "leaf", written(tmp_path, table_of(format_named("leaf")).encode()))
    assert prepared.classes == ("Acer_Opalus", "Quercus_Rubra", "Tilia_Oliveri")
    assert load_prepared(store, "leaf").targets[:4].tolist() == [0, 1, 2, 0]


def test_texts_come_back_as_they_are(store: Store, tmp_path: Path) -> None:
    prepare(store, "jigsaw", written(tmp_path, table_of(format_named("jigsaw")).encode()))
    texts = load_prepared(store, "jigsaw").features
    assert len(texts) == 60
    assert texts[7].endswith('\n"7" é')


def test_float32_halves_the_features_and_changes_them_by_a_rounding(
    store: Store, tmp_path: Path
) -> None:
    path = written(tmp_path, table_of(format_named("housing")).encode())
    prepare(store, "housing", path)
    exact = load_prepared(store, "housing")
    assert prepare(store, "housing", path, float32=True).float32
    rounded = load_prepared(store, "housing")
    assert rounded.features.dtype == np.float32
    assert rounded.features.nbytes * 2 == exact.features.nbytes
    np.testing.assert_allclose(rounded.features, exact.features, rtol=1e-6)
    assert (rounded.targets == exact.targets).all()


def test_some_rows_of_a_long_file_are_the_same_ones_each_time(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path, table_of(format_named("nomad")).encode())
    hashes = {prepare(store, "nomad", path, most_rows=20).data_sha256 for _ in range(2)}
    assert len(hashes) == 1
    assert len(load_prepared(store, "nomad").targets) == 20
    assert prepare(store, "nomad", path, most_rows=1000).rows == 60


NOMAD = table_of(format_named("nomad"))
BROKEN = {
    "no file": (None, "cannot be read"),
    "empty": (b"", "not a CSV table"),
    "header only": (NOMAD.split("\n")[0].encode() + b"\n", "has no rows"),
    "another table": (b"a,b\n1,2\n", r"lacks the columns .* and 10 more of nomad"),
    "one column short": (
        NOMAD.replace("spacegroup", "group").encode(),
        "lacks the columns spacegroup of nomad",
    ),
    "a word": (NOMAD.replace("\n5,3", "\n5,many").encode(), "row 6: bandgap_energy_ev is 'many'"),
    "nothing": (NOMAD.replace("\n5,3", "\n5,").encode(), "row 6: bandgap_energy_ev is ''"),
    "infinity": (NOMAD.replace("\n5,3", "\n5,inf").encode(), "which is not a finite number"),
    "a cut row": (NOMAD[:-40].encode(), "row 60: "),
    "not UTF-8": (NOMAD.encode("utf-16"), "not UTF-8"),
    "a web page": (b"\n<!DOCTYPE html>\n<html>,,</html>", "is a web page, .* accept the rules"),
    "a zipped web page": (zipped(train__csv=b"<HTML>"), "is a web page"),
    "binary": (b"\x00\x01\x02" * 99, "lacks the columns|no table"),
    "a broken zip": (
        zipped(train__csv=NOMAD.encode() * 9)[:-60],
        "broken zip|lacks|not UTF-8|no table",
    ),
    "a zip without it": (zipped(a__txt=b"", b__csv=b"", c__csv=b""), "has no train.csv in it"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_such_file_is_one_sentence(case: str, store: Store, tmp_path: Path) -> None:
    content, why = BROKEN[case]
    path = tmp_path / "absent.csv" if content is None else written(tmp_path, content)
    with pytest.raises(DataError, match=why) as raised:
        prepare(store, "nomad", path)
    assert str(path) in str(raised.value)
    assert not prepared_dir(store, "nomad").exists()


def test_labels_are_0_or_1(store: Store, tmp_path: Path) -> None:
    table = table_of(format_named("jigsaw"))
    with pytest.raises(DataError, match="neither 0 nor 1"):
        prepare(store, "jigsaw", written(tmp_path, (table[:-2] + "2\n").encode()))


def test_a_table_of_any_size_is_not_unpacked(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kaggle, "MOST_BYTES", 1000)
    for content in (NOMAD.encode(), zipped(train__csv=NOMAD.encode())):
        with pytest.raises(DataError, match="more than"):
            prepare(store, "nomad", written(tmp_path, content))


def test_what_was_not_prepared_or_is_damaged_is_not_loaded(store: Store, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nomad has not been prepared: .*download -c nomad2018"):
        load_prepared(store, "nomad")
    prepare(store, "nomad", written(tmp_path, NOMAD.encode()))
    path = prepared_dir(store, "nomad") / "data.npz"
    content = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match="damaged"):
        load_prepared(store, "nomad")


def test_only_what_is_made_of_a_file_is_prepared(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="'digits' is not prepared from a file"):
        prepare(store, "digits", tmp_path)
    with pytest.raises(ContextCliffError, match="it is a folder"):
        prepare(store, "nomad", tmp_path)
