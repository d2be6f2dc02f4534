"""Which documents a study asks for, and their way into the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.common.kept_documents import (
    KeptDocuments,
    MadeDocuments,
    opened_tokenizer,
    tokenizer_name,
    tokenizer_of,
)
from contextcliff_dagster.experiments.common.lists.document_list import read_list, write_list
from contextcliff_dagster.extensions.utilization.cells import arms_of
from contextcliff_dagster.extensions.utilization.documents import files
from contextcliff_dagster.extensions.utilization.section import UtilizationSection
from contextcliff_dagster.step_progress import report_step

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.documents.making import Batch
    from contextcliff_dagster.extensions.utilization.documents.scales import ScaleSolver
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


class UtilizationDocuments(KeptDocuments):
    """Documents of the experiment: a partition is a benchmark and scale, and a seed."""

    def keys(self, study: Study) -> Mapping[str, Sequence[str]]:
        section = section_of(study)
        data = [f"{b}-{scale}" for b in section.benchmarks for scale in section.scales]
        return {"document": data, "seed": [f"s{seed:03d}" for seed in range(section.seeds)]}

    def make(self, study: Study, store: Store, partition: Mapping[str, str]) -> MadeDocuments:
        benchmark, _, scale = partition["document"].partition("-")
        seed = int(partition["seed"].removeprefix("s"))
        for batch in batches_of(study):
            if (batch.benchmark, batch.scale, batch.seed) == (benchmark, scale, seed):
                rows = ensure_batch(study, store, batch)
                ids = json.dumps([row["document_id"] for row in rows])
                return MadeDocuments(hashlib.sha256(ids.encode()).hexdigest(), files.summary(rows))
        raise StudyError(
            f"Study {study.name!r} asks for no documents {partition['document']}, "
            f"{partition['seed']}; see `utilization` in its file."
        )

    def freeze(self, study: Study, store: Store) -> MadeDocuments:
        folder, made_by = files.documents_dir(store, study.name), spec_hash(study)
        if self.frozen(study, store) is None:
            batches = batches_of(study)
            documents = []
            for done, batch in enumerate(batches):
                report_step("documents", done, len(batches))
                documents += ensure_batch(study, store, batch)
            report_step("documents", len(batches), len(batches))
            store.mark()
            write_list(folder, made_by, documents)
        made = self.frozen(study, store)
        assert made is not None
        return made

    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        kept = read_list(files.documents_dir(store, study.name), spec_hash(study))
        batches = batches_of(study)
        there = all(files.batch_file(store, study.name, one).exists() for one in batches)
        return MadeDocuments(kept.sha256, files.summary(kept.documents)) if kept and there else None

    def depends_on(self, study: Study) -> Mapping[str, Any]:
        section = section_of(study)
        keys = {"benchmarks", "formats", "scales", "seeds", "questions", "match", *_OF_DOCUMENT}
        asked = section.model_dump(mode="json", include=keys)
        return {
            **asked,
            "factorial": section.factorial,
            "tokenizer": tokenizer_name(study, "utilization"),
        }


DOCUMENTS = UtilizationDocuments()
_OF_DOCUMENT = ("evidence", "verbosity", "order", "corruption")


def section_of(study: Study) -> UtilizationSection:
    """Return the study's key `utilization`."""
    section: UtilizationSection = study.sections["utilization"]
    return section


@lru_cache(maxsize=2)
def solver_of(tokenizer: str) -> ScaleSolver:
    """Return the solver of a tokenizer, with what it knows of tokens per record."""
    from contextcliff_dagster.extensions.utilization.documents.scales import ScaleSolver

    return ScaleSolver(opened_tokenizer(tokenizer).count)


def batches_of(study: Study) -> list[Batch]:
    """Return the batches of a study, those of the smallest scale first.

    Raises:
        StudyError: the tokenizer cannot be opened.
    """
    from contextcliff_dagster.extensions.utilization.documents.making import Batch

    section, fingerprint = section_of(study), tokenizer_of(study, "utilization").fingerprint
    arms = list(dict.fromkeys(arm.of_document for arm in arms_of(section)))
    return [
        Batch(
            benchmark,
            scale,
            seed,
            section.formats,
            arms,
            section.questions,
            section.match,
            fingerprint,
        )
        for scale in section.scales
        for benchmark in section.benchmarks
        for seed in range(section.seeds)
    ]


def spec_hash(study: Study) -> str:
    """Return the SHA-256 (hex) of what decides all documents of a study."""
    together = "".join(batch.hash for batch in batches_of(study))
    return hashlib.sha256(together.encode()).hexdigest()


def ensure_batch(study: Study, store: Store, batch: Batch) -> list[dict[str, Any]]:
    """Return the documents of a batch (`files.LISTED`), made unless the store has them.

    Raises:
        StudyError, VerificationError: as `making.make_batch`.
        StoreError: the file cannot be written.
    """
    from contextcliff_dagster.extensions.utilization.documents.making import make_batch

    path = files.batch_file(store, study.name, batch)
    kept = files.read_batch(path, batch.hash)
    if kept is None:
        files.write_batch(path, make_batch(batch, solver_of(tokenizer_name(study, "utilization"))))
        kept = files.read_batch(path, batch.hash)
        assert kept is not None
    return kept


def listed(study: Study, store: Store) -> Iterator[dict[str, Any]]:
    """Yield the documents of a study in the order of the list, made where they are missing."""
    DOCUMENTS.freeze(study, store)
    kept = read_list(files.documents_dir(store, study.name), spec_hash(study))
    assert kept is not None
    yield from kept.documents


def whole_documents(study: Study, store: Store) -> Iterator[dict[str, Any]]:
    """Yield the rows of `tables.UTILIZATION_DOCUMENTS` of a study, made where they are missing.

    Raises:
        StudyError, VerificationError, StoreError: as `ensure_batch`.
    """
    batches = batches_of(study)
    for done, batch in enumerate(batches):
        report_step("documents", done, len(batches))
        ensure_batch(study, store, batch)
        yield from files.read_rows(files.batch_file(store, study.name, batch))
