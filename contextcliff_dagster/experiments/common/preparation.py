"""From a corpus to the frozen manifest; each step is skipped where its result still stands.

A frozen manifest that was drawn for the study's specification makes the corpus needless: then no
source is opened, and the summaries come from the manifest's own header.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import LENGTH_MAP, CorpusError, StoreError, StudyError
from contextcliff_dagster.experiments.common.file_list import keep_file_list
from contextcliff_dagster.inference.models.registry import get_model
from contextcliff_dagster.store import Store, write_json
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.corpora.materialize import CorpusSummary
    from contextcliff_dagster.sampling.length_map import LengthMapSummary
    from contextcliff_dagster.sampling.manifest import Manifest


def find_frozen(study: Study, store: Store) -> Manifest | None:
    """The manifest on disk where it was drawn for this specification and for enough examples.

    Raises:
        StoreError: it is damaged.
    """
    manifest = _on_disk(study, store)
    if manifest is None:
        return None
    own = manifest.header
    if own.get("spec_hash") != study.manifest_spec_hash():
        return None
    if int(own.get("samples_per_bin", 0)) < study.sampling.samples_per_bin:
        return None
    reread = _read_json(_reread_note(study, store))
    if reread is not None and reread.get("fingerprint") != own["corpus"]["fingerprint"]:
        return None
    return manifest


def as_drawn(study: Study, store: Store) -> Study:
    """The study with as many examples a bin as its frozen sample has, where it asks for more.

    Raises:
        StoreError: the manifest is damaged.
    """
    manifest = _on_disk(study, store)
    asked = study.sampling.samples_per_bin
    drawn = asked if manifest is None else int(manifest.header.get("samples_per_bin", asked))
    return study.with_samples(drawn) if drawn < asked else study


def _on_disk(study: Study, store: Store) -> Manifest | None:
    """The study's manifest, whatever it was drawn for."""
    folder = store.manifest_dir(study.name)
    stamps = tuple(_stamp(folder / name) for name in ("manifest.json", "documents.parquet"))
    return None if stamps[0] is None else _verified(folder, stamps)


@lru_cache(maxsize=2)
def _verified(folder: Path, stamps: tuple[object, ...]) -> Manifest:
    """Proven against its hashes once per process and version of the files: a run asks often."""
    from contextcliff_dagster.sampling.manifest import load_manifest

    del stamps
    return load_manifest(folder)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def load_frozen(study: Study, store: Store) -> Manifest:
    """The frozen manifest.

    Raises:
        StudyError: there is none, or the study was changed since it was drawn, or has no corpus.
        StoreError: it is damaged.
    """
    if not study.has_corpus:
        raise StudyError(
            f"Study {study.name!r} names no corpus, so it has no sample and no length profile; "
            "add `corpus` and `tokenizer` to it."
        )
    manifest = find_frozen(study, store)
    if manifest is None:
        exists = (store.manifest_dir(study.name) / "manifest.json").exists()
        why = "is older than the study or its corpus" if exists else "does not exist yet"
        raise StudyError(
            f"The manifest of study {study.name!r} {why}; run `contextcliff prepare {study.name}`."
        )
    return manifest


def prepare_corpus(study: Study, store: Store, *, reread: bool = False) -> CorpusSummary:
    """Read the corpus and write it as Parquet, unless the frozen manifest makes it needless.

    With ``reread`` the source is opened in any case, and a manifest drawn from other bytes is no
    longer reused.

    Raises:
        CorpusError: the source is missing or malformed.
    """
    from contextcliff_dagster.corpora.materialize import (
        CorpusSummary,
        materialize_corpus,
        read_summary,
    )
    from contextcliff_dagster.corpora.registry import open_corpus

    if not reread and (frozen := find_frozen(study, store)) is not None:
        return CorpusSummary(**frozen.header["corpus"])
    folder = corpus_dir(study, store)
    corpus = open_corpus(study.corpus.kind, study.corpus_options)
    summary: CorpusSummary | None = None
    with suppress(StoreError):
        summary = read_summary(folder)
    if summary is None or summary.fingerprint != corpus.fingerprint():
        summary = materialize_corpus(corpus, folder)
    # The source was opened: what an earlier reading found no longer counts, of other options least.
    if reread or _reread_note(study, store).exists():
        write_json(_reread_note(study, store), {"fingerprint": summary.fingerprint})
    return summary


def prepare_length_map(study: Study, store: Store) -> LengthMapSummary:
    """Count the corpus, unless that is done or needless.

    Raises:
        StudyError: there is no such tokenizer.
        StoreError: the corpus was not materialized.
    """
    from contextcliff_dagster.corpora.materialize import read_summary
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer
    from contextcliff_dagster.sampling.length_map import LengthMapSummary, build_length_map

    if (frozen := find_frozen(study, store)) is not None:
        return LengthMapSummary(**frozen.header["lengths"])
    tokenizer = open_any_tokenizer(study.tokenizer_name)
    corpus = read_summary(corpus_dir(study, store)).fingerprint
    path = length_map_file(study, store)
    note = path.with_suffix(".json")
    known = _read_json(note)
    if known is not None and path.exists() and known.get("corpus") == corpus:
        summary = LengthMapSummary(**known["summary"])
        if summary.tokenizer_fingerprint == tokenizer.fingerprint:
            return summary
    summary = build_length_map(corpus_dir(study, store), tokenizer, path)
    # Written after the map it vouches for.
    write_json(note, {"corpus": corpus, "summary": asdict(summary)})
    return summary


