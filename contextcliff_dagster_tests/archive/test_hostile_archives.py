"""An archive from a stranger is imported whole or refused in one sentence, with nothing changed."""

from __future__ import annotations

import io
import json
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.archive.calls import arrow_schema
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster_tests.support.archives import (
    Members,
    as_before,
    canonical_sha256,
    members_of,
    packed,
    sealed,
    with_cell,
    with_description,
    with_manifest,
    with_table,
)
from contextcliff_dagster_tests.support.measured_stores import copy_of_few
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call

Spoil = Callable[[Members, Path], Path]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    store = copy_of_few(tmp_path_factory)
    file = store / "study.zip"
    assert call("export", "quick", str(file), "--store", str(store)).code == 0
    return members_of(file)


def _member(info: zipfile.ZipInfo, data: bytes = b"x") -> Spoil:
    def spoil(members: Members, target: Path) -> Path:
        packed(members, target)
        with zipfile.ZipFile(target, "a") as archive:
            archive.writestr(info, data)
        return target

    return spoil


def _link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("study.yaml")
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info


def _method(method: int) -> Spoil:
    def spoil(members: Members, target: Path) -> Path:
        with zipfile.ZipFile(target, "w", method) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return target

    return spoil


def _bytes(change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(members: Members, target: Path) -> Path:
        target.write_bytes(change(packed(members, target).read_bytes()))
        return target

    return spoil


def _inside(change: Callable[[Members], Members]) -> Spoil:
    return lambda members, target: packed(change(members), target)


def _cell(table: str, column: str, value: Any) -> Spoil:
    return _inside(lambda members: with_cell(members, table, column, value))


def _further_sql(table: pa.Table) -> pa.Table:
    """With a further column whose name, pasted into the INSERT, makes every answer 42."""
    values = ["coalesce('42', ?)" if n == "raw_output" else "?" for n in table.column_names]
    name = f"raw_output) SELECT {', '.join(values)}, '42' WHERE ? IS NULL ON CONFLICT DO NOTHING --"
    return table.append_column(name, pa.nulls(table.num_rows, pa.string()))


def _table(name: str, change: Callable[[pa.Table], pa.Table]) -> Spoil:
    return _inside(lambda members: with_table(members, name, change))


def _manifest(change: Callable[[dict[str, Any]], object]) -> Spoil:
    return _inside(lambda members: with_manifest(members, change))


def _description(change: Callable[[dict[str, Any]], object]) -> Spoil:
    return _inside(lambda members: with_description(members, change))


def _raw(name: str, data: bytes) -> Spoil:
    return _inside(lambda members: sealed({**members, name: data}))


def _head(**changes: Any) -> Spoil:
    return _inside(lambda members: sealed(members, changes))


def _typed(column: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        index = table.column_names.index(column)
        return table.set_column(index, column, table.column(column).cast(kind))

    return change


def _repeated(table: pa.Table) -> pa.Table:
    """Three million rows of one text: some kilobytes of Parquet, gigabytes in memory."""
    index = pa.array([0] * 3_000_000, pa.int32())
    text = pa.DictionaryArray.from_arrays(index, ["x" * 1000])
    nothing = pa.nulls(len(index), pa.int64())
    zstd, pruned = (pa.nulls(len(index), kind) for kind in (pa.binary(), pa.string()))
    return pa.table({"document_id": text, "bytes": nothing, "zstd": zstd, "pruned_at": pruned})


def _no_utf8(table: pa.Table) -> pa.Table:
    texts = pa.array([b"\xff\xfe"] * table.num_rows, pa.binary()).view(pa.string())
    return table.set_column(table.column_names.index("question"), "question", texts)


def _plainly(table: pa.Table) -> bytes:
    """As Parquet, without what makes the writer hold a large text six times."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", use_dictionary=False, write_statistics=False)
    return buffer.getvalue()


def _large_text(members: Members) -> Members:
    data = _plainly(pa.table({"document_id": ["0"], "text": ["a" * LARGE]}))
    return sealed({**members, "manifest/documents.parquet": data})


def _many_examples(members: Members) -> Members:
    data = _plainly(_examples(members, pa.table({"example_id": ["a" * LARGE]})))
    return sealed({**members, "manifest/examples.parquet": data})


def _strange_examples(members: Members) -> Members:
    buffer = io.BytesIO()
    pq.write_table(_examples(members, pa.table({"x": ["strange"]})), buffer)
    return sealed({**members, "manifest/examples.parquet": buffer.getvalue()})


def _examples(members: Members, more: pa.Table) -> pa.Table:
    """The first example with a column of ``more``."""
    whole = pq.read_table(io.BytesIO(members["manifest/examples.parquet"])).slice(0, 1)
    for name in more.column_names:
        whole = whole.drop_columns([name] if name in whole.column_names else [])
        whole = whole.append_column(name, more[name])
    return whole


def _other_hash(members: Members) -> Members:
    """Files that fit each other, and a hash of the sample that is of none of them."""
    head = json.loads(members["manifest/manifest.json"])
    del head["own_sha256"]
    head["sha256"] = OTHER
    head["own_sha256"] = canonical_sha256(head)
    changed = {**members, "manifest/manifest.json": json.dumps(head).encode()}
    return sealed(changed, {"manifest_sha256": OTHER})


def _lying(members: Members) -> Members:
    """A large text whose file declares some bytes: its footer's numbers are written anew."""
    data = _plainly(pa.table({"document_id": ["0"], "text": ["a" * LARGE]}))
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:]
    for size in (group.total_byte_size, group.column(1).total_uncompressed_size):
        digits = [2 * size >> 7 * n & 0x7F for n in range(-(-(2 * size).bit_length() // 7))]
        written = bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])
        assert written in footer
        footer = footer.replace(written, bytes([*[0x80] * (len(written) - 1), 0]))
    changed = {**members, "manifest/documents.parquet": data[:start] + footer}
    return sealed(changed)


def _large_document(members: Members) -> Members:
    zstd = pa.Codec("zstd").compress(b"a" * 1000, asbytes=True)
    row = {"document_id": "0" * 64, "bytes": 1 << 38, "zstd": zstd, "pruned_at": None}
    return with_table(
        members, "documents", lambda table: pa.Table.from_pylist([row], schema=table.schema)
    )


def _failed(status: int) -> Spoil:
    """A failure of the first attempt."""

    def change(members: Members) -> Members:
        attempts = pq.read_table(io.BytesIO(members["ledger/attempts.parquet"])).to_pylist()
        row = {
            **{name: attempts[0][name] for name in ("attempt_id", "call_key")},
            "kind": "server",
            "maybe_paid": 0,
            "status": status,
            "final": 0,
            "message": "",
            "at": "2026-01-01T00:00:00+00:00",
        }
        return with_table(
            members, "failures", lambda table: pa.Table.from_pylist([row], schema=table.schema)
        )

    return _inside(change)


def _older(spoil: Spoil) -> Spoil:
    """As a ledger without checksums would have it."""

    def spoil_older(members: Members, target: Path) -> Path:
        versions = {**json.loads(members["archive.json"])["versions"], "ledger": 5}
        return packed(sealed(members_of(spoil(members, target)), {"versions": versions}), target)

    return spoil_older


def _after_itself(members: Members, target: Path) -> Path:
    calls = pq.read_table(io.BytesIO(members["ledger/calls.parquet"]))
    parts = json.dumps({"after": [calls.column("call_key")[0].as_py()]})
    return packed(with_cell(members, "calls", "parts", parts), target)


def _in_front(members: Members, target: Path) -> Path:
    with target.open("wb") as file:
        file.write(b"#!/bin/sh\n" * 10)
    with zipfile.ZipFile(target, "a") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target


def _versions(ledger: object) -> Spoil:
    versions = {"contextcliff": "0.1.0", "schema": "1.0", "ledger": ledger}
    return _head(versions=versions)


NUMBERS = [
    field.name
    for field in arrow_schema("results")
    if field.type in (pa.int64(), pa.float64()) and field.name != "cost_usd"
]
LARGE = 70 << 20
"""More than any archive may unpack to that is not itself large."""
DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
OTHER = "f" * 64

HOSTILE: dict[str, tuple[Spoil, str]] = {
    "a link": (_member(_link()), "not a regular file"),
    "a folder": (_member(zipfile.ZipInfo("x/"), b""), "not a regular file"),
    "a path upwards": (_member(zipfile.ZipInfo("../evil")), "'../evil'"),
    "an absolute path": (_member(zipfile.ZipInfo("/etc/evil")), "'/etc/evil'"),
    "an endless name": (_member(zipfile.ZipInfo("n" * 60_000)), "nnn"),
    "a member twice": (_member(zipfile.ZipInfo("study.json"), b"{}"), "'study.json'"),
    "packed by bzip2": (_method(zipfile.ZIP_BZIP2), "unknown method"),
    "packed by lzma": (_method(zipfile.ZIP_LZMA), "unknown method"),
    "cut in half": (_bytes(lambda data: data[: len(data) // 2]), "damaged"),
    "a flipped byte": (_bytes(lambda data: data[:900] + b"\0\0\0" + data[903:]), "damaged"),
    "encrypted": (
        _bytes(lambda data: data.replace(b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\1\0")),
        "damaged",
    ),
    "blanks by the megabyte": (
        _inside(lambda members: sealed({**members, "study.json": b" " * LARGE})),
        "100 times",
    ),
    "50,000 members": (
        _inside(lambda members: {**members, **{f"m{n}": b"" for n in range(50_000)}}),
        "'m0'",
    ),
    "a head that is no UTF-8": (
        _inside(lambda members: {**members, "archive.json": b'{"format": "\xff"}'}),
        "not an archive",
    ),
    "a head 100,000 deep": (
        _inside(lambda members: {**members, "archive.json": DEEP}),
        "not an archive",
    ),
    "a head without versions": (_head(versions=None), "not an archive"),
    "a version in words": (_head(format_version="one"), "not an archive"),
    "version -1 of the ledger": (_versions(-1), "not an archive"),
    "version True of the ledger": (_versions(True), "not an archive"),
    "version 6.5 of the ledger": (_versions(6.5), "not an archive"),
    "bytes in front of it": (_in_front, "other bytes"),
    "campaigns in words": (_head(campaigns="2026"), "archive.json"),
    "campaigns of numbers": (_head(campaigns=[1]), "archive.json"),
    "other campaigns": (_head(campaigns=["other"]), "campaigns"),
    "a study by number": (_head(study=7), "archive.json"),
    "another study's name": (_head(study="other"), "another study"),
    "no sample": (_head(manifest_sha256=None), "sample"),
    "a definition 100,000 deep": (_raw("study.json", DEEP), "study.json"),
    "a definition with NaN": (_raw("study.json", b'{"study": NaN}'), "study.json"),
    "a definition with a key twice": (_raw("study.json", b'{"a": 1, "a": 2}'), "study.json"),
    "a definition that is a list": (_raw("study.json", b"[]"), "study.json"),
    "a definition without recipe": (_description(lambda d: d.pop("recipe")), "study.json"),
    "another recipe": (_description(lambda d: d["recipe"].update(system="x")), "study.json"),
    "prompt texts that are no texts": (
        _description(lambda d: d.update(prompt_texts={"template": 1})),
        "study.json",
    ),
    "a name that is a path": (
        _description(lambda d: d["study"].update(name="../evil")),
        "a study that this version cannot read",
    ),
    "a study that is nothing": (
        _description(lambda d: d.update(study={})),
        "a study that this version",
    ),
    "a sample 100,000 deep": (_raw("manifest/manifest.json", DEEP), "manifest.json"),
    "a sample without examples": (_manifest(lambda m: m.pop("examples")), "sample"),
    "a sample without lengths": (_manifest(lambda m: m["header"].pop("lengths")), "manifest.json"),
    "a file list elsewhere": (
        _manifest(
            lambda m: m["header"]["corpus"].update(account={"list": "../../../../etc/passwd"})
        ),
        "manifest.json",
    ),
    "an example of no bin": (_manifest(lambda m: m["examples"][0].update(bin="b99")), "manifest"),
    "an example of no document": (
        _manifest(lambda m: m["examples"][0].update(document_id=OTHER)),
        "manifest.json",
    ),
    "an example twice": (_manifest(lambda m: m["examples"].append(m["examples"][0])), "manifest"),
    "another sample's hash": (_inside(_other_hash), "not the one named in its head"),
    "examples of 70 MB in 10 kB": (_inside(_many_examples), "100 times"),
    "examples with a strange column": (_inside(_strange_examples), "column"),
    "bins in words": (_manifest(lambda m: m["bins"][0].update(n="many")), "manifest.json"),
    "a text under another's id": (
        _inside(
            lambda members: sealed(
                {**members, "manifest/documents.parquet": _documents([(OTHER, "text")])}
            )
        ),
        "does not match its id",
    ),
    "a text of 70 MB in 10 kB": (_inside(_large_text), "100 times"),
    "a text of 70 MB that declares nothing": (_inside(_lying), "100 times"),
    "one text three million times": (
        _inside(lambda members: with_table(members, "documents", _repeated, plain=True)),
        "100 times",
    ),
    "a document of 2^38 bytes": (_inside(_large_document), "100 times"),
    "no Parquet": (_raw("ledger/calls.parquet", b"PAR1" + b"\xff" * 90 + b"PAR1"), "'calls'"),
    "text that is no UTF-8": (_table("calls", _no_utf8), "'calls'"),
    "a column that is SQL": (_table("results", _further_sql), "'results'"),
    "a further column": (
        _table("calls", lambda t: t.append_column("x", pa.nulls(t.num_rows, pa.string()))),
        "'x'",
    ),
    "a column of another type": (_table("calls", _typed("replicate", pa.string())), "replicate"),
    "a column of large texts": (_table("calls", _typed("question", pa.large_string())), "question"),
    "no key": (_cell("calls", "call_key", None), "empty call_key"),
    "no study": (_cell("calls", "study", None), "empty study"),
    "no time": (_cell("campaigns", "created_at", "soon"), "not a time"),
    "a key twice": (_table("results", lambda t: pa.concat_tables([t, t])), "a row twice"),
    "a negative charge": (_cell("attempts", "charged_usd", -1000.0), "charged_usd"),
    "negative tokens": (_cell("attempts", "charged_tokens", -(10**6)), "charged_tokens"),
    "an infinite charge": (_cell("attempts", "charged_usd", float("inf")), "charged_usd"),
    "a charge that is no number": (_cell("attempts", "charged_usd", float("nan")), "charged_usd"),
    **{
        f"a {column} of {value}": (_cell("results", column, value), column)
        for column in NUMBERS
        for value in (-1, 1 << 43)
    },
    "an HTTP status of -1": (_failed(-1), "status"),
    "a charge of 1e308": (_cell("attempts", "reserved_usd", 1e308), "reserved_usd"),
    "tokens beyond counting": (_cell("attempts", "reserved_tokens", 2**62), "reserved_tokens"),
    "an attempt at no call": (_cell("attempts", "call_key", OTHER), "call_key"),
    "an answer to no call": (_cell("results", "call_key", OTHER), "call_key"),
    "an answer that was changed": (_cell("results", "raw_output", "42"), "checksum"),
    "answers whose checksums were left out": (
        _table("results", lambda t: _unsigned(t, "raw_output", "42")),
        "'checksum'",
    ),
    "an answer without its checksum": (_cell("results", "checksum", None), "without a checksum"),
    "an unknown kind of no answer": (
        _older(_table("results", lambda t: _unsigned(t, "no_answer", "other"))),
        "no_answer",
    ),
    "a call after none": (_cell("calls", "parts", '{"after": "x"}'), "'after'"),
    "a call after numbers": (_cell("calls", "parts", '{"after": [1]}'), "'after'"),
    "a call after one that is missing": (_cell("calls", "parts", '{"after": ["x"]}'), "after one"),
    "a call after itself": (_after_itself, "after one"),
    "a call under another's key": (_cell("calls", "question", "Why?"), "another's key"),
    "a prompt of another hash": (_cell("calls", "prompt_hash", OTHER), "a prompt of another text"),
    "a call by another recipe": (_cell("calls", "recipe_hash", OTHER), "recipe_hash"),
    "an unknown replicate": (_cell("calls", "replicate", 9), "replicate"),
    "a model's name that clears the screen": (_cell("calls", "model", "m\x1b[2J"), "strange model"),
    "a call of another campaign": (_cell("calls", "campaign", "x"), "campaign"),
    "parts 100,000 deep": (_cell("calls", "parts", DEEP.decode()), "JSON"),
    "a recipe that is none": (_cell("recipes", "body", '{"mode": "chat"}'), "recipes"),
    "a recipe under another's hash": (_cell("identities", "body", "{}"), "identities"),
    "an identity that is no JSON": (_cell("identities", "body", "{"), "identities"),
    "the campaign of another study": (_cell("campaign_models", "study", "x"), "another study"),
}


def _documents(rows: list[tuple[str, str]]) -> bytes:
    buffer = io.BytesIO()
    ids, texts = zip(*rows, strict=True)
    pq.write_table(pa.table({"document_id": ids, "text": texts}), buffer)
    return buffer.getvalue()


def _unsigned(table: pa.Table, column: str, value: str) -> pa.Table:
    """The table without checksums and with ``value`` in every row of a column."""
    index = table.column_names.index(column)
    changed = table.set_column(index, column, pa.array([value] * table.num_rows))
    return changed.drop_columns(["checksum"])


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_costs_one_sentence(name: str, members: Members, tmp_path: Path) -> None:
    spoil, words = HOSTILE[name]
    file, store = spoil(members, tmp_path / "spoiled.zip"), tmp_path / "fresh"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = call("import", str(file), "--store", str(store))
    assert_one_sentence(ended, "spoiled.zip", words)
    assert len(ended.err) < 500
    assert not store.exists()
    assert not (tmp_path / "evil").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # kB


def test_what_is_only_packed_again_is_imported(members: Members, tmp_path: Path) -> None:
    file = packed(sealed(members), tmp_path / "again.zip")
    taken = call("import", str(file), "--store", str(tmp_path / "fresh"), "--json")
    assert json.loads(taken.out)["new_answers"] == 15, taken.err


def test_an_archive_of_an_earlier_version_is_imported(members: Members, tmp_path: Path) -> None:
    before, store = as_before(members), tmp_path / "store"
    taken = call("import", str(packed(before, tmp_path / "a.zip")), "--store", str(store))
    assert taken.code == 0, taken.err
    manifest, again = next(store.glob("*/manifest")), tmp_path / "again.zip"
    kept = call("export", manifest.parent.name, str(again), "--store", str(store))
    assert kept.code == 0, kept.err
    name = "manifest/manifest.json"
    assert members_of(again)[name] == before[name]


def test_what_an_archive_says_it_cost_is_shown_and_counts_for_no_day(
    members: Members, tmp_path: Path
) -> None:
    file, store = tmp_path / "dear.zip", tmp_path / "fresh"
    packed(with_cell(members, "attempts", "charged_usd", 9e8), file)
    taken = call("import", str(file), "--store", str(store))
    assert "for $900,000,000.0000" in taken.out, taken.err
    with Ledger.open(store / "state.db") as ledger:
        assert ledger.read("SELECT sum(usd) FROM spend") == [(9e8,)]
        assert ledger.read("SELECT * FROM spend_days") == []
