"""Files as people have them: other types, other separators, other line ends."""

from __future__ import annotations

import bz2
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.score_files import ScoreFileError, read_records, read_tables, stem
from contextcliff_dagster.score_files.columns import SMALL_BYTES, opened


def read(path: Path, **options: Any) -> pd.DataFrame:
    (records,) = read_records(path, **options)
    return records.frame


def scores(path: Path) -> list[float]:
    return list(read(path)["score"])


@pytest.mark.parametrize(
    "text",
    [
        "length_tokens,score\n100,1\n200,0.5\n",
        "\ufefflength_tokens,score\r\n100,1\r\n200,0.5\r\n",
        " length_tokens ; score \n100;1\n200;0.5\n",
        "length_tokens\tscore\n100\t1\n200\t0.5",
        '\n"length_tokens","score","note"\n"100","1","a, ""b""\nc"\n\n"200","0.5",""\n',
        "id,score,note,note,length_tokens\n1,1,x,y,100\n2,0.5,x,y,200\n",
        "length_tokens,score\n1e2,1.0\n200.0,5e-1\n",
        "length_tokens;score\n100;1\n200;0,5\n",
        "length_tokens;score\n100,0;1,0\n200,0;0,5\n;\n;\n",
        "sep=;\r\nlength_tokens;score\r\n100;1\r\n200;0,5\r\n",
        "length_tokens\tscore\n100\t1\n200\t0,5\n",
        'length_tokens|score|note\n100|1|a;b, c\n200|0.5|"d|e\n"\n',
        'length_tokens;score;"note, long"\n100;1;a, b, c\n200;0,5;\n',
        "length_tokens,score,failure\n100,1,\n200,.5,\n",
    ],
)
def test_tables_of_text_as_programs_write_them(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for encoding in ("utf-8", "utf-16"):
        path.write_text(text, encoding=encoding, newline="")
        frame = read(path)
        assert list(frame["length_tokens"]) == [100, 200]
        assert list(frame["score"]) == [1.0, 0.5]


TWO_READINGS = "a fraction, or 1,000 with a thousands separator\\? Write whole numbers without"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "length_tokens,score\n1.000,1\n2.000,0\n",
            f"1 more\\): length_tokens is 1.000: {TWO_READINGS}",
        ),
        (
            "length_tokens;score\n1.000;0,5\n950;1\n",
            f"row 1: length_tokens is 1.000: {TWO_READINGS}",
        ),
        ('length_tokens,score\n"1,000",1\n"950",0\n', f"length_tokens is '1,000': {TWO_READINGS}"),
        ("length_tokens;mean;score;n\n1;0,5;1;1.000\n2;1;1;1\n", f"n is 1.000: {TWO_READINGS}"),
        (
            "length_tokens;score;ttft_ms\n1;0,5;1,000\n2;1;2,500\n",
            f"ttft_ms is '1,000': {TWO_READINGS}",
        ),
        (
            "length_tokens,score\n1000.5,1\n2000,0\n",
            "length_tokens is 1000.5: a fraction, or a number",
        ),
        (
            "length_tokens,score\n1 000,1\n2 000,0\n",
            "length_tokens is '1 000', no number; write digits",
        ),
        ("length_tokens,score\n1'000,1\n2000,0\n", 'length_tokens is "1\'000", no number'),
        ('length_tokens,score\n1000,"0,5"\n2000,1\n', "score is '0,5', no number"),
        (
            "length_tokens;score\n1000;0,5\n2000;0.5\n",
            "row 2: score is 0.5, with a decimal point, where",
        ),
    ],
)
def test_a_number_with_two_readings_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text, "utf-8")
    with pytest.raises(ScoreFileError, match=said):
        (read_tables if "mean" in text else read_records)(tmp_path / "a.csv")