def prepare_audit(study: Study, store: Store) -> dict[str, Any]:
    """Judge the lengths before any call is made; the audit as a JSON object.

    Raises:
        StudyError: a model of the study is not in the registry.
        StoreError: the length map was not built.
    """
    from contextcliff_dagster.corpora.materialize import read_summary
    from contextcliff_dagster.sampling.audit import Requirements, audit_lengths
    from contextcliff_dagster.sampling.bins import cut_bins

    if (frozen := find_frozen(study, store)) is not None:
        if (kept := _read_json(_kept_audit(study, store))) is not None:
            return dict(kept)
        # Somebody deleted it: what is left to audit is the sample.
        lengths, questions = frozen.examples.select(LENGTH_MAP.column_names), frozen.examples
        account = frozen.header["corpus"].get("account", {})
    else:
        lengths, questions = _lengths(study, store), _questions(study, store)
        account = read_summary(corpus_dir(study, store)).account
    windows = [window for name in study.models if (window := get_model(name).window_tokens)]
    audit = audit_lengths(
        lengths,
        questions,
        cut_bins(*_columns(lengths), study.bin_spec()),
        Requirements(
            study.bins.starved_below,
            (study.target.min_tokens, study.target.max_tokens) if study.target else None,
            min(windows, default=None),
        ),
        manufactured=account.get("manufactured"),
        cautions=account.get("cautions", ()),
    )
    # Through JSON and back: the same object as one that was kept.
    found: dict[str, Any] = json.loads(json.dumps(asdict(audit)))
    return found


def freeze_manifest(study: Study, store: Store) -> Manifest:
    """The frozen manifest, drawn where there is none for this specification.

    Raises:
        CorpusError: the corpus does not support the study; the sentence is the audit's advice.
        StoreError: corpus or length map were not made, or the manifest cannot be written.
    """
    from contextcliff_dagster.corpora.materialize import read_summary
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer
    from contextcliff_dagster.sampling.bins import make_bins
    from contextcliff_dagster.sampling.manifest import draw_manifest, load_manifest, save_manifest

    if (frozen := find_frozen(study, store)) is not None:
        return frozen
    audit = prepare_audit(study, store)
    if audit["verdict"] == "refuse":
        raise CorpusError(f"Study {study.name!r} is not measured: {audit['advice']}")
    lengths = _lengths(study, store)
    header = {
        "study": study.name,
        "tokenizer": study.tokenizer,
        "spec_hash": study.manifest_spec_hash(),
        "samples_per_bin": study.sampling.samples_per_bin,
        "corpus": read_summary(corpus_dir(study, store)).to_dict(),
        # Not what counted: another version of a library that counts the same draws the same sample.
        "lengths": asdict(replace(prepare_length_map(study, store), counted_by="")),
    }
    manifest = draw_manifest(
        corpus_dir(study, store),
        lengths,
        make_bins(*_columns(lengths), study.bin_spec()),
        study.sample_spec(),
        header,
        lambda: open_any_tokenizer(study.tokenizer_name),
    )
    folder = store.manifest_dir(study.name)
    # Beside the manifest, not in it: its windows are the models', and the sample is not.
    write_json(_kept_audit(study, store), audit)
    keep_file_list(study, store, corpus_dir(study, store), length_map_file(study, store))
    store.mark()
    save_manifest(manifest, folder)
    return load_manifest(folder)


def hash_on_disk(study: Study, store: Store) -> str:
    """SHA-256 of the manifest as it lies on disk at this moment.

    Raises:
        StoreError: it is damaged.
    """
    from contextcliff_dagster.sampling.manifest import load_manifest

    return load_manifest(store.manifest_dir(study.name)).sha256


def lengths_version(study: Study, store: Store, lengths: LengthMapSummary) -> str:
    """Data version of the length map: which texts were counted, and with which vocabulary."""
    from contextcliff_dagster.corpora.materialize import read_summary

    frozen = find_frozen(study, store)
    corpus = (
        frozen.header["corpus"]["fingerprint"]
        if frozen is not None
        else read_summary(corpus_dir(study, store)).fingerprint
    )
    both = f"{corpus} {lengths.tokenizer_fingerprint}"
    return hashlib.sha256(both.encode()).hexdigest()


def corpus_dir(study: Study, store: Store) -> Path:
    return store.preparation_dir(study.name) / "corpus"


def length_map_file(study: Study, store: Store) -> Path:
    return store.preparation_dir(study.name) / "length_map.parquet"


def _kept_audit(study: Study, store: Store) -> Path:
    return store.manifest_dir(study.name) / "audit.json"


def _reread_note(study: Study, store: Store) -> Path:
    """Which bytes the corpus had when the user last asked to read it again."""
    return store.preparation_dir(study.name) / "reread.json"


def _lengths(study: Study, store: Store) -> pa.Table:
    from contextcliff_dagster.sampling.length_map import read_length_map

    return read_length_map(length_map_file(study, store), study.sampling.min_tokens)


def _columns(lengths: pa.Table) -> tuple[list[int], list[str]]:
    return lengths["length_tokens"].to_pylist(), lengths["document_id"].to_pylist()


def _questions(study: Study, store: Store) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(corpus_dir(study, store) / "examples.parquet") as file:
        return file.read(columns=["document_id", "question"])


def _read_json(path: Path) -> Mapping[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
