"""`--data` on a folder of documents, as somebody would use it for the first time."""

from __future__ import annotations

import bisect
import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.corpora.benchmarks.test_damaged_records import WHOLE
from contextcliff_dagster_tests.support.files import warehouse_files
from contextcliff_dagster_tests.support.files.benchmark_files import write_json, write_lines
from contextcliff_dagster_tests.support.files.folders import write
from contextcliff_dagster_tests.support.files.scripts import prose
from contextcliff_dagster_tests.support.terminal import Ended, assert_one_sentence, call, run

MODEL = ("--model", "reference-short")


def ledgers(folder: Path, documents: int = 24) -> list[tuple[str, str, str]]:
    """Ledgers under names with blanks and accents, some in folders; (name, question, answer)."""
    asked = []
    for number, row in enumerate(warehouse_files.rows(documents)):
        name = f"{('', 'Lager Süd/', '仓库/')[number % 3]}Liste {number:02d}.txt"
        write(folder / name, row["context"])
        asked.append((name, row["question"], row["answers"][0]))
    return asked


def stories(folder: Path, documents: int = 24) -> None:
    """Prose of many lengths, which recall can be asked of."""
    for number in range(documents):
        write(folder / f"Tale {number:02d}.md", prose("english", sentences=5 + number, seed=number))


def table(path: Path, rows: Sequence[Sequence[str]], *, mark: str = ",", start: str = "") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(start)
        csv.writer(file, delimiter=mark).writerows([("document", "question", "answers"), *rows])
    return path


def prepared(*args: str) -> tuple[Ended, dict[str, object]]:
    ended = call("prepare", *args, *MODEL, "--json")
    assert ended.code == 0, ended
    return ended, json.loads(ended.out)["corpus"]


