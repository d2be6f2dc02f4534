"""Documents of a study: generated to the requested length, verified, and stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import Example, StoreError, StudyError, conform
from contextcliff_dagster.experiments.common.documents import (
    KeptDocuments,
    MadeDocuments,
    opened_tokenizer,
    read_list,
    tokenizer_name,
    tokenizer_of,
    write_list,
)
from contextcliff_dagster.extensions.utilization.benchmarks.corruption import corrupt
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    DOMAINS,
    Benchmark,
    BenchmarkName,
    Question,
)
from contextcliff_dagster.extensions.utilization.prompts import Arm, Cell, arms_of, asked
from contextcliff_dagster.extensions.utilization.rendering.sentences import Format, Order, Verbosity
from contextcliff_dagster.extensions.utilization.rendering.structured import render
from contextcliff_dagster.extensions.utilization.scales import (
    ScaleSolver,
    Solved,
    Wish,
    scale_tokens,
)
from contextcliff_dagster.extensions.utilization.section import UtilizationSection
from contextcliff_dagster.extensions.utilization.tables import UTILIZATION_DOCUMENTS
from contextcliff_dagster.extensions.utilization.verification import (
    Verifier,
    require_agreement,
    unproved_benchmark,
    unproved_sentence,
)
from contextcliff_dagster.sampling.manifest import PlannedExample
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.store import Store, atomic_path, read_table, slug

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.section import Match
    from contextcliff_dagster.studies import Study

MAKING_VERSION = "3"
"""Increase it if the same wish gives another document, so that stored ones are regenerated."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents made together.

    ``arms``: arms reduced to the parts that affect a document. ``fingerprint``: of the tokenizer.
    """

    benchmark: BenchmarkName
    scale: str
    seed: int
    formats: Sequence[Format]
    arms: Sequence[Arm]
    questions: int
    match: Match
    fingerprint: str

    @property
    def hash(self) -> str:
        """Return the SHA-256 (hex) of the parts that determine the documents."""
        parts = {
            "version": MAKING_VERSION,
            "benchmark": self.benchmark,
            "tokens": scale_tokens(self.scale),
            "seed": self.seed,
            "formats": list(self.formats),
            "arms": [arm_json(arm) for arm in self.arms],
            "questions": self.questions,
            "match": self.match,
            "tokenizer": self.fingerprint,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def arm_json(arm: Arm) -> str:
    """Return the parts of an arm that determine a document, as JSON text."""
    return json.dumps(
        {
            "evidence": arm.evidence,
            "verbosity": arm.verbosity,
            "order": arm.order,
            "corruption": arm.corruption.level,
        }
    )


def make_batch(batch: Batch, solver: ScaleSolver) -> Iterator[dict[str, Any]]:
    """Yield a batch's rows of `UTILIZATION_DOCUMENTS`, each made only when needed, because a text
    may have millions of tokens.

    Raises:
        StudyError: the scale is out of reach, or a package for verification is missing.
        VerificationError: a text does not support its answers, which is a bug in this program.
    """
    solved: dict[tuple[str, Format], Solved] = {}
    digest, verifier = batch.hash, Verifier(batch.benchmark)
    for arm in batch.arms:
        for format in batch.formats:
            written: Format = format if batch.match == "tokens" else "jsonl"
            key = (arm.evidence, written)
            if key not in solved:
                wish = Wish(
                    batch.benchmark,
                    scale_tokens(batch.scale),
                    batch.seed,
                    arm.evidence,
                    batch.questions,
                    written,
                )
                solved[key] = solver.solve(wish)
            document = _document(batch, arm, format, solved[key], solver, verifier)
            yield {**document, "made_by": digest}


def _document(
    batch: Batch,
    arm: Arm,
    format: Format,
    solved: Solved,
    solver: ScaleSolver,
    verifier: Verifier,
) -> dict[str, Any]:
    data = solved.data
    if arm.corruption.share:
        try:
            data = corrupt(data, arm.corruption.share, arm.corruption.of, batch.seed)
        except ValueError as error:
            raise StudyError(f"{error}.") from None
    rendering = render(data, format, arm.verbosity, arm.order)
    text = rendering.text
    verdicts = verifier.verify(text, data.questions, format)
    places = [
        sorted(rendering.starts[index] for index in question.evidence)
        for question in data.questions
    ]
    asked = zip(data.questions, places, strict=True)
    where = f"{batch.scale}, {format}"
    require_agreement(verdicts, data.questions, batch.benchmark, batch.seed, where)
    return {
        "document_id": hashlib.sha256(text.encode()).hexdigest(),
        "benchmark": batch.benchmark,
        "scale": batch.scale,
        "seed": batch.seed,
        "format": format,
        "arm": arm_json(arm),
        "length_tokens": solved.tokens if text == solved.text else solver.count(text),
        "records": len(data.records),
        "corrupted": len(data.corrupted),
        "questions": json.dumps(
            [_question(q, _choices(q, data), of, len(text)) for q, of in asked]
        ),
        "evidence": json.dumps(places),
        "verdicts": json.dumps([verdict._asdict() for verdict in verdicts]),
        "text": text,
    }


def _question(
    question: Question,
    choices: Sequence[str] = (),
    places: Sequence[int] = (),
    length: int = 0,
) -> dict[str, Any]:
    """Return the parts of a question that are read often, without its many positions.

    ``places``: where its evidence begins in a text of ``length`` characters; empty if unknown.
    """
    return {
        "kind": question.kind,
        "text": question.text,
        "answer": question.answer,
        "form": question.form,
        "choices": list(choices),
        "about": dict(question.about),
        "margin": question.margin,
        "hops": question.hops,
        "needed": len(question.evidence),
        "evidence_position": sum(places) / len(places) / length if places else None,
    }


def _choices(question: Question, data: Benchmark) -> Sequence[str]:
    """Return the possible answers of a question; for an attribute its whole domain."""
    about: Mapping[str, Any] = question.about
    if question.form == "value" and about.get("ask") == "value":
        return [str(value) for value in DOMAINS[str(about["attr"])]]
    if question.form == "value" and not question.choices:
        kind = "warehouse" if about.get("ask") == "transfers" else ""
        return sorted({str(record[kind]) for record in data.records if kind in record})
    return question.choices


LISTED = (
    *("document_id", "benchmark", "scale", "seed", "format", "arm", "length_tokens", "records"),
    *("corrupted", "questions"),
)
"""Columns that the document list also has: everything that asking and scoring need."""


def documents_dir(store: Store, study: str) -> Path:
    """Return the folder with the documents and their list, ``manifest.json``."""
    return store.study_dir(study) / "utilization_documents"


def batch_file(store: Store, study: str, batch: Batch) -> Path:
    """Return the path of a batch's file."""
    folder = documents_dir(store, study) / slug(f"{batch.benchmark}-{batch.scale}")
    return folder / f"{seed_key(batch.seed)}.parquet"


