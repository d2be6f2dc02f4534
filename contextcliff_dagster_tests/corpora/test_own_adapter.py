"""The adapter of docs/corpora.md, as printed there, registered by an entry point."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.materialize import materialize_corpus
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster_tests.support.paths import DOCS

PAGE = DOCS / "corpora.md"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with the page's adapter and its entry point, as an installer leaves it."""
    import sys
    import tomllib

    site = tmp_path / "site"
    (site / "my_package").mkdir(parents=True)
    (site / "my_package" / "__init__.py").touch()
    (site / "my_package" / "interviews.py").write_text(block("python"), encoding="utf-8")
    ((group, names),) = tomllib.loads(block("toml"))["project"]["entry-points"].items()
    about = site / "my_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    lines = [f"{name} = {target}" for name, target in names.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, "broken = nowhere:X"]))
    monkeypatch.syspath_prepend(site)
    yield site
    for name in [name for name in sys.modules if name.split(".")[0] == "my_package"]:
        del sys.modules[name]


def interviews(folder: Path, questions: str) -> dict[str, str]:
    folder.mkdir()
    (folder / "ada.txt").write_text("Ada was a weaver – all her life.", encoding="utf-8")
    (folder / "ada.tsv").write_text(questions, encoding="utf-8")
    return {"path": str(folder)}


@pytest.mark.usefixtures("installed")
def test_the_adapter_of_the_page_is_found_by_its_kind(tmp_path: Path) -> None:
    options = interviews(tmp_path / "in", "What was she?\ta weaver\nWho?\tAda\n")
    corpus = open_corpus("interviews", options)
    first, second = corpus.entries()
    assert first.document == second.document
    assert (first.example.question, first.example.answers) == ("What was she?", ("a weaver",))
    summary = materialize_corpus(corpus, tmp_path / "out")
    assert (summary.name, summary.documents, summary.examples) == ("interviews", 1, 2)
    before = corpus.fingerprint()
    (tmp_path / "in" / "ada.tsv").write_text("Who?\tAda\n")
    assert open_corpus("interviews", options).fingerprint() != before


@pytest.mark.usefixtures("installed")
def test_its_faults_and_those_of_others_are_sentences(tmp_path: Path) -> None:
    options = interviews(tmp_path / "in", "What was she? a weaver\n")
    with pytest.raises(CorpusError, match=r"ada\.tsv, line 1 is not a question"):
        list(open_corpus("interviews", options).entries())
    with pytest.raises(CorpusError, match=r"'broken' \(nowhere:X\) cannot be imported"):
        open_corpus("broken", {})
    with pytest.raises(CorpusError, match=r"no corpus of kind 'absent'; there are .*interviews"):
        open_corpus("absent", {})


def test_it_is_no_longer_than_promised() -> None:
    assert len(block("python").splitlines()) <= 40