def test_a_folder_with_questions_is_measured_and_accounted_for(
    tmp_path: Path, contextcliff_home: Path
) -> None:
    docs = tmp_path / "my docs"
    asked = ledgers(docs)
    table(docs / "questions.csv", asked)
    write(docs / "copy.txt", (docs / asked[0][0]).read_bytes())
    write(docs / "broken.pdf", b"%PDF-1.4 and no more")
    write(docs / "idle.md", "A note that nobody asks about.\n")
    (docs / "pipe").symlink_to("/etc/hostname")
    ended = run("profile", "--data", str(docs), *MODEL, "--samples-per-bin", "3")
    assert ended.code == 0, ended
    (study,) = (path.stem for path in contextcliff_home.glob("_studies/data-my-docs-*.yaml"))
    folder = contextcliff_home / study
    report = (folder / "report" / "latest" / "report.md").read_text(encoding="utf-8")
    counts = (
        "29 files found, 24 used (24 text); left out: 3 without a question, 1 table of "
        "questions, 1 link out of the folder. 24 questions from questions.csv."
    )
    assert counts in ended.out + ended.err
    assert counts in report.replace("\\", "")
    assert "manifest/files.csv" in report
    with (folder / "manifest" / "files.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert len(rows) == 29
    assert rows[asked[1][0]]["fate"] == "used"
    assert int(rows[asked[1][0]]["tokens"]) > 0
    assert rows["broken.pdf"]["fate"] == "no_question"
    listed = json.loads(call("answers", study, "--json").out)["answers"]
    assert {row["document"] for row in listed} <= {name for name, *_ in asked}
    assert "DOCUMENT" in call("answers", study).out
    export = tmp_path / "calls.jsonl"
    assert call("ledger", "export", study, str(export), "--no-prompts").code == 0
    exported = [json.loads(line) for line in export.read_text(encoding="utf-8").splitlines()]
    assert {row["document"] for row in exported} == {row["document"] for row in listed}
    cliffs = json.loads(next(folder.glob("profiles/*/*/cliffs.json")).read_text())
    assert cliffs["task"] == "question_answering"
    assert cliffs["n_documents"] > 5


def test_files_added_to_a_folder_are_named_until_they_are_drawn(
    tmp_path: Path, contextcliff_home: Path
) -> None:
    docs = tmp_path / "docs"
    stories(docs)
    options = ("--data", str(docs), "--questions", "recall", *MODEL)
    assert call("prepare", *options).code == 0
    stories(docs, 26)
    write(docs / ".hidden.md", "not a document\n")
    (study,) = (path.stem for path in contextcliff_home.glob("_studies/*-recall.yaml"))
    named = f"2 new files are in {docs}: `contextcliff prepare {study}` draws a sample with them."
    for line in (("profile", study), ("profile", *options)):
        assert named in call(*line, "--dry-run").err
    ended = call("prepare", study)
    assert "27 files found, 26 used" in ended.out
    assert "new file" not in ended.err + call("profile", study, "--dry-run").err
    assert "stay unused: 20 are asked in each bin. Raise `sampling.samples_per_bin`" in ended.out


def test_recall_is_called_so_everywhere(tmp_path: Path, contextcliff_home: Path) -> None:
    docs = tmp_path / "docs"
    stories(docs)
    options = ("--data", str(docs), "--questions", "recall", *MODEL)
    first = call("prepare", *options)
    assert first.code == 0, first
    assert "verbatim recall" in first.err, "the audit's note"
    assert "of verbatim recall, made from the texts" in first.out
    files = next(line for line in first.out.splitlines() if line.startswith("Outcome of each"))
    assert Path(files.split(": ")[1]).is_file()
    ended = call("profile", *options, "--samples-per-bin", "2")
    assert ended.code == 0, ended
    (study,) = (path.stem for path in contextcliff_home.glob("_studies/*-recall.yaml"))
    cliffs = json.loads(
        next((contextcliff_home / study).glob("profiles/*/*/cliffs.json")).read_text()
    )
    assert cliffs["task"] == "verbatim_recall"
    assert any("not how far it reasons" in warning for warning in cliffs["warnings"])
    report = contextcliff_home / study / "report" / "latest" / "report.md"
    assert report.read_text(encoding="utf-8").startswith("# Verbatim recall of ")
    # The study is found by its name, too, and is not drawn again.
    again = call("prepare", study)
    assert again.code == 0, again
    assert again.out.splitlines()[-1] == first.out.splitlines()[-1]


def test_what_does_not_fit_the_window_is_named(tmp_path: Path, contextcliff_home: Path) -> None:
    docs = tmp_path / "docs"
    stories(docs)
    saga = prose("english", sentences=2_000, seed=99)
    count = open_tokenizer("reference").count
    # It fits the window alone, not with prompt and answer.
    near = bisect.bisect(range(len(saga)), 8_180, key=lambda end: count(saga[:end]))
    write(docs / "Saga.md", saga)
    write(docs / "Near.md", saga[: near - 1])
    options = ("prepare", "--data", str(docs), "--questions", "recall", *MODEL)
    first = call(*options)
    assert first.code == 0, first
    assert "Too long for reference-short, so not sent: " in first.out
    with next(contextcliff_home.glob("*/manifest/files.csv")).open(encoding="utf-8") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert int(rows["Near.md"]["tokens"]) <= 8_180
    long = {name for name, row in rows.items() if row["fate"] == "too_long"}
    assert long == {"Near.md", "Saga.md"}
    assert "does not fit the window of reference-short" in rows["Saga.md"]["reason"]
    assert call("profile", *options[1:], "--samples-per-bin", "2").code == 0
    again = call(*options)
    assert "Too long for reference-short, so not sent: " in again.out, "though it is on record now"


def test_without_questions_it_says_both_ways_out(tmp_path: Path, contextcliff_home: Path) -> None:
    ledgers(tmp_path / "docs", 6)
    ended = call("profile", "--data", str(tmp_path / "docs"), *MODEL)
    assert_one_sentence(ended, "questions.csv", "document, question, answers", "--questions recall")
    assert not list(contextcliff_home.glob("_studies/*"))


@pytest.mark.parametrize(
    ("mark", "start", "ending"),
    [(",", "", "csv"), (",", "\ufeff", "csv"), (";", "\ufeff", "csv"), ("\t", "", "tsv")],
)
def test_tables_as_spreadsheets_write_them(
    mark: str, start: str, ending: str, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    asked = ledgers(docs, 12)
    # Names as people write them: without folders where that is clear, with backslashes, dots.
    names = [
        name.rsplit("/", 1)[-1] if n % 4 else f"./{name}".replace("/", "\\")
        for n, (name, _, _) in enumerate(asked)
    ]
    rows = [(name, *row[1:]) for name, row in zip(names, asked, strict=True)]
    table(docs / f"Fragen.{ending}", rows, mark=mark, start=start)
    _, corpus = prepared("--data", str(docs))
    assert corpus["examples"] == 12


def test_the_table_may_lie_elsewhere_or_be_named_itself(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    asked = ledgers(docs, 12)
    elsewhere = table(tmp_path / "mine.csv", asked)
    _, corpus = prepared("--data", str(docs), "--questions", str(elsewhere))
    assert corpus["examples"] == 12
    lines = [dict(zip(("document", "question", "answer"), row, strict=True)) for row in asked]
    questions = write_lines(docs / "asked.jsonl", lines)
    _, corpus = prepared("--data", str(questions))
    assert corpus["examples"] == 12


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("Liste 99.txt", "Q?", "A"), ["line 14", "Liste 99.txt", "did you mean"]),
        (("liste 00.TXT", "Q?", "A"), ["line 14", "did you mean 'Liste 00.txt'"]),
        (("", "Q?", "A"), ["line 14", "document"]),
        (("Liste 00.txt", "", "A"), ["line 14", "question"]),
        (("Liste 00.txt", "Q?", ""), ["line 14", "answer"]),
        (("Liste 00.txt", "Q?", "[]"), ["line 14", "answer"]),
        (("twice.txt", "Q?", "A"), ["line 14", "one/twice.txt", "two/twice.txt", "path below"]),
        ((".git/config", "Q?", "A"), ["line 14", ".git/", "hidden"]),
        (("Liste 00.txt", "Q?"), ["line 14", "2 fields"]),
    ],
)
def test_rows_that_cannot_be_used(
    row: tuple[str, ...], words: list[str], tmp_path: Path, contextcliff_home: Path
) -> None:
    docs = tmp_path / "docs"
    asked = ledgers(docs, 12)
    for name in ("one/twice.txt", "two/twice.txt", ".git/config"):
        write(docs / name, f"text of {name}")
    table(docs / "questions.csv", [*asked, row])
    ended = call("profile", "--data", str(docs), *MODEL)
    assert_one_sentence(ended, "questions.csv", *words)
    assert not list(contextcliff_home.glob("_studies/*"))