def seed_key(seed: int) -> str:
    """Return the partition key of a seed; keys sort like seeds.

    >>> seed_key(7)
    's007'
    """
    return f"s{seed:03d}"


def write_batch(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a batch atomically, with one text in memory at a time; raise StoreError."""
    import pyarrow.parquet as pq

    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary,
            UTILIZATION_DOCUMENTS.arrow_schema(),
            compression="zstd",
            use_dictionary=False,
            write_statistics=False,
        ) as file,
    ):
        for row in rows:
            file.write_table(conform([row], UTILIZATION_DOCUMENTS))


def read_batch(path: Path, made_by: str) -> list[dict[str, Any]] | None:
    """Return the `LISTED` columns of a batch; None if it is missing or has another hash."""
    with suppress(StoreError):
        table = read_table(path, UTILIZATION_DOCUMENTS, {"made_by", *LISTED})
        rows: list[dict[str, Any]] = table.to_pylist()
        if rows and {row.pop("made_by") for row in rows} == {made_by}:
            return rows
    return None


def read_text(path: Path, document_id: str) -> str:
    """Return the text of one document; raise StoreError if it is missing or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            row = file.read(["document_id"])["document_id"].to_pylist().index(document_id)
            text = str(file.read_row_group(row, ["text"])["text"][0].as_py())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StoreError(
            f"{path} has no document {document_id[:12]} ({error}); delete the file and prepare the "
            "study again."
        ) from error
    if hashlib.sha256(text.encode()).hexdigest() != document_id:
        raise StoreError(
            f"{path}: document {document_id[:12]} is not the generated text; delete the file "
            "and prepare the study again."
        )
    return text


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole documents of a batch, one text in memory at a time; raise StoreError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for rows in file.iter_batches(batch_size=1):
                yield from rows.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{path} cannot be read ({error}); delete the file and prepare the study again."
        ) from error


