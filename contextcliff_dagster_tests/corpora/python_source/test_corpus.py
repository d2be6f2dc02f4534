"""The corpus python-source: whole files or none, all accounted for, and the same again tomorrow."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.corpus import document_id
from contextcliff_dagster.corpora.materialize import materialize_corpus, read_summary
from contextcliff_dagster.corpora.python_source import PythonSourceCorpus
from contextcliff_dagster.corpora.registry import open_corpus

GOOD = """\
TIMEOUT_SECONDS = 275


class Basket(dict):
    def fill(self, amount, unit="kilogram"):
        raise OverflowError(f"{amount} {unit} is more than it holds")
"""


def corpus_of(folder: Path, **options: Any) -> PythonSourceCorpus:
    return PythonSourceCorpus({"path": str(folder), **options})


def account_of(corpus: PythonSourceCorpus) -> dict[str, Any]:
    list(corpus.entries())
    return corpus.account()


def hostile(folder: Path) -> dict[str, int]:
    """A folder of files that are not what they seem, and how many go for which reason."""
    inside = folder / "project"
    inside.mkdir(parents=True)
    (inside / "good.py").write_text(GOOD, encoding="utf-8")
    files: dict[str, bytes] = {
        "copy.py": GOOD.encode(),
        "nothing.py": b"",
        "blank.py": b" \n\t\n",
        "broken.py": b"def half(:\n",
        "python2.py": b"print 'hello'\n",
        "tabs.py": b"if True:\n\tx = 1\n        y = 2\n",
        "null.py": b"VALUE = 12\0\n",
        "latin.py": "NAME = 'caf\xe9'\n".encode("latin-1"),
        "unknown.py": b"# -*- coding: klingon-8 -*-\nNAME = 'worf'\n",
        "binary_codec.py": b"# coding: hex\nNAME = 'ab'\n",
        "surrogate.py": b"# coding: unicode_escape\nNAME = '\\ud800'\n",
        "utf16.py": "NAME = 'wide'\n".encode("utf-16"),
        "brackets.py": b"x = " + b"(\n" * 5_000 + b")\n" * 5_000,
        "minus.py": b"x = " + b"-\\\n" * 30_000 + b"1\n",
        "sum.py": b"x = 1" + b" \\\n + 1" * 20_000 + b"\n",
        "dots.py": b"x = a" + b"\\\n.a" * 20_000 + b"\n",
        "branches.py": b"if a:\n    pass\n" + b"elif a:\n    pass\n" * 20_000,
        "table.py": b"DATA = '" + b"0123456789" * 300 + b"'\n",
        "huge.py": b"# a long comment\n" * 80_000,
        "questionless.py": b"import os\n",
    }
    for name, content in files.items():
        (inside / name).write_bytes(content)
    (folder / "secret.py").write_text("PASSWORD = 'open sesame'\n", encoding="utf-8")
    (inside / "link.py").symlink_to(folder / "secret.py")
    (inside / "loop.py").symlink_to(inside / "loop.py")
    (inside / "up").symlink_to(folder)
    (inside / "gone.py").symlink_to(inside / "nowhere.py")
    os.mkfifo(inside / "pipe.py")
    return {
        "duplicate": 1,
        "empty": 2,
        "not_text": 6,
        "long_lines": 1,
        "too_long": 1,
        "no_question": 1,
        "not parsed": 8,
        "not opened": 5,
    }


def test_no_file_kills_the_reading_and_every_one_is_counted(tmp_path: Path) -> None:
    expected = hostile(tmp_path)
    corpus = corpus_of(tmp_path / "project")
    files = account_of(corpus)["files"]
    skipped = Counter(files["skipped"])
    # Which of two reasons is given for deep nesting, or for a link to itself, differs by version.
    merged = {
        **{reason: n for reason, n in skipped.items() if reason in expected},
        "not parsed": skipped["not_python"] + skipped["too_deep"],
        "not opened": skipped["outside"] + skipped["unreadable"],
    }
    assert merged == expected
    assert skipped.total() == sum(expected.values())
    assert files["used"] == 1
    assert files["read"] == 1 + sum(expected.values()) - expected["not opened"]
    assert {entry.document.text for entry in corpus.entries()} == {GOOD}
    assert "1 used" in corpus.account()["summary"]
    assert "1 the same as another" in corpus.account()["summary"]


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    hostile(tmp_path)
    texts = "".join(entry.document.text for entry in corpus_of(tmp_path / "project").entries())
    assert "sesame" not in texts


def test_a_file_that_cannot_be_opened_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good.py").write_text(GOOD, encoding="utf-8")
    (tmp_path / "closed.py").write_text("LIMIT = 4711\n", encoding="utf-8")
    opened = Path.open

    def refuse(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == "closed.py":  # root opens everything, so its mode would not do
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert account_of(corpus_of(tmp_path))["files"]["skipped"] == {"unreadable": 1}


def test_the_text_is_the_file_as_it_stands(tmp_path: Path) -> None:
    written = {
        "windows.py": "LIMIT = 4711\r\nOTHER = 4712\r\n",
        "unended.py": "LIMIT = 4713",
        "wide.py": "# \u00fcber \U0001f40d\x0c\nLIMIT = 4714\n",
    }
    for name, text in written.items():
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "declared.py").write_bytes(
        "# coding: latin-1\nLIMIT = 'caf\xe9'\n".encode("latin-1")
    )
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbfLIMIT = 4715\n")
    found = {e.place.split("/")[-1]: e for e in corpus_of(tmp_path).entries()}
    for name, text in written.items():
        assert found[name].document.text == text
        assert found[name].document.document_id == document_id(text)
    assert found["declared.py"].example.answers == ("caf\xe9",)
    assert found["marked.py"].document.text == "LIMIT = 4715\n"


def test_the_same_files_and_options_give_the_same_entries(tmp_path: Path) -> None:
    for number in range(30):
        text = GOOD.replace("275", str(1_000 + number)).replace("Basket", f"Basket{number}")
        (tmp_path / f"m{number}.py").write_text(text, encoding="utf-8")
    options = {"documents": 7, "questions_per_document": 2, "seed": 4}
    first, again = corpus_of(tmp_path, **options), corpus_of(tmp_path, **options)
    assert list(first.entries()) == list(again.entries())
    assert first.fingerprint() == again.fingerprint()
    per_document = Counter(e.document.document_id for e in first.entries())
    assert list(per_document.values()) == [2] * 7
    more = list(corpus_of(tmp_path, **{**options, "documents": 9}).entries())
    assert more[:14] == list(first.entries())
    other = corpus_of(tmp_path, **{**options, "seed": 5})
    assert {e.place for e in other.entries()} != {e.place for e in first.entries()}


def test_the_fingerprint_follows_options_names_and_bytes(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(GOOD, encoding="utf-8")
    variants: list[dict[str, Any]] = [
        *({}, {"seed": 1}, {"kinds": ["base_class"]}, {"line_question": "beginning"}),
        *({"questions_per_document": 2}, {"min_bytes": 10}, {"documents": 3}),
    ]
    prints = [corpus_of(tmp_path, **options).fingerprint() for options in variants]
    file.write_text(GOOD.replace("275", "276"), encoding="utf-8")
    prints.append(corpus_of(tmp_path).fingerprint())
    file.rename(tmp_path / "two.py")
    prints.append(corpus_of(tmp_path).fingerprint())
    assert len(set(prints)) == len(prints)


def test_what_became_of_the_files_is_kept_with_the_corpus(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    (source / "good.py").write_text(GOOD, encoding="utf-8")
    (source / "bad.py").write_text("def (", encoding="utf-8")
    summary = materialize_corpus(corpus_of(source), out)
    assert summary.account["files"] == {"read": 2, "used": 1, "skipped": {"not_python": 1}}
    assert summary.account["python"].startswith(("CPython 3.", "PyPy 3."))
    assert read_summary(out) == summary


def test_the_interpreters_own_library_is_there_with_what_is_installed() -> None:
    corpus = open_corpus("python-source", {"files": 40, "roots": ["stdlib", "site-packages"]})
    entries = list(corpus.entries())
    assert len({e.document.document_id for e in entries}) > 15
    assert {e.place.split("/")[0] for e in entries} == {"stdlib", "site-packages"}
    account = corpus.account()
    assert any(name.startswith("pytest ") for name in account["distributions"])
    for entry in entries:
        assert 0 <= entry.example.metadata["evidence_position"] < 1
        assert not any(
            a.casefold() in entry.example.question.casefold() for a in entry.example.answers
        )


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"path": "/nowhere/at/all"}, "no folder"),
        ({"roots": ["home"]}, "roots' is one of .*, not 'home'"),
        ({"roots": []}, "is empty"),
        ({"roots": ["stdlib"], "path": "."}, "give one"),
        ({"kinds": ["riddle"]}, "kinds' is one of .*, not 'riddle'"),
        ({"kinds": [["riddle"]]}, "is one of"),
        ({"kinds": ["base_class"], "task": "base_class"}, "give one"),
        ({"task": "riddle"}, "kinds' is one of .*, not 'riddle'"),
        ({"line_question": "end"}, "is one of sentence, beginning, not 'end'"),
        ({"files": 0}, "at least 1"),
        ({"min_bytes": 100, "max_bytes": 50}, "above 'max_bytes'"),
        ({"documents": "all"}, "a whole number"),
        ({"folder": "."}, "no option 'folder'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(CorpusError, match=word):
        PythonSourceCorpus(options)


def test_a_folder_without_a_question_says_so(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import os\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="gives a question"):
        list(corpus_of(tmp_path).entries())