@given(
    st.lists(st.integers(1, 10**9), min_size=2, max_size=5),
    st.sampled_from(["{}", "{}.0", "{}.00"]),
    st.sampled_from(",;"),
)
def test_whole_lengths_are_read_to_the_token(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], form: str, delimiter: str
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    rows = [f"{form.format(length)}{delimiter}1" for length in lengths]
    path.write_text("\n".join([f"length_tokens{delimiter}score", *rows]))
    assert list(read(path)["length_tokens"]) == lengths


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".parquet"])
def test_values_in_objects_are_columns_with_a_dot(ending: str, tmp_path: Path) -> None:
    rows = [
        {"usage": {"prompt_tokens": n, "cost": None}, "score": n / 4, "meta": {"doc": f"d{n}"}}
        for n in (1, 2)
    ]
    path = tmp_path / f"a{ending}"
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = "\n".join(map(json.dumps, rows))
        path.write_text(lines if ending == ".jsonl" else json.dumps(rows))
    columns = {"length_tokens": "usage.prompt_tokens", "document_id": "meta.doc"}
    frame = read(path, columns=columns)
    assert frame.to_dict("list") == {
        "length_tokens": [1, 2], "document_id": ["d1", "d2"], "score": [0.25, 0.5]
    }  # fmt: skip
    found = r"columns found: usage\.prompt_tokens, usage\.cost, score, meta\.doc"
    with pytest.raises(ScoreFileError, match=f"'usage.x', which .* {found}"):
        read(path, columns=columns | {"length_tokens": "usage.x"})
    with pytest.raises(ScoreFileError, match=f"{found}.*length_tokens=usage.prompt_tokens"):
        read(path)


def test_a_column_with_a_dot_in_its_name_wins_over_an_object(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"u.t": 5, "u": {"t": 9}, "score": 1}\n{"u": {"t": 7}, "score": 0}\n')
    assert list(read(path, columns={"length_tokens": "u.t"})["length_tokens"]) == [5, 7]
    (tmp_path / "a.csv").write_text("u.t,score\n5,1\n7,0\n")
    frame = read(tmp_path / "a.csv", columns={"length_tokens": "u.t"})
    assert list(frame["length_tokens"]) == [5, 7]


def test_large_numbers_as_names_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"length_tokens": 1, "score": 1, "document_id": 2**60 + n} for n in (0, 1)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert list(read(path)["document_id"]) == [str(2**60), str(2**60 + 1)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"length_tokens": 100, "score": 1}\n\n{"score": 0.5, "length_tokens": 200}'),
        ("a.ndjson", '\ufeff{"length_tokens": "100", "score": "1"}\n'
                     '{"length_tokens": 200, "score": 0.5, "x": {"y": [1]}}\n'),
        ("a.json", '[\n  {"length_tokens": 100, "score": 1},\n'
                   '  {"length_tokens": 200, "score": 0.5}\n]\n'),
        ("a.json", '{"length_tokens": 100, "score": true}\n{"length_tokens": 200, "score": 0.5}'),
        ("scores", '{"length_tokens": 100, "score": 1}\n{"length_tokens": 200, "score": 0.5}\n'),
        ("a.JSONL", '{"length_tokens": 100, "score": 1}\n{"length_tokens": 200, "score": 0.5}\n'),
    ],
)  # fmt: skip
def test_json_as_programs_write_it(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert scores(tmp_path / name) == [1.0, 0.5]


def test_types_that_parquet_has(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "length_tokens": pa.array([100, 200, 300], pa.uint16()),
            "score": pa.array([Decimal("1.00"), None, Decimal("0.50")], pa.decimal128(5, 2)),
            "document_id": pa.array([1.0, 2.0, None]),
            "failure": pa.array([None, "transport_error", None]).dictionary_encode(),
            "replicate": pa.array([0, 0, 1], pa.int8()),
            "failed": pa.array([False, None, True]),
            "text": [["not", "a"], ["name"], []],
        }
    )
    pq.write_table(table, path)
    frame = read(path)
    assert list(frame["score"].fillna(-1)) == [1.0, -1.0, 0.5]
    assert list(frame["document_id"].fillna("")) == ["1", "2", ""]
    assert list(frame["failed"].fillna(-1)) == [0, -1, 1]
    assert "text" not in frame.columns


def test_a_column_of_lists_is_no_score(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"length_tokens": [1, 2], "score": [[1.0], [0.0]]}), path)
    with pytest.raises(ScoreFileError, match=r"'score' holds list<.*>, not numbers"):
        read(path)


def test_packed_files_and_rows_longer_than_a_block(tmp_path: Path) -> None:
    line = '{"length_tokens": %d, "score": %s, "context": "' + "x" * 3_000_000 + '"}\n'
    path = tmp_path / "a.jsonl.bz2"
    path.write_bytes(bz2.compress((line % (100, 1) + line % (200, 0.5)).encode()))
    assert scores(path) == [1.0, 0.5]