def summary(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a summary of documents for display."""
    tokens = [document["length_tokens"] for document in documents]
    return {
        "documents": len(documents),
        "tokens": sum(tokens),
        "shortest_tokens": min(tokens, default=0),
        "longest_tokens": max(tokens, default=0),
        "questions": sum(len(json.loads(document["questions"])) for document in documents),
    }


Row = Mapping[str, Any]


class UtilizationSamples:
    """A `SampleSource` over documents (`LISTED`) in the cells of one recipe.

    ``files``: document id -> the stored file with its text.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        documents: Iterable[Row],
        match: Match,
        files: Mapping[str, Path],
    ) -> None:
        self._cells = {cell.key: cell for cell in cells}
        self._match: Match = match
        self._files = files
        self._planned: dict[str, list[PlannedExample]] = {}
        self._documents: dict[tuple[str, str, str, str], list[Row]] = {}
        for row in documents:
            place = (row["benchmark"], row["format"], row["scale"], row["arm"])
            self._documents.setdefault(place, []).append(row)

    def planned(self, bin: str, n: int) -> Sequence[PlannedExample]:
        """Return the first ``n`` examples of a cell, document by document, lookups first."""
        if (cell := self._cells.get(bin)) is None:
            return []
        if bin not in self._planned:
            place = (cell.benchmark, cell.format, cell.scale, arm_json(cell.arm.of_document))
            rows = sorted(self._documents.get(place, ()), key=lambda row: int(row["seed"]))
            examples = [example for row in rows for example in self._examples(cell, row)]
            self._planned[bin] = [
                PlannedExample(example, tokens, bin, rank)
                for rank, (example, tokens) in enumerate(examples)
            ]
        return self._planned[bin][:n]

    def document_text(self, document_id: str) -> str:
        """Return a document's text; raise StoreError if the store does not have it."""
        if document_id not in self._files:
            raise StoreError(f"Document {document_id[:12]} is missing; prepare the study again.")
        return read_text(self._files[document_id], document_id)

    def _examples(self, cell: Cell, row: Row) -> list[tuple[Example, int]]:
        questions = json.loads(row["questions"])
        # A stable sort: engines without a prefix cache profit most from one fixed order.
        questions.sort(key=lambda question: question["kind"] != "lookup")
        key = f"{cell.benchmark}/{cell.scale}/{row['seed']}"
        if self._match == "tokens":
            key += f"/{cell.format}"  # records differ by format, so documents cannot be paired
        shared = {
            "benchmark": cell.benchmark,
            "format": cell.format,
            "scale": cell.scale,
            "scale_tokens": cell.tokens,
            "seed": int(row["seed"]),
            "arm": cell.arm_label,
            "document_key": key,
            "records": int(row["records"]),
        }
        return [
            (
                Example(
                    f"{cell.key}-{seed_key(row['seed'])}-q{number}",
                    row["document_id"],
                    asked(question["text"], question["form"], cell.arm.thought),
                    (question["answer"],),
                    question["kind"],
                    {
                        **shared,
                        "needed": question["needed"],
                        "question_kind": question["kind"],
                        "hops": question["hops"],
                        "form": question["form"],
                        "choices": tuple(question["choices"]),
                        "evidence_position": question["evidence_position"],
                    },
                ),
                int(row["length_tokens"]),
            )
            for number, question in enumerate(questions)
        ]


