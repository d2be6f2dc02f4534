"""The distance between two pieces of evidence: tokens of the study, counted when it is frozen."""

from __future__ import annotations

from pathlib import Path

from contextcliff_dagster.corpora.materialize import materialize_corpus, row_example
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster.sampling.bins import BinSpec, make_bins
from contextcliff_dagster.sampling.draw_manifest import SampleSpec, draw_manifest
from contextcliff_dagster.sampling.length_map import build_length_map, read_length_map
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer, tiktoken_encoding

GAP = "\n".join(f"value_{n} = compute({n}, 'überzählig')" for n in range(200))
SOURCE = f"TIMEOUT_SECONDS = 275\n\n{GAP}\n\ndef wait(seconds=TIMEOUT_SECONDS): ...\n"
TOKENIZER = "tiktoken:o200k_base"


def frozen(folder: Path, kind: str) -> Manifest:
    source = folder / "source"
    source.mkdir()
    (source / "one.py").write_text(SOURCE, encoding="utf-8")
    corpus = open_corpus("python-source", {"path": str(source), "task": kind})
    materialize_corpus(corpus, folder)
    tokenizer = open_tokenizer(TOKENIZER)
    build_length_map(folder, tokenizer, folder / "length_map.parquet")
    lengths = read_length_map(folder / "length_map.parquet")
    columns = lengths["length_tokens"].to_pylist(), lengths["document_id"].to_pylist()
    bins = make_bins(*columns, BinSpec(count=1, starved_below=1))
    return draw_manifest(
        folder, folder / "length_map.parquet", bins, SampleSpec(), {}, lambda: tokenizer
    )


def test_a_level_two_distance_is_the_tokens_from_the_first_place_to_the_second(
    tmp_path: Path,
) -> None:
    (row,) = frozen(tmp_path, "default_through_constant").examples.to_pylist()
    start, end = SOURCE.index("TIMEOUT_SECONDS = 275"), SOURCE.rindex("TIMEOUT_SECONDS")
    counted = len(tiktoken_encoding("o200k_base").encode_ordinary(SOURCE[start:end]))
    assert row["inter_evidence_tokens"] == counted > 2_000
    assert row["level"] == 2
    assert row["evidence_position"] == 0.0  # the answer is where the constant is assigned
    assert row_example(row).metadata["inter_evidence_tokens"] == counted


def test_one_place_has_no_distance_and_opens_no_tokenizer(tmp_path: Path) -> None:
    (row,) = frozen(tmp_path, "constant_value").examples.to_pylist()
    assert row["inter_evidence_tokens"] is None
    assert row["level"] == 1
