"""Preparation from a corpus to the frozen manifest; steps with a valid result are skipped.

A frozen manifest drawn for the study's specification makes the corpus unnecessary: then no source
is opened, and the summaries come from the manifest's header.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import LENGTH_MAP, CorpusError, StoreError, StudyError
from contextcliff_dagster.corpora.materialize import (
    QUESTIONS,
    CorpusSummary,
    materialize_corpus,
    read_questions,
    read_summary,
)
from contextcliff_dagster.experiments.common.documents import keep_file_list
from contextcliff_dagster.freed_memory import lean_arrow
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer
from contextcliff_dagster.sampling.bins import cut_bins, make_bins
from contextcliff_dagster.sampling.draw_manifest import SampleSpec, draw_manifest
from contextcliff_dagster.sampling.length_map import (
    LengthMapSummary,
    binned_columns,
    build_length_map,
    read_length_map,
)
from contextcliff_dagster.sampling.manifest import (
    MANIFEST_FILES,
    Manifest,
    load_manifest,
    save_manifest,
)
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer
from contextcliff_dagster.store import Store, file_stamp, write_json
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.study import refuse_without_leave, require_length_profile

if TYPE_CHECKING:
    import pyarrow as pa


def find_frozen(study: Study, store: Store) -> Manifest | None:
    """Return the stored manifest if it fits this specification with enough examples, else None.

    Raises:
        StoreError: it is damaged.
    """
    manifest = _on_disk(study, store)
    if manifest is None:
        return None
    header, reread = manifest.header, _read_json(_reread_note(study, store))
    is_current = header.get("spec_hash") == study.manifest_spec_hash()
    enough = int(header.get("samples_per_bin", 0)) >= study.sampling.samples_per_bin
    current = reread is None or reread.get("fingerprint") == header["corpus"]["fingerprint"]
    return manifest if is_current and enough and current else None


def as_drawn(study: Study, store: Store) -> Study:
    """Limit the study to its frozen sample's examples per bin; raise like `find_frozen`."""
    manifest = _on_disk(study, store)
    per_bin = study.sampling.samples_per_bin
    drawn = per_bin if manifest is None else int(manifest.header.get("samples_per_bin", per_bin))
    return study.with_samples(drawn) if drawn < per_bin else study


def _on_disk(study: Study, store: Store) -> Manifest | None:
    """Return the study's stored manifest, for any specification."""
    folder = store.manifest_dir(study.name)
    stamps = tuple(file_stamp(folder / name) for name in MANIFEST_FILES)
    return None if stamps[0] is None else _verified(folder, stamps)


@lru_cache(maxsize=2)
def _verified(folder: Path, stamps: tuple[object, ...]) -> Manifest:
    """Return the manifest, verified against its hashes once per process and file version."""
    del stamps
    return load_manifest(folder)


def load_frozen(study: Study, store: Store) -> Manifest:
    """Return the frozen manifest.

    Raises:
        StudyError: there is no manifest, the study changed since it was drawn, or has no corpus.
        StoreError: it is damaged.
    """
    require_length_profile(study)
    manifest = find_frozen(study, store)
    if manifest is None:
        exists = (store.manifest_dir(study.name) / "manifest.json").exists()
        why = "is older than the study or its corpus" if exists else "does not exist yet"
        raise StudyError(
            f"The manifest of study {study.name!r} {why}; run `contextcliff prepare {study.name}`."
        )
    return manifest


def prepare_corpus(study: Study, store: Store, *, reread: bool = False) -> CorpusSummary:
    """Read the corpus and write it as Parquet, unless the frozen manifest suffices.

    With ``reread`` the source is always opened, and a manifest drawn from other bytes is not
    reused.

    Raises:
        CorpusError: the source is missing or malformed.
    """
    from contextcliff_dagster.corpora.registry import open_corpus

    if not reread and (frozen := find_frozen(study, store)) is not None:
        return CorpusSummary(**frozen.header["corpus"])
    refuse_without_leave(study, "corpus")
    folder = corpus_dir(study, store)
    corpus = open_corpus(study.corpus.kind, study.corpus_options)
    summary: CorpusSummary | None = None
    with suppress(StoreError):
        summary = read_summary(folder)
    if summary is None or summary.fingerprint != corpus.fingerprint():
        summary = materialize_corpus(corpus, folder)
    # The source was opened, so notes of an earlier reading are obsolete.
    if reread or _reread_note(study, store).exists():
        write_json(_reread_note(study, store), {"fingerprint": summary.fingerprint})
    return summary


def prepare_length_map(study: Study, store: Store) -> LengthMapSummary:
    """Count the corpus's tokens, unless done already or unnecessary.

    Raises:
        StudyError: the tokenizer does not exist.
        StoreError: the corpus was not materialized.
    """
    if (frozen := find_frozen(study, store)) is not None:
        return LengthMapSummary(**frozen.header["lengths"])
    tokenizer = _tokenizer(study)
    corpus = read_summary(corpus_dir(study, store)).fingerprint
    path = length_map_file(study, store)
    note = path.with_suffix(".json")
    if (known := _read_json(note)) and path.exists() and known.get("corpus") == corpus:
        summary = LengthMapSummary(**known["summary"])
        if summary.tokenizer_fingerprint == tokenizer.fingerprint:
            return summary
    summary = build_length_map(corpus_dir(study, store), tokenizer, path)
    # Written after the map, to mark it as complete.
    write_json(note, {"corpus": corpus, "summary": asdict(summary)})
    return summary