class UtilizationDocuments(KeptDocuments):
    """Documents of the experiment, partitioned by benchmark and scale, and by seed."""

    table = UTILIZATION_DOCUMENTS

    def keys(self, study: Study) -> Mapping[str, Sequence[str]]:
        section = section_of(study)
        data = [f"{b}-{scale}" for b in section.benchmarks for scale in section.scales]
        return {"document": data, "seed": [f"s{seed:03d}" for seed in range(section.seeds)]}

    def make(self, study: Study, store: Store, partition: Mapping[str, str]) -> MadeDocuments:
        benchmark, _, scale = partition["document"].partition("-")
        seed = int(partition["seed"].removeprefix("s"))
        batches = [
            batch
            for batch in batches_of(study, store)
            if (batch.benchmark, batch.scale, batch.seed) == (benchmark, scale, seed)
        ]
        if not batches and not (benchmark == "constraints" and left_out(study, store)):
            raise StudyError(
                f"Study {study.name!r} has no documents {partition['document']}, "
                f"{partition['seed']}; check `utilization` in its file."
            )
        rows = [row for batch in batches for row in ensure_batch(study, store, batch)]
        ids = json.dumps([row["document_id"] for row in rows])
        return MadeDocuments(hashlib.sha256(ids.encode()).hexdigest(), summary(rows))

    def write(self, study: Study, store: Store) -> None:
        batches = batches_of(study, store)
        documents = []
        for done, batch in enumerate(batches):
            report_step("documents", done, len(batches))
            documents += ensure_batch(study, store, batch)
        report_step("documents", len(batches), len(batches))
        store.mark()
        write_list(documents_dir(store, study.name), spec_hash(batches), documents)

    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        batches = batches_of(study, store)
        saved = read_list(documents_dir(store, study.name), spec_hash(batches))
        complete = all(batch_file(store, study.name, batch).exists() for batch in batches)
        return MadeDocuments(saved.sha256, summary(saved.documents)) if saved and complete else None

    def depends_on(self, study: Study) -> Mapping[str, Any]:
        section = section_of(study)
        keys = {"benchmarks", "formats", "scales", "seeds", "questions", "match", *_OF_DOCUMENT}
        unproved = unproved_benchmark()
        return {
            **section.model_dump(mode="json", include=keys),
            **({"unproved": unproved} if unproved in section.benchmarks else {}),
            "factorial": section.factorial,
            "tokenizer": tokenizer_name(study, "utilization"),
        }


DOCUMENTS = UtilizationDocuments()
_OF_DOCUMENT = ("evidence", "verbosity", "order", "corruption")


def section_of(study: Study) -> UtilizationSection:
    """Return the value of the study's key `utilization`."""
    section: UtilizationSection = study.sections["utilization"]
    return section


@lru_cache(maxsize=2)
def solver_of(tokenizer: str) -> ScaleSolver:
    """Return the scale solver of a tokenizer, cached with its tokens per record."""
    return ScaleSolver(opened_tokenizer(tokenizer).count)


