"""Several questions on one document, from a file to the report: documents stay the unit."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from contextcliff_dagster.reference.warehouse_documents import iter_ledgers
from contextcliff_dagster.run.study import prepare_study, profile_study
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study

pytestmark = pytest.mark.usefixtures("unrecorded")

DOCUMENTS, QUESTIONS = 30, 5
STUDY = """\
name: several
corpus: {kind: file, path: corpus.jsonl, task: lookup}
tokenizer: reference
bins: {count: 3, starved_below: 2}
sampling: {samples_per_bin: 24, pilot_per_bin: 5, questions_per_document: 3}
prompt: {max_output_tokens: 12}
models: [reference-short]
analysis: {resamples: 100}
"""


@pytest.fixture
def several(tmp_path: Path) -> Study:
    """30 ledgers of at most 200 tokens, five questions on each."""
    rows = [
        {"document": ledger.text, "question": q.question, "answers": list(q.answers)}
        for ledger in iter_ledgers(0, DOCUMENTS, 40, 200, questions_per_level=QUESTIONS)
        for q in ledger.questions
        if q.task == "lookup"
    ]
    assert len(rows) == DOCUMENTS * QUESTIONS
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    path = tmp_path / "several.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return load_study(path)


def asked(manifest: Manifest, key: str, at_most: int) -> list[tuple[str, str]]:
    """Example and document of each planned call of a bin, in order."""
    planned = manifest.planned(key, at_most)
    return [(p.example.example_id, p.example.document_id) for p in planned]


def test_the_sample_is_balanced_over_documents_and_holds_the_smaller_one(several: Study) -> None:
    few = prepare_study(several, samples_per_bin=5)
    assert few.audit is not None
    assert (few.audit["documents"], few.audit["examples"]) == (DOCUMENTS, DOCUMENTS * QUESTIONS)
    small, large = few.manifest, prepare_study(several).manifest
    for length_bin in large.bins:
        key = length_bin.bin
        assert asked(large, key, 24)[:5] == asked(small, key, 5)
        assert len({document for _, document in asked(small, key, 5)}) == 5
        assert len({example for example, _ in asked(large, key, 24)}) == 24
        # All documents of the bin give two questions each before any gives its third.
        given = Counter(document for _, document in asked(large, key, 24))
        assert len(given) == length_bin.n_documents < 12
        assert set(given.values()) == {2, 3}
    everything = prepare_study(several, samples_per_bin=99).manifest
    for length_bin in everything.bins:
        given = Counter(document for _, document in asked(everything, length_bin.bin, 99))
        assert set(given.values()) == {3}  # of five that could be asked


def test_documents_are_the_unit(several: Study, store: Store) -> None:
    done = profile_study(several)
    (cliffs,) = done.cliffs
    assert (cliffs.n, cliffs.n_documents) == (72, DOCUMENTS)
    folder = store.profile_dir(several.name, done.campaign, "reference-short")
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
    drawn = [b.n_documents for b in prepare_study(several).manifest.bins]
    assert sum(drawn) == DOCUMENTS
    assert [(b["n"], b["n_documents"]) for b in metrics["bins"]] == [(24, n) for n in drawn]
    # Right at every question, ten documents say what ten right answers do, not twenty-four.
    perfect = [b for b in metrics["bins"] if b["mean"] == 1.0]
    assert perfect
    for length_bin in perfect:
        assert length_bin["ci_low"] == pytest.approx(0.025 ** (1 / length_bin["n_documents"]))

    assert "72 examples over 30 documents" in done.report.md.read_text("utf-8")