def test_folders_that_cannot_be_measured(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    recall = ("--data", str(docs), "--questions", "recall", *MODEL)
    assert_one_sentence(call("profile", *recall), "docs", "no file to read")
    write(docs / "a.pdf", b"%PDF-1.4 and no more")
    write(docs / "b.txt", b"")
    assert_one_sentence(call("profile", *recall), "a.pdf", "b.txt holds no text", "1 not readable")
    stories(docs, 2)
    assert_one_sentence(call("profile", *recall), "2 distinct documents", "add documents")


def test_two_tables_of_questions(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    asked = ledgers(docs, 12)
    for name in ("a.csv", "b.csv"):
        table(docs / name, asked)
    ended = call("profile", "--data", str(docs), *MODEL)
    assert_one_sentence(ended, "a.csv, b.csv", "--questions")
    _, corpus = prepared("--data", str(docs), "--questions", "b.csv")
    assert corpus["examples"] == 12


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    ledgers(docs, 2)
    assert_one_sentence(call("profile", "--questions", "recall", *MODEL), "--questions", "--data")
    data = ("--data", str(docs), *MODEL)
    assert_one_sentence(call("profile", *data, "--questions", ""), "--questions is empty")
    assert_one_sentence(call("profile", *data, "--questions", "no.csv"), "no.csv", "recall")
    both = ("--questions", "recall", "--task", "qa")
    assert_one_sentence(call("profile", *data, *both), "verbatim_recall")


def test_a_study_file_names_paths_relative_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(tmp_path / "asked.csv", ledgers(tmp_path / "docs", 12))
    write(
        tmp_path / "mine.yaml",
        "name: mine\ncorpus: {kind: folder, path: docs, questions: asked.csv}\n"
        "tokenizer: reference\nmodels: [reference-short]\nbins: {count: 2}\n",
    )
    monkeypatch.chdir("/")
    _, corpus = prepared(str(tmp_path / "mine.yaml"))
    assert corpus["examples"] == 12


def test_prepare_counts_answers_that_the_documents_do_not_hold(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    rows = ledgers(docs, 12)
    table(docs / "questions.csv", rows)
    assert "accepted answer" not in call("prepare", "--data", str(docs), *MODEL).out
    lost = [(name, f"{question} Once more", "no such thing") for name, question, _ in rows[:3]]
    table(docs / "questions.csv", [*rows[3:], *lost, (rows[0][0], "Is it so?", "yes")])
    said = " ".join(call("prepare", "--data", str(docs), *MODEL).out.split())
    assert (
        "For 3 of 12 questions of the sample, no accepted answer occurs in the document's text"
        in said
    )
    assert "Once more" in said
    shown = json.loads(call("prepare", "--data", str(docs), "--json", *MODEL).out)
    assert shown["answers_not_in_text"]["questions"] == 3


@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_answers_are_looked_for_in_the_texts_of_a_table_too(ending: str, tmp_path: Path) -> None:
    rows = [
        {"context": row["context"], "question": row["question"], "answers": row["answers"]}
        for row in warehouse_files.rows(12)
    ]
    rows[0]["answers"] = ["no such thing"]
    path = write_lines(tmp_path / "own.jsonl", rows)
    if ending == ".csv":
        path = tmp_path / "own.csv"
        cells = [[row["context"], row["question"], str(row["answers"])] for row in rows]
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter=";").writerows([list(rows[0]), *cells])
    shown = json.loads(call("prepare", "--data", str(path), "--json", *MODEL).out)
    assert shown["answers_not_in_text"]["questions"] == 1
    assert shown["answers_not_in_text"]["of"] == 12


def test_columns_are_named_with_those_of_objects_among_them(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    asked = [
        {"meta": {"file": name}, "frage": question, "gold": {"answers": [answer]}}
        for name, question, answer in ledgers(docs, 12)
    ]
    asked_file = write_lines(tmp_path / "asked.jsonl", asked)
    columns = "document=meta.file,question=frage,answers=gold.answers"
    options = ("--data", str(docs), "--questions", str(asked_file), "--columns", columns)
    ended, corpus = prepared(*options)
    assert corpus["examples"] == 12
    ended = call("prepare", *options, "--columns", "document=meta.name", *MODEL)
    assert_one_sentence(ended, "document is both meta.file and meta.name")
    other = columns.replace("meta.file", "meta.name")
    ended = call("prepare", *options[:-1], other, *MODEL)
    assert_one_sentence(
        ended, "no column 'meta.name' (it has 'meta.file', 'frage', 'gold.answers')"
    )
    ended = call("prepare", "quick", "--columns", columns)
    assert_one_sentence(ended, "--columns needs --data")


def test_a_changed_folder_is_noticed_by_prepare(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    stories(docs, 12)
    options = ("--data", str(docs), "--questions", "recall")
    _, before = prepared(*options)
    _, same = prepared(*options)
    assert same == before
    write(docs / "Tale 00.md", prose("english", sentences=9, seed=99))
    _, after = prepared(*options)
    assert after["fingerprint"] != before["fingerprint"]


def test_a_benchmark_is_read_by_its_adapter_and_manufactured_lengths_are_refused(
    tmp_path: Path,
) -> None:
    name, value = WHOLE["squad"]
    squad = write_json(tmp_path / name, value)
    ended = call("prepare", "--data", str(squad), *MODEL)
    assert_one_sentence(ended, "distinct document", "squad" if "squad" in ended.err else "data-f")
    facts = [
        {"input": row["context"], "question": row["question"], "target": row["answers"][0]}
        for row in warehouse_files.rows(12)
    ]
    made = write_json(tmp_path / "qa1" / "4k.json", facts)
    ended = call("prepare", "--data", str(made.parent), *MODEL)
    assert_one_sentence(ended, "manufactured", "--allow-synthetic-length")
    ended = call("prepare", "--data", str(made.parent), *MODEL, "--allow-synthetic-length")
    assert ended.code == 0, ended
    assert "12 questions of babilong used" in ended.out


def test_what_holds_a_bin_back_is_named(tmp_path: Path) -> None:
    rows = [
        {"context": row["context"], "question": f"{row['question']} ({n})", "answers": "a"}
        for row in warehouse_files.rows(12)
        for n in range(3)
    ]
    data = ("prepare", "--data", str(write_lines(tmp_path / "x.jsonl", rows)), *MODEL)
    once = call(*data)
    assert "; they hold more, but at most one question a document is asked (--questions" in once.out
    assert "IN SAMPLE is all they hold" in call(*data, "--questions-per-document", "3").out