def batches_of(study: Study, store: Store) -> list[Batch]:
    """Return the batches of a study, smallest scale first, without a benchmark that is `left_out`.

    Raise StudyError without a tokenizer, or if no benchmark is left.
    """
    section, fingerprint = section_of(study), tokenizer_of(study, "utilization").fingerprint
    arms = list(dict.fromkeys(arm.of_document for arm in arms_of(section)))
    batches = [
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
    name = unproved_benchmark()
    unproved = (batch for batch in batches if batch.benchmark == name)
    # What is in the store was proved when it was made.
    if all(read_batch(batch_file(store, study.name, one), one.hash) for one in unproved):
        return batches
    if {*section.benchmarks} == {name}:
        raise StudyError(unproved_sentence("cannot be measured"))
    return [batch for batch in batches if batch.benchmark != name]


def left_out(study: Study, store: Store) -> bool:
    """Return whether a benchmark that the study asks for is left out, because it has no proof."""
    name = unproved_benchmark()
    asked = name in section_of(study).benchmarks
    return asked and all(batch.benchmark != name for batch in batches_of(study, store))


def spec_hash(batches: Sequence[Batch]) -> str:
    """Return the SHA-256 (hex) of the parts that determine the documents of ``batches``."""
    return hashlib.sha256("".join(batch.hash for batch in batches).encode()).hexdigest()


def ensure_batch(study: Study, store: Store, batch: Batch) -> list[dict[str, Any]]:
    """Return the documents of a batch (`LISTED`); make them if the store lacks them.

    Raise as `make_batch`, and StoreError if the file cannot be written.
    """
    path = batch_file(store, study.name, batch)
    if (rows := read_batch(path, batch.hash)) is None:
        write_batch(path, make_batch(batch, solver_of(tokenizer_name(study, "utilization"))))
        rows = read_batch(path, batch.hash)
        assert rows is not None
    return rows


def listed(study: Study, store: Store) -> Iterator[dict[str, Any]]:
    """Yield the documents of a study in list order; make missing ones."""
    DOCUMENTS.freeze(study, store)
    document_list = read_list(documents_dir(store, study.name), spec_hash(batches_of(study, store)))
    assert document_list is not None
    yield from document_list.documents


def whole_documents(study: Study, store: Store) -> Iterator[dict[str, Any]]:
    """Yield a study's rows of `tables.UTILIZATION_DOCUMENTS`, made as by `ensure_batch`."""
    batches = batches_of(study, store)
    for done, batch in enumerate(batches):
        report_step("documents", done, len(batches))
        ensure_batch(study, store, batch)
        yield from read_rows(batch_file(store, study.name, batch))


_SHORT_TOKENS = 4_000


def expected_rows(batch: Batch, tokenizer: str) -> Iterator[dict[str, Any]]:
    """Yield estimated `LISTED` rows of a batch without making its documents: lengths scaled up from
    a short document in each format, and that document's questions.

    Raises:
        StudyError: the scale, or a document of a few thousand tokens, is out of reach.
    """
    target = scale_tokens(batch.scale)
    for arm in batch.arms:
        wish = Wish(batch.benchmark, min(target, _SHORT_TOKENS), 0, arm.evidence, batch.questions)
        short = _short(wish, tokenizer)
        for format in batch.formats:
            ratio = _tokens(wish, format, arm.verbosity, arm.order, tokenizer) / short.tokens
            if batch.match == "tokens":
                standard = _tokens(wish, format, "standard", "chronological", tokenizer)
                ratio *= short.tokens / standard
            place = f"{batch.hash} {format} {arm_json(arm)}"
            yield {
                "document_id": hashlib.sha256(place.encode()).hexdigest(),
                "benchmark": batch.benchmark,
                "scale": batch.scale,
                "seed": batch.seed,
                "format": format,
                "arm": arm_json(arm),
                "length_tokens": round(target * ratio),
                "records": round(len(short.data.records) * target / short.tokens),
                "corrupted": 0,
                "questions": json.dumps([_question(one) for one in short.data.questions]),
            }


@lru_cache(maxsize=64)
def _short(wish: Wish, tokenizer: str) -> Solved:
    return solver_of(tokenizer).solve(wish)


@lru_cache(maxsize=1024)
def _tokens(wish: Wish, format: Format, verbosity: Verbosity, order: Order, tokenizer: str) -> int:
    text = render(_short(wish, tokenizer).data, format, verbosity, order).text
    return solver_of(tokenizer).count(text)
