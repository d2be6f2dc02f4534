"""Tables as people have them: any delimiter and encoding, nested keys, lists, saved data sets."""

from __future__ import annotations

import csv
import io
import json
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.readers.rows import READERS, local_copy
from contextcliff_dagster.corpora.readers.tables import key_names, value_at
from contextcliff_dagster.corpora.recognition import recognise
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster.score_files import ScoreFileError, read_records
from contextcliff_dagster_tests.support.files.folders import write

CELL = st.text(st.characters(exclude_characters="\x00\r", exclude_categories=["Cs"]), max_size=8)
ROW = {"context": "The rent is 5.", "question": "How much?", "answers": ["5"], "id": "q1"}


def table(rows: Sequence[Sequence[str]], delimiter: str = ",", end: str = "\n") -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator=end).writerows(rows)
    return text.getvalue()


@given(
    rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=4),
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"]),
    named=st.booleans(),
    ending=st.sampled_from([".csv", ".tsv"]),
)
def test_a_table_is_the_same_in_any_dialect(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str]],
    delimiter: str,
    end: str,
    encoding: str,
    named: bool,
    ending: str,
) -> None:
    header = ("document", "question", "answers")
    text = table([header, *rows], delimiter, end)
    text = f"sep={delimiter}{end}{text}" if named else text
    path = tmp_path_factory.mktemp("csv") / f"t{ending}"
    mark = "\ufeff" if encoding.endswith("e") else ""
    path.write_bytes((mark + text).encode(encoding))
    read = [tuple(row.values()) for _, row in READERS[ending[1:]](path)]
    assert read == [row for row in rows if any(cell.strip() for cell in row)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("context;question;answers\nc;q;a;b\n", "line 2 has 4 fields, the header has 3"),
        ("sep=;\n\ncontext;question;answers\nc;q\n", "line 4 has 2 fields, the header has 3"),
        ('a,b\n"c\nd",e\n"f,g\n', "line 4"),
        ("a,b\rc,d\r", "line 1: new-line character seen in unquoted field."),
        ("a,b, a \n1,2,3\n", "names column 'a' twice"),
    ],
)
def test_a_broken_table_is_named_by_its_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    with pytest.raises(CorpusError, match=said):
        list(READERS["csv"](path))


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_another_encoding_is_refused_with_the_one_to_save_in(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("length_tokens;score;document_id\n1;1;Café\n2;0;b\n".encode(encoding))
    for read, error in ((READERS["csv"], CorpusError), (read_records, ScoreFileError)):
        with pytest.raises(error, match=r"line 2 is not UTF-8 .* save the file as UTF-8"):
            list(read(path))


def test_a_header_with_a_line_break_is_one_name(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", '"Frage \n (kurz)";b\n1;2\n')
    assert [row for _, row in READERS["csv"](path)] == [{"Frage (kurz)": "1", "b": "2"}]


JSON_KEYS = st.text("abc", min_size=1, max_size=2)


@given(
    st.dictionaries(
        JSON_KEYS,
        st.recursive(
            st.integers(), lambda v: st.dictionaries(JSON_KEYS, v, min_size=1), max_leaves=4
        ),
    )
)
def test_every_name_that_is_listed_finds_its_value(row: dict[str, Any]) -> None:
    assert all(isinstance(value_at(row, name), int) for name in key_names(row))


def test_a_key_with_a_dot_in_it_wins_over_nesting() -> None:
    row = {"a.b": 1, "a": {"b": 2, "c.d": 3}, "e": None}
    assert [value_at(row, name) for name in ("a.b", "a.c.d", "a.x", "e.f", "g.h")] == [
        1, 3, None, None, None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "answers"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("['a', 'b']", ["a", "b"]),
        ("['it\\'s' \"l'Est\"]", ["it's", "l'Est"]),
        ("('a', 'b')", ["a", "b"]),
        ("{'a', 'b'}", ["a", "b"]),
        ("[1 2]", ["1", "2"]),
        ("['a', None]", ["a"]),
        ("array(['a', 'b'], dtype=object)", ["a", "b"]),
        ("{'text': array(['x'], dtype=object), 'answer_start': array([3], dtype=int32)}", ["x"]),
        ('{"text": ["x", "y"], "answer_start": [1, 2]}', ["x", "y"]),
        ("[np.str_('a'), np.str_('b')]", ["a", "b"]),
        ("(B)", ["(B)"]),
        ("(1, 2)", ["(1, 2)"]),
        ('{"city": "Paris"}', ['{"city": "Paris"}']),
        ("1.250", ["1.250"]),
    ],
)
def test_a_cell_holds_a_list_as_any_program_writes_it(
    cell: str, answers: list[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "t.csv", table([("context", "question", "answers"), ("c", "q", cell)]))
    (entry,) = open_corpus("file", {"path": str(path)}).entries()
    assert list(entry.example.answers) == answers


@pytest.mark.parametrize(
    "cell",
    [
        "['a', 'b",
        "[citation needed]",
        "['a''b']",
        "['k' ... 'k']",
        "['a\nb']",
        "['a', nan]",
        "array(x)",
        "[__import__('os').getcwd()]",
        "[" * 5_000,
        "['a'] # b",
    ],
)
def test_a_list_that_cannot_be_read_is_no_answer(cell: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", table([("context", "question", "answers"), ("c", "q", cell)]))
    with pytest.raises(CorpusError, match=r"line 2 has .* as answers, .* write JSON, e\.g\. \["):
        list(open_corpus("file", {"path": str(path)}).entries())


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1))
def test_lists_that_pandas_writes_are_read(
    tmp_path_factory: pytest.TempPathFactory, answers: list[str]
) -> None:
    forms = [answers, np.array(answers, dtype=object), {"text": np.array(answers, dtype=object)}]
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    pd.DataFrame({"context": "c", "question": list("abc"), "answers": forms}).to_csv(path)
    wanted = list(dict.fromkeys(answer for answer in answers if answer.strip()))
    if wanted:
        read = [list(e.example.answers) for e in open_corpus("file", {"path": str(path)}).entries()]
        assert read == [wanted] * 3


@pytest.mark.parametrize(
    ("field", "cell", "value"),
    [
        ("evidence_position", "0,25", 0.25),
        ("level", "2,0", 2),
        ("inter_evidence_tokens", "1.000", None),
        ("inter_evidence_tokens", "1,000", None),
        ("inter_evidence_tokens", "1000.0", 1_000),
    ],
)
def test_numbers_with_a_decimal_comma_and_none_with_two_readings(
    field: str, cell: str, value: float | None, tmp_path: Path
) -> None:
    rows = [("context", "question", "answers", field), ("c", "q", "a", cell)]
    corpus = open_corpus("file", {"path": str(write(tmp_path / "t.csv", table(rows, ";")))})
    if value is None:
        with pytest.raises(CorpusError, match=f"{field} '{cell}'; it must be a whole number"):
            list(corpus.entries())
    else:
        assert next(corpus.entries()).example.metadata[field] == value


def test_nested_keys_are_named_and_listed(tmp_path: Path) -> None:
    row = {"doc": {"text": "A mill."}, "qa": {"q": "What?", "gold": ["a mill"]}, "task": "t"}
    path = write(tmp_path / "t.jsonl", json.dumps(row))
    columns = {"context": "doc.text", "question": "qa.q", "answers": "qa.gold"}
    recognised = recognise(path, None, columns)
    (entry,) = open_corpus(recognised.kind, recognised.options).entries()
    assert (entry.document.text, entry.example.answers) == ("A mill.", ("a mill",))
    with pytest.raises(CorpusError, match=r"no answers: fill 'qa.a'; columns found: .*qa\.gold"):
        list(
            open_corpus("file", {"path": path, "columns": columns | {"answers": "qa.a"}}).entries()
        )


def saved(folder: Path, rows: list[dict[str, Any]], shards: int = 1) -> Path:
    """The rows as datasets 5.2 saves them: streams of record batches, and their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{n:05}-of-{shards:05}.arrow" for n in range(shards)]
    for n, name in enumerate(names):
        part = pa.Table.from_pylist(rows[n::shards] or rows[:0], pa.Table.from_pylist(rows).schema)
        with pa.ipc.new_stream(folder / name, part.schema) as file:
            file.write_table(part)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_a_saved_data_set_is_a_table(tmp_path: Path) -> None:
    path = saved(tmp_path / "set", [{**ROW, "id": f"q{n}"} for n in range(5)], shards=2)
    recognised = recognise(path)
    assert recognised == ("file", {"path": str(path)})
    corpus = open_corpus(*recognised)
    assert [e.example.example_id for e in corpus.entries()] == ["q0", "q2", "q4", "q1", "q3"]
    before = corpus.fingerprint()
    saved(path, [ROW] * 5, shards=2)
    assert open_corpus(*recognised).fingerprint() != before


def test_a_saved_benchmark_is_that_benchmark(tmp_path: Path) -> None:
    row = {**ROW, "answers": {"text": ["5"], "answer_start": [12]}}
    recognised = recognise(saved(tmp_path / "set", [row]))
    assert recognised.kind == "squad"
    (entry,) = open_corpus(*recognised).entries()
    assert entry.example.answers == ("5",)


def test_one_of_several_splits_is_to_be_named(tmp_path: Path) -> None:
    names = ["train", "test"]
    for name in names:
        saved(tmp_path / name, [ROW])
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": names}))
    with pytest.raises(CorpusError, match=rf"the splits train, test; name one.*{tmp_path}/train"):
        recognise(tmp_path)
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": names[1:]}))
    assert len(list(open_corpus(*recognise(tmp_path)).entries())) == 1


@pytest.mark.parametrize("damage", [lambda b: b[:-40], lambda b: b"", lambda b: b"ARROW1" + b[8:]])
def test_a_damaged_saved_data_set_is_refused(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = saved(tmp_path / "set", [ROW])
    (file,) = path.glob("*.arrow")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CorpusError, match="is not readable Arrow"):
        list(open_corpus("file", {"path": path}).entries())


def test_scores_are_read_from_arrow_in_either_form(tmp_path: Path) -> None:
    rows = [{"usage": {"prompt_tokens": n}, "score": n / 4} for n in (1, 2)]
    columns = {"length_tokens": "usage.prompt_tokens"}
    stream = saved(tmp_path / "set", rows)
    with pa.ipc.new_file(tmp_path / "one.arrow", pa.Table.from_pylist(rows).schema) as file:
        file.write_table(pa.Table.from_pylist(rows))
    for path in (stream, tmp_path / "one.arrow"):
        (records,) = read_records(path, columns=columns)
        assert list(records.frame["score"]) == [0.25, 0.5]


class Split:
    """What `load_dataset` returns of one split."""

    def to_parquet(self, path: Path) -> None:
        pd.DataFrame([ROW]).to_parquet(path)


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("hf://me/data", ("me/data", None, None, None, None)),
        ("hf://datasets/me/data@v1", ("me/data", None, None, None, "v1")),
        ("hf://me/data/de:test", ("me/data", "de", None, "test", None)),
        ("hf://me/data/:test", ("me/data", None, None, "test", None)),
        ("hf://me/data@refs/convert/parquet/de/0.parquet",
         ("me/data", None, "de/0.parquet", None, "refs/convert/parquet")),
    ],
)  # fmt: skip
def test_a_data_set_of_the_hub_is_fetched_once(
    url: str, asked: tuple[str | None, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def load_dataset(name: str, config: str | None, **o: Any) -> dict[str, Split]:
        calls.append((name, config, o["data_files"], o["split"], o["revision"]))
        return {"train": Split()}

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    path = local_copy(url, tmp_path)
    assert local_copy(url, tmp_path) == path
    assert calls == [asked]
    assert recognise(path).kind == "file"


def test_what_the_hub_does_not_give_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(url: str) -> str:
        with pytest.raises(CorpusError) as caught:
            local_copy(url, tmp_path)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install datasets`" in said("hf://me/data")
    two = {"train": Split(), "test": Split()}
    fake = types.SimpleNamespace(load_dataset=lambda *_, **__: two)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    assert "splits train, test; name one of them: hf://me/data/:train" in said("hf://me/data")
    assert said("hf://me/data/de").endswith("hf://me/data/de:train.")
    assert "hf://OWNER/NAME" in said("hf://me")
    assert "secret" not in said("hf://me:secret@data/x") + said("hf://me/x?token=secret")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such\ndata set")

    monkeypatch.setattr(fake, "load_dataset", fail)
    assert said("hf://me/data") == "hf://me/data cannot be loaded: no such data set"
