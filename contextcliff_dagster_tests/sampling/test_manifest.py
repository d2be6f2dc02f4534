"""The manifest freezes a sample: the same seed gives the same bytes, and the source may go."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import (
    DOCUMENTS,
    MANIFEST_EXAMPLES,
    LengthBin,
    StoreError,
    conform,
)
from contextcliff_dagster.corpora.corpus import document_id
from contextcliff_dagster.corpora.materialize import materialize_corpus
from contextcliff_dagster.corpora.registry import ReferenceCorpus
from contextcliff_dagster.sampling.bins import BinSpec, active_bins, make_bins
from contextcliff_dagster.sampling.draw_manifest import SampleSpec, draw_manifest
from contextcliff_dagster.sampling.length_map import build_length_map, read_length_map
from contextcliff_dagster.sampling.manifest import (
    Manifest,
    load_manifest,
    save_manifest,
    stored_sha256,
)
from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster.store import read_table
from contextcliff_dagster_tests.support.archives import canonical_sha256
from contextcliff_dagster_tests.support.paths import CHECKOUT as ROOT

SET = {"example_id", "question", "bin", "rank", "document_id", "task", "answers", "length_tokens"}
UNSET = dict.fromkeys({*MANIFEST_EXAMPLES.column_names} - SET)
HEADER = {"study": "ünit", "tokenizer": "reference", "created_at": "2026-11-21T09:00:00+00:00"}


def prepared(folder: Path, spec: SampleSpec, n_documents: int = 60, questions: int = 2) -> Manifest:
    corpus = ReferenceCorpus(
        {"documents": n_documents, "max_tokens": 900, "questions": questions, "task": "lookup"}
    )
    materialize_corpus(corpus, folder)
    build_length_map(folder, open_tokenizer("reference"), folder / "length_map.parquet")
    lengths = read_length_map(folder / "length_map.parquet", spec.min_tokens)
    columns = lengths["length_tokens"].to_pylist(), lengths["document_id"].to_pylist()
    bins = make_bins(*columns, BinSpec(count=5))
    return draw_manifest(folder, folder / "length_map.parquet", bins, spec, HEADER)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_after_it_is_saved_the_source_may_be_deleted(tmp_path: Path) -> None:
    drawn = prepared(tmp_path / "corpus", SampleSpec(8, seed=3, questions_per_document=2))
    save_manifest(drawn, tmp_path / "manifest")
    shutil.rmtree(tmp_path / "corpus")
    manifest = load_manifest(tmp_path / "manifest")
    assert manifest.sha256 == drawn.sha256
    assert manifest.bins == drawn.bins
    assert manifest.examples.equals(drawn.examples)
    assert manifest.header["sample"] == {
        "samples_per_bin": 8,
        "seed": 3,
        "questions_per_document": 2,
        "min_tokens": 0,
    }
    planned = [p for b in active_bins(manifest.bins) for p in manifest.planned(b.bin, 99)]
    assert len(planned) == 40
    reference = open_tokenizer("reference")
    for one in planned:
        text = manifest.document_text(one.example.document_id)
        assert document_id(text) == one.example.document_id
        assert reference.count(text) == one.length_tokens
        assert one.example.answers[0] in text
        assert one.example.metadata["level"] == 1
    asked = {p.example.document_id for p in planned}
    assert (
        set(
            read_table(tmp_path / "manifest" / "documents.parquet", DOCUMENTS)[
                "document_id"
            ].to_pylist()
        )
        == asked
    )


def test_the_sample_of_twenty_contains_that_of_five(tmp_path: Path) -> None:
    twenty = prepared(tmp_path / "a", SampleSpec(20, seed=1))
    five = prepared(tmp_path / "b", SampleSpec(5, seed=1))
    for b in five.bins:
        assert five.planned(b.bin, 5) == twenty.planned(b.bin, 5)
        assert len(twenty.planned(b.bin, 20)) == b.n_documents > 5
    assert five.sha256 != twenty.sha256


def test_the_same_seed_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from contextcliff_dagster_tests.sampling.test_manifest import prepared\n"
        "from contextcliff_dagster.sampling.draw_manifest import SampleSpec\n"
        "from contextcliff_dagster.sampling.manifest import save_manifest\n"
        "folder = Path(sys.argv[1])\n"
        "save_manifest(prepared(folder / 'corpus', SampleSpec(6, seed=7)), folder / 'manifest')\n"
    )
    written = []
    for hash_seed in ("0", "1", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        folder = tmp_path / hash_seed
        subprocess.run([sys.executable, "-c", program, folder], env=environment, check=True)
        written.append(files(folder / "manifest"))
    assert written[0] == written[1] == written[2]


def test_other_seeds_and_other_texts_have_other_hashes(tmp_path: Path) -> None:
    hashes = {
        prepared(tmp_path / "a", SampleSpec(6, seed=7)).sha256,
        prepared(tmp_path / "b", SampleSpec(6, seed=8)).sha256,
        prepared(tmp_path / "c", SampleSpec(6, seed=7), n_documents=61).sha256,
        prepared(tmp_path / "d", SampleSpec(6, seed=7, min_tokens=100)).sha256,
    }
    assert len(hashes) == 4


def test_its_hash_can_be_checked_with_standard_tools(tmp_path: Path) -> None:
    save_manifest(prepared(tmp_path / "corpus", SampleSpec(3)), tmp_path / "m")
    head = json.loads((tmp_path / "m" / "manifest.json").read_bytes())
    own = head.pop("own_sha256")
    assert canonical_sha256(head) == own
    for name in ("examples", "documents"):
        content = (tmp_path / "m" / f"{name}.parquet").read_bytes()
        assert hashlib.sha256(content).hexdigest() == head.pop(f"{name}_sha256")
    stated = head.pop("sha256")
    rows = pq.read_table(tmp_path / "m" / "examples.parquet").to_pylist()
    assert canonical_sha256({**head, "examples": rows}) == stated


def write_as_before(manifest: Manifest, folder: Path) -> None:
    """As versions did that kept the examples in manifest.json."""
    save_manifest(manifest, folder)
    (folder / "examples.parquet").unlink()
    content = {**manifest.content, "examples": manifest.examples.to_pylist()}
    documents = hashlib.sha256((folder / "documents.parquet").read_bytes()).hexdigest()
    whole = {**content, "sha256": canonical_sha256(content), "documents_sha256": documents}
    (folder / "manifest.json").write_text(json.dumps(whole, ensure_ascii=False), "utf-8")


def test_a_manifest_of_an_earlier_version_is_the_same_sample(tmp_path: Path) -> None:
    drawn = prepared(tmp_path / "corpus", SampleSpec(3, questions_per_document=2))
    write_as_before(drawn, tmp_path / "m")
    before = files(tmp_path / "m")
    loaded = load_manifest(tmp_path / "m")
    assert loaded.sha256 == drawn.sha256 == stored_sha256(tmp_path / "m")
    assert loaded.examples.equals(drawn.examples)
    assert [loaded.planned(b.bin, 2) for b in loaded.bins] == [
        drawn.planned(b.bin, 2) for b in drawn.bins
    ]
    save_manifest(drawn, tmp_path / "m")
    assert files(tmp_path / "m") == before


def test_a_changed_example_of_an_earlier_version_is_noticed(tmp_path: Path) -> None:
    write_as_before(prepared(tmp_path / "corpus", SampleSpec(3)), tmp_path / "m")
    path = tmp_path / "m" / "manifest.json"
    whole = json.loads(path.read_bytes())
    whole["examples"][0]["answers"] = ["another"]
    path.write_text(json.dumps(whole), "utf-8")
    with pytest.raises(StoreError, match="its content does not match its SHA-256"):
        load_manifest(tmp_path / "m")


def test_a_hash_that_is_claimed_is_not_computed(tmp_path: Path) -> None:
    drawn = prepared(tmp_path / "corpus", SampleSpec(3))
    claimed = replace(drawn, known_sha256="0" * 64)
    assert claimed.sha256 == "0" * 64
    assert claimed.computed_sha256() == drawn.sha256


@given(st.lists(st.tuples(st.sampled_from(["b00", "b01", "b02"]), st.text(max_size=3))))
def test_the_examples_of_a_bin_are_its_rows_in_order(rows: list[tuple[str, str]]) -> None:
    same = {"document_id": "d", "task": "t", "answers": ["a"], "length_tokens": 1}
    table = conform(
        [
            {"example_id": f"e{n}", "question": question, "bin": bin, "rank": n, **same} | UNSET
            for n, (bin, question) in enumerate(rows)
        ],
        MANIFEST_EXAMPLES,
    )
    bins = [LengthBin(f"b0{n}", n, n, 0, 0, n, n, n) for n in range(4)]
    manifest = Manifest({}, bins, table, lambda: table)
    for n in (0, 1, 2, 99, 3):
        for one in bins:
            own = [at for at, (bin, _) in enumerate(rows) if bin == one.bin][:n]
            assert [p.rank for p in manifest.planned(one.bin, n)] == own
            assert [p.example.question for p in manifest.planned(one.bin, n)] == [
                rows[at][1] for at in own
            ]
    assert manifest.computed_sha256() == canonical_sha256(
        {**manifest.content, "examples": table.to_pylist()}
    )


def test_when_it_was_made_is_not_part_of_it(tmp_path: Path) -> None:
    drawn = prepared(tmp_path / "corpus", SampleSpec(3))
    save_manifest(drawn, tmp_path / "m")
    before = files(tmp_path / "m"), (tmp_path / "m" / "manifest.json").stat().st_mtime_ns
    later = replace(drawn, header={**drawn.header, "created_at": "2031"})
    save_manifest(later, tmp_path / "m")
    assert (files(tmp_path / "m"), (tmp_path / "m" / "manifest.json").stat().st_mtime_ns) == before
    assert load_manifest(tmp_path / "m").header["created_at"].startswith("20")


@pytest.mark.parametrize("name", ["manifest.json", "examples.parquet", "documents.parquet"])
def test_a_single_changed_byte_is_noticed(tmp_path: Path, name: str) -> None:
    save_manifest(prepared(tmp_path / "corpus", SampleSpec(3)), tmp_path / "m")
    path = tmp_path / "m" / name
    whole = path.read_bytes()
    for at in range(5, len(whole) - 1, len(whole) // 40):
        changed = bytearray(whole)
        changed[at] ^= 1
        if name == "manifest.json" and chr(whole[at]).isspace() and chr(changed[at]).isspace():
            continue  # layout is not content
        path.write_bytes(changed)
        with pytest.raises(StoreError, match=r"damaged|another version"):
            load_manifest(tmp_path / "m")
    path.write_bytes(whole)
    load_manifest(tmp_path / "m")


@pytest.mark.parametrize("name", ["manifest.json", "examples.parquet", "documents.parquet"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    save_manifest(prepared(tmp_path / "corpus", SampleSpec(3)), tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    with pytest.raises(StoreError, match=re.escape(f"{name} is missing")):
        load_manifest(tmp_path / "m")


def test_texts_that_were_let_go_are_read_again_and_proven_again(tmp_path: Path) -> None:
    drawn = prepared(tmp_path / "corpus", SampleSpec(3))
    save_manifest(drawn, tmp_path / "m")
    kept = load_manifest(tmp_path / "m")
    assert kept.documents.equals(drawn.documents)
    name = kept.documents["document_id"][0].as_py()
    text = kept.document_text(name)
    kept.forget_documents()
    assert kept.document_text(name) == text
    kept.forget_documents()
    (tmp_path / "m" / "documents.parquet").write_bytes(b"another sample's")
    with pytest.raises(StoreError, match=r"documents\.parquet does not match its SHA-256"):
        kept.document_text(name)


def test_a_damaged_manifest_is_written_anew(tmp_path: Path) -> None:
    drawn = prepared(tmp_path / "corpus", SampleSpec(3))
    save_manifest(drawn, tmp_path / "m")
    (tmp_path / "m" / "documents.parquet").write_bytes(b"")
    save_manifest(drawn, tmp_path / "m")
    assert load_manifest(tmp_path / "m").sha256 == drawn.sha256


def test_a_corpus_that_is_not_the_length_maps_is_refused(tmp_path: Path) -> None:
    prepared(tmp_path / "a", SampleSpec(3))
    path = tmp_path / "a" / "length_map.parquet"
    lengths = read_length_map(path)
    bins = make_bins(
        lengths["length_tokens"].to_pylist(), lengths["document_id"].to_pylist(), BinSpec(count=5)
    )
    materialize_corpus(ReferenceCorpus({"documents": 4, "seed": 99}), tmp_path / "b")
    with pytest.raises(
        StoreError, match=r"lacks example_id .*materialize corpus and length map again"
    ):
        draw_manifest(tmp_path / "b", path, bins, SampleSpec(3), HEADER)
    with pytest.raises(StoreError, match="materialize it first"):
        draw_manifest(tmp_path / "none", path, bins, SampleSpec(3), HEADER)


def test_what_is_not_in_it_is_said_to_be_missing(tmp_path: Path) -> None:
    manifest = prepared(tmp_path / "corpus", SampleSpec(3))
    with pytest.raises(StoreError, match=r"no bin 'b77'; it has b00, b01"):
        manifest.planned("b77", 1)
    with pytest.raises(StoreError, match="no document"):
        manifest.document_text("0" * 64)
