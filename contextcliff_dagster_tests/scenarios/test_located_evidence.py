"""Questions of one's own get the position of their evidence when the sample is drawn."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.run.study import prepare_study
from contextcliff_dagster.studies import load_study
from contextcliff_dagster.studies.sections import CorpusSection

pytestmark = pytest.mark.usefixtures("unrecorded")

PLACES = {n: 100 + 20 * n for n in range(12)}
TEXTS = {
    n: "word " * (at // 5) + f"(Key {n}-X), " + "tail " * (60 * n * n) for n, at in PLACES.items()
}
STUDY = """\
name: own
corpus: {corpus}
tokenizer: reference
bins: {{count: 2, starved_below: 2}}
sampling: {{samples_per_bin: 20, questions_per_document: 5}}
models: [reference-short]
"""


def asked_of(n: int) -> list[dict[str, Any]]:
    spans = {"evidence_spans": [[40, 44], [10, 14]]}
    return [
        {"question": "once?", "answers": [f"key {n}-x", f"Key {n}"]},
        {"question": "twice?", "answers": ["word"]},
        {"question": "by chance?", "answers": ["X"]},
        {"question": "given?", "answers": [f"key {n}-x"], "evidence_position": 0.25},
        {"question": "by spans?", "answers": [f"key {n}-x"], **spans},
    ]


def positions(folder: Path, corpus: str) -> dict[tuple[str, str], float | None]:
    path = folder / "own.yaml"
    path.write_text(STUDY.format(corpus=corpus), encoding="utf-8")
    manifest = prepare_study(load_study(path)).manifest
    rows = manifest.examples.to_pylist()
    return {
        (manifest.document_text(row["document_id"]), row["question"]): row["evidence_position"]
        for row in rows
    }


def test_rows_of_a_file_have_the_one_place_of_their_answer(tmp_path: Path) -> None:
    rows = [{"context": TEXTS[n], **row} for n in TEXTS for row in asked_of(n)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = positions(tmp_path, "{kind: file, path: own.jsonl}")
    seen = {question for _, question in found}
    assert seen == {row["question"] for row in asked_of(0)}
    for (text, question), at in found.items():
        expected = {"once?": text.index("Key") / len(text), "given?": 0.25}
        expected["by spans?"] = 10 / len(text)
        assert at == pytest.approx(expected[question]) if question in expected else at is None


def test_documents_of_a_folder_with_a_table_have_it_too(tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    with (folder / "questions.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["document", "question", "answers"])
        for n, text in TEXTS.items():
            (folder / f"{n}.txt").write_text(text, encoding="utf-8")
            table.writerow([f"{n}.txt", "once?", f"key {n}-x"])
    found = positions(tmp_path, "{kind: folder, path: documents}")
    assert len(found) > 10
    for (text, _), at in found.items():
        assert at == pytest.approx(text.index("Key") / len(text))


@pytest.mark.parametrize(
    ("section", "own"),
    [
        ({"kind": "file"}, True),
        ({"kind": "squad"}, False),
        ({"kind": "mixed", "parts": [{"kind": "file"}, {"kind": "folder"}]}, True),
        ({"kind": "mixed", "parts": [{"kind": "file"}, {"kind": "squad"}]}, False),
    ],
)
def test_benchmarks_keep_what_they_say(section: dict[str, Any], own: bool) -> None:
    assert CorpusSection(**section).of_ones_own == own