@lean_arrow()
def prepare_audit(study: Study, store: Store) -> dict[str, Any]:
    """Judge the lengths before any call is made; return the audit as a JSON object.

    Raises:
        StudyError: a model of the study is not in the registry.
        StoreError: the length map was not built.
    """
    from contextcliff_dagster.sampling.audit import Requirements, audit_lengths

    if (frozen := find_frozen(study, store)) is not None:
        if (stored_audit := _read_json(_kept_audit(study, store))) is not None:
            return dict(stored_audit)
        # The map was deleted: only the sample is left to audit.
        lengths = frozen.examples.select(LENGTH_MAP.column_names)
        questions = iter(frozen.examples.select(list(QUESTIONS)).to_batches(max_chunksize=8_192))
    else:
        lengths = _lengths(study, store)
        questions = read_questions(corpus_dir(study, store))
    account = _corpus(study, store).account
    windows = [window for name in study.models if (window := get_model(name).window_tokens)]
    audit = audit_lengths(
        lengths,
        questions,
        cut_bins(*binned_columns(lengths), study.bin_spec()),
        Requirements(
            study.bins.starved_below,
            (study.target.min_tokens, study.target.max_tokens) if study.target else None,
            min(windows, default=None),
        ),
        manufactured=account.get("manufactured"),
        cautions=account.get("cautions", ()),
    )
    # Round trip through JSON, to equal a stored audit.
    as_kept: dict[str, Any] = json.loads(json.dumps(asdict(audit)))
    return as_kept


@lean_arrow()
def freeze_manifest(study: Study, store: Store) -> Manifest:
    """Return the frozen manifest, drawing it if none exists for this specification.

    Raises:
        CorpusError: the corpus does not support the study; the message has the audit's advice.
        StoreError: corpus or length map were not made, or the manifest cannot be written.
    """
    if (frozen := find_frozen(study, store)) is not None:
        return frozen
    audit = prepare_audit(study, store)
    if audit["verdict"] == "refuse":
        raise CorpusError(f"Study {study.name!r} is not measured: {audit['advice']}")
    bins = make_bins(*binned_columns(_lengths(study, store)), study.bin_spec())
    header = {
        "study": study.name,
        "tokenizer": study.tokenizer,
        "spec_hash": study.manifest_spec_hash(),
        "samples_per_bin": study.sampling.samples_per_bin,
        "corpus": read_summary(corpus_dir(study, store)).to_dict(),
        # Without the counter: another library version with the same counts draws the same sample.
        "lengths": asdict(replace(prepare_length_map(study, store), counted_by="")),
    }
    drawn = study.sampling
    manifest = draw_manifest(
        corpus_dir(study, store),
        length_map_file(study, store),
        bins,
        SampleSpec(
            drawn.samples_per_bin, drawn.seed, drawn.questions_per_document, drawn.min_tokens
        ),
        header,
        lambda: _tokenizer(study),
        _locate if study.corpus.of_ones_own else None,
    )
    folder = store.manifest_dir(study.name)
    # Next to the manifest, not in it: the audit depends on the models, the sample does not.
    write_json(_kept_audit(study, store), audit)
    keep_file_list(study, store, corpus_dir(study, store), length_map_file(study, store))
    store.mark()
    save_manifest(manifest, folder)
    del manifest  # keep only one copy of the texts in memory
    return load_frozen(study, store)


def _locate(text: str, accepted: Sequence[Sequence[str]]) -> list[float | None]:
    from contextcliff_dagster.scoring.containment import answer_positions

    return answer_positions(text, accepted)


def lengths_version(study: Study, store: Store, lengths: LengthMapSummary) -> str:
    """Return the length map's data version, derived from the counted texts and the vocabulary."""
    both = f"{_corpus(study, store).fingerprint} {lengths.tokenizer_fingerprint}"
    return hashlib.sha256(both.encode()).hexdigest()


def corpus_dir(study: Study, store: Store) -> Path:
    return store.preparation_dir(study.name) / "corpus"


def length_map_file(study: Study, store: Store) -> Path:
    return store.preparation_dir(study.name) / "length_map.parquet"


def _kept_audit(study: Study, store: Store) -> Path:
    return store.manifest_dir(study.name) / "audit.json"


def _reread_note(study: Study, store: Store) -> Path:
    """Return the path of the corpus's fingerprint at the last forced reading."""
    return store.preparation_dir(study.name) / "reread.json"


def _corpus(study: Study, store: Store) -> CorpusSummary:
    """Return the corpus summary from the frozen manifest, or else as materialized."""
    if (frozen := find_frozen(study, store)) is not None:
        return CorpusSummary(**frozen.header["corpus"])
    return read_summary(corpus_dir(study, store))


def _lengths(study: Study, store: Store) -> pa.Table:
    return read_length_map(length_map_file(study, store), study.sampling.min_tokens)


def _tokenizer(study: Study) -> Tokenizer:
    refuse_without_leave(study, "tokenizer")
    return open_any_tokenizer(study.tokenizer_name)


def _read_json(path: Path) -> Mapping[str, Any] | None:
    with suppress(OSError, ValueError):
        if isinstance(value := json.loads(path.read_bytes()), dict):
            return value
    return None
