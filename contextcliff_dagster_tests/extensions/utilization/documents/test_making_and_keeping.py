"""Documents are verified when they are made, kept by what decides them, and listed with a hash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import StoreError, StudyError, VerificationError
from contextcliff_dagster.extensions.utilization import documents
from contextcliff_dagster.extensions.utilization.documents import (
    batch_file,
    documents_dir,
    read_batch,
    read_text,
)
from contextcliff_dagster.extensions.utilization.rendering.structured import parse
from contextcliff_dagster.extensions.utilization.tables import UTILIZATION_DOCUMENTS
from contextcliff_dagster.extensions.utilization.verification import Verdict
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import Study

DOCUMENTS = documents.DOCUMENTS


def study_of(**keys: Any) -> Study:
    section = {"benchmarks": ["warehouse"], "scales": ["1k"], "seeds": 2, **keys}
    return Study.model_validate({"name": "made", "models": ["m"], "utilization": section})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[documents.Batch]:
    """The batches that were made, as they are made."""
    batches: list[documents.Batch] = []
    make = documents.make_batch

    def noted(batch: documents.Batch, solver: Any) -> list[dict[str, Any]]:
        batches.append(batch)
        return make(batch, solver)

    monkeypatch.setattr(documents, "make_batch", noted)
    return batches


def rows_of(study: Study, store: Store) -> list[Mapping[str, Any]]:
    return list(documents.listed(study, store))


def test_the_same_records_in_every_format(store: Store) -> None:
    study = study_of(formats=["jsonl", "prose", "csv", "markdown"], seeds=1)
    (batch,) = documents.batches_of(study, store)
    path = batch_file(store, study.name, batch)
    texts = {row["format"]: read_text(path, row["document_id"]) for row in rows_of(study, store)}
    records = [parse(text, "warehouse") for text in texts.values()]
    assert len(texts) == 4
    assert all(one == records[0] for one in records)
    tokens = {row["format"]: row["length_tokens"] for row in rows_of(study, store)}
    assert tokens["jsonl"] == pytest.approx(1000, rel=0.02)
    assert len(set(tokens.values())) == 4, "each format has tokens of its own"
    assert {row["records"] for row in rows_of(study, store)} == {len(records[0])}


def test_matched_by_tokens_each_format_has_the_scale(store: Store) -> None:
    study = study_of(match="tokens", formats=["jsonl", "prose", "csv"])
    for row in rows_of(study, store):
        assert row["length_tokens"] == pytest.approx(1000, rel=0.02), row["format"]


def test_arms_of_documents_share_their_data(store: Store) -> None:
    study = study_of(
        seeds=1,
        order=["chronological", "shuffled"],
        verbosity=["standard", "terse"],
        corruption=[0, 0.1],
        thought=["off", "on"],
    )
    rows = rows_of(study, store)
    assert len(rows) == 2 * 4, "thought is no part of a document"
    by_arm = {row["arm"]: row for row in rows if row["format"] == "prose"}
    answers = {
        arm: [question["answer"] for question in json.loads(row["questions"])]
        for arm, row in by_arm.items()
    }
    assert len({str(one) for one in answers.values()}) == 1, "no answer was changed"
    assert len({row["document_id"] for row in by_arm.values()}) == 4
    assert [row["corrupted"] > 0 for row in by_arm.values()] == [False, False, False, True]


@pytest.mark.parametrize("benchmark", ["warehouse", "constraints", "network"])
def test_any_record_may_be_corrupted_where_answers_follow(benchmark: str, store: Store) -> None:
    levels = [0, {"share": 0.2, "of": "recomputed"}]
    rows = rows_of(study_of(benchmarks=[benchmark], scales=["2k"], corruption=levels), store)
    answers = [[q["answer"] for q in json.loads(row["questions"])] for row in rows]
    verdicts = [[v["answer"] for v in json.loads(text)] for text in verdicts_of(store)]
    assert sorted(map(str, answers)) == sorted(map(str, verdicts)), "as the verifier reads them"
    assert len({str(one) for one in answers}) > len(answers) / 4, "some of them changed"


def verdicts_of(store: Store) -> list[str]:
    files = sorted(store.root.rglob("*.parquet"))
    tables = [read_table(file, UTILIZATION_DOCUMENTS) for file in files]
    return [text for table in tables for text in table["verdicts"].to_pylist()]


def test_what_cannot_be_corrupted_is_one_sentence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise ValueError("9 records cannot be changed; choose a smaller share")

    monkeypatch.setattr(documents, "corrupt", refuse)
    with pytest.raises(StudyError, match=r"^9 records cannot be changed; .* share\.$"):
        DOCUMENTS.freeze(study_of(corruption=0.2), store)


def test_documents_are_made_once(store: Store, made: list[documents.Batch]) -> None:
    study = study_of()
    first = DOCUMENTS.freeze(study, store)
    assert len(made) == 2
    assert DOCUMENTS.freeze(study, store) == first == DOCUMENTS.frozen(study, store)
    more = study_of(seeds=3)
    assert DOCUMENTS.frozen(more, store) is None
    assert DOCUMENTS.freeze(more, store) != first
    assert [batch.seed for batch in made] == [0, 1, 2], "those of the first seeds are the same"
    DOCUMENTS.freeze(study_of(formats=["jsonl", "csv"]), store)
    assert len(made) == 5, "what decides a file has changed"


def test_the_partitions_are_made_one_by_one(store: Store, made: list[documents.Batch]) -> None:
    study = study_of(benchmarks=["network"], scales=["1k", "1.5k"])
    assert DOCUMENTS.keys(study) == {
        "document": ["network-1k", "network-1.5k"],
        "seed": ["s000", "s001"],
    }
    one = DOCUMENTS.make(study, store, {"document": "network-1.5k", "seed": "s001"})
    assert one.values["documents"] == 2
    assert one.values["questions"] == 8
    assert [(batch.scale, batch.seed) for batch in made] == [("1.5k", 1)]
    with pytest.raises(StudyError, match="has no documents network-2k"):
        DOCUMENTS.make(study, store, {"document": "network-2k", "seed": "s000"})


def test_a_damaged_file_is_made_again(store: Store, made: list[documents.Batch]) -> None:
    study = study_of(seeds=1)
    first = DOCUMENTS.freeze(study, store)
    (batch,) = documents.batches_of(study, store)
    path = batch_file(store, study.name, batch)
    path.write_bytes(b"PAR1")
    assert read_batch(path, batch.hash) is None
    (documents_dir(store, study.name) / "manifest.json").unlink()
    assert DOCUMENTS.freeze(study, store) == first
    assert len(made) == 2


def test_a_list_that_was_touched_is_no_list(store: Store) -> None:
    study = study_of(seeds=1)
    first = DOCUMENTS.freeze(study, store)
    path = documents_dir(store, study.name) / "manifest.json"
    whole = json.loads(path.read_bytes())
    assert whole["sha256"] == first.sha256
    whole["documents"][0]["length_tokens"] += 1
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert DOCUMENTS.frozen(study, store) is None
    assert DOCUMENTS.freeze(study, store) == first


def test_a_text_that_is_another_is_refused(store: Store) -> None:
    study = study_of(seeds=1)
    (row, _) = rows_of(study, store)
    (batch,) = documents.batches_of(study, store)
    path = batch_file(store, study.name, batch)
    assert read_text(path, row["document_id"])
    with pytest.raises(StoreError, match="prepare the study again"):
        read_text(path, "0" * 64)


def test_a_document_that_does_not_support_its_answer_is_a_fault_of_ours(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubt(self: Any, text: str, questions: Any, format: str) -> list[Verdict]:
        wrong = format == "prose"
        return [Verdict("1", not wrong, not wrong, "by hand") for _ in questions]

    monkeypatch.setattr(documents.Verifier, "verify", doubt)
    with pytest.raises(VerificationError, match=r"seed 0 \(1k, prose\) fails .* report"):
        DOCUMENTS.freeze(study_of(), store)
    assert not list(store.root.rglob("*.parquet"))


def test_every_text_is_verified(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    verify = documents.Verifier.verify

    def noted(self: Any, text: str, questions: Any, format: Any) -> list[Verdict]:
        seen.append((self.benchmark, format))
        return verify(self, text, questions, format)

    monkeypatch.setattr(documents.Verifier, "verify", noted)
    rows = rows_of(study_of(benchmarks=["warehouse", "constraints", "network"], seeds=1), store)
    assert sorted(seen) == sorted((row["benchmark"], row["format"]) for row in rows)


def test_no_tokenizer_is_one_sentence(store: Store) -> None:
    with pytest.raises(StudyError, match="no-such"):
        DOCUMENTS.freeze(study_of(tokenizer="tiktoken:no-such"), store)