def test_names_stay_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("length_tokens,score,document_id,model\n1,1,007,1.0\n2,1,7,1.0\n", "utf-8")
    (records,) = read_records(path)
    assert list(records.frame["document_id"]) == ["007", "7"]
    assert records.model == "1.0"


def test_models_are_told_apart_and_keep_the_order_of_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("model,length_tokens,score\nb,1,.1\na,2,.2\nb,3,.3\n", "utf-8")
    a, b = read_records(path)
    assert (a.model, list(a.frame["score"])) == ("a", [0.2])
    assert (b.model, list(b.frame["score"]), list(b.measured_lengths)) == ("b", [0.1, 0.3], [1, 3])


def test_a_scale_is_divided_out_to_the_last_digit(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    percent = [f"{i / 10:.1f}" for i in range(1_001)]
    path.write_text("length_tokens,score\n" + "".join(f"5,{p}\n" for p in percent), "utf-8")
    assert list(read(path, scale=100)["score"]) == [float(f"{i / 1000:.3f}") for i in range(1_001)]


def test_a_table_of_means_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n,mean,length_tokens\n10,50,2000\n,80,1000\n", "utf-8")
    (table,) = read_tables(path, scale=100)
    assert list(table.length_tokens) == [1_000, 2_000]
    assert list(table.mean) == [0.8, 0.5]
    assert np.isnan(table.n[0])
    assert table.n[1] == 10


@pytest.mark.parametrize(
    ("name", "called"),
    [("a.b.csv", "a.b"), ("a.jsonl.gz", "a"), ("scores", "scores"), (".csv", ".csv")],
)
def test_what_a_file_is_called(name: str, called: str) -> None:
    assert stem(Path("folder") / name) == called


def test_categories_of_questions_are_kept(tmp_path: Path) -> None:
    """Also a task, where there are several; what holds no names is left aside."""
    path = tmp_path / "kinds.jsonl"
    lines = [
        f'{{"length_tokens": {n}, "score": 1, "kind": "k{n % 2}", "level": {n}, "task": "a", '
        f'"domain": ["x"]}}'
        for n in (1, 2)
    ]
    path.write_text("\n".join(lines))
    frame = read(path)
    assert list(frame["kind"]) == ["k1", "k0"]
    assert list(frame["level"]) == ["1", "2"]
    assert not {"task", "domain"} & set(frame.columns)
    table = tmp_path / "tasks.csv"
    table.write_text("length_tokens,score,task\n1,1,a\n2,0,b\n")
    assert list(read(table)["task"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2026-03-01T09:00:00Z", "2026-03-01T10:00:01.5+01:00"),
        ("2026-03-01 09:00:00", "2026-03-01 09:00:01.500"),
        ("1772355600", "1772355601.5"),
    ],
)
def test_times_are_moments_in_iso_8601_or_seconds(first: str, second: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"length_tokens,score,finished_at\n1,1,{first}\n2,1,{second}\n3,1,x\n")
    at = read(path)["finished_at"]
    assert list(at[:2]) == [
        pd.Timestamp("2026-03-01 09:00:00Z"), pd.Timestamp("2026-03-01 09:00:01.5Z")
    ]  # fmt: skip
    assert at.isna()[2]
    rows = pd.DataFrame({"length_tokens": [1, 2], "score": [1, 1], "finished_at": at[:2]})
    rows.to_parquet(tmp_path / "a.parquet")
    assert list(read(tmp_path / "a.parquet")["finished_at"]) == list(at[:2])


def test_a_column_of_times_that_are_none_is_left_aside(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"length_tokens": [1, 2], "score": [1.0, 0.0], "finished_at": [[1], [2]]}),
        tmp_path / "a.parquet",
    )
    assert "finished_at" not in read(tmp_path / "a.parquet")


def test_a_packed_file_that_unpacks_without_measure_is_refused(tmp_path: Path) -> None:
    bomb, most = tmp_path / "scores.csv.gz", SMALL_BYTES >> 20
    with gzip.open(bomb, "wb") as file:
        file.write(b"length_tokens,score\n")
        for _ in range(most + 2):
            file.write(b"1000,1\n" * ((1 << 20) // 7))
    with pytest.raises(ScoreFileError, match=r"unpacks to more than .* MB, .* unpack it if"):
        opened(bomb)
    sound = tmp_path / "sound.csv.gz"
    sound.write_bytes(gzip.compress(b"length_tokens,score\n" + b"1000,1\n" * 100_000))
    with opened(sound) as file:
        assert len(file.read()) == 20 + 700_000
