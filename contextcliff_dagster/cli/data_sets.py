"""`--dataset`, `--task`: corpora by name, where their files are, which questions are asked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.cli.options import TASK_ALIASES
from contextcliff_dagster.contracts import CorpusError

if TYPE_CHECKING:
    from contextcliff_dagster.corpora.recognition import Recognised
    from contextcliff_dagster.studies import Study

_OF_TABLES = ("file", "folder")
_NEEDS_NO_PATH = "python-source"
_MADE = {"python-source": 6, "folder": 5, "reference": 1}
"""Default number of questions that a corpus makes on one document."""
_FOLDER = Path("data") / "corpora"


def corpus_kind(name: str | None) -> str | None:
    """The kind of corpus that ``--dataset name`` means, in any spelling of its name; else None.

    A study of that name comes first, and ``mixed`` needs a study file.
    """
    from contextcliff_dagster.studies import load_studies

    if name is None or name in load_studies():
        return None
    plain = {_plain(kind): kind for kind in _kinds()}
    return plain.get(_plain(name))


def named_corpus(kind: str, path: Path | None, questions: str | None) -> Recognised:
    """The corpus of this kind over ``path``, or over the copy in ``data/corpora/<kind>``.

    Raises:
        CorpusError: there is no copy; the sentence has its publisher's address. Or questions are
            given for a corpus that has its own.
    """
    from contextcliff_dagster.corpora.benchmarks.benchmark_table import PUBLISHED
    from contextcliff_dagster.corpora.recognition import Recognised

    if questions is not None and kind in (*PUBLISHED, _NEEDS_NO_PATH, "file"):
        raise CorpusError(
            f"--questions is for your own documents, and --dataset {kind} has its own: leave "
            "--questions out, or leave --dataset out and name your documents with --data."
        )
    options = {"questions": questions} if questions is not None else {}
    if path is not None:
        return Recognised(kind, {"path": str(path), **options})
    if kind == _NEEDS_NO_PATH:
        return Recognised(kind, {})
    for folder in _folders():
        if (folder / kind).exists():
            return Recognised(kind, {"path": str(folder / kind), **options})
    if kind not in PUBLISHED:
        raise CorpusError(f"--dataset {kind} needs its files: name them with --data PATH.")
    places = " or ".join(str(folder / kind) for folder in _folders())
    raise CorpusError(
        f"There is no copy of {kind} in {places}. It is "
        f"published at {PUBLISHED[kind]}: put its files there, or name them with --data PATH."
    )


def no_such_data_set(name: str, studies: Iterable[str]) -> CorpusError:
    """The error that there is no corpus ``name``, with those there are."""
    from contextcliff_dagster.corpora.benchmarks.benchmark_table import PUBLISHED

    own = [one for one in studies if not one.startswith("data-")]
    known = {_plain(one): one for one in (*PUBLISHED, _NEEDS_NO_PATH, *own)}
    near = difflib.get_close_matches(_plain(name), known, n=1)
    hint = f" Did you mean {known[near[0]]}?" if near else ""
    return CorpusError(
        f"There is no data set {name!r}.{hint} Readable are {', '.join([*own, _NEEDS_NO_PATH])}; "
        f"with their files in {_FOLDER}/NAME or after --data, {', '.join(PUBLISHED)}; "
        "and --data PATH reads your own documents."
    )


def with_tasks(kind: str, options: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """A corpus's options so that questions of ``tasks`` alone are asked; unchanged without any.

    The options differ by kind: of a table, one task is also the name of those of its rows that
    name none.
    """
    if not tasks:
        return dict(options)
    plain = sorted({TASK_ALIASES.get(task, task) for task in tasks})
    kept = {key: value for key, value in options.items() if key not in ("task", "tasks", "kinds")}
    several = "kinds" if kind == "python-source" else "tasks"
    one = {"task": plain[0]} if len(plain) == 1 else {}
    if kind in _OF_TABLES and options.get("questions") != "recall":
        return {**kept, **one, several: sorted({*tasks, *plain})}
    return {**kept, **(one or {several: plain})}


def with_questions(study: Study, most: int | None) -> Study:
    """The study with up to ``most`` questions on a document; unchanged with None.

    Corpora that make their questions make as many.
    """
    if most is None:
        return study

    def asked(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
        recall = kind == "folder" and options.get("questions") == "recall"
        name = {"reference": "questions", "python-source": "questions_per_document"}.get(kind)
        name = "questions_per_document" if recall else name
        made = options.get(name, _MADE.get(kind, 0)) if name else None
        # What is no whole number is refused where the corpus is opened.
        if name is None or type(made) is not int or made >= most:
            return dict(options)
        return {**options, name: most}

    return study.changed(
        corpus={"kind": study.corpus.kind, **study.corpus.changed_options(asked)},
        sampling={**dict(study.sampling), "questions_per_document": most},
    )


def _kinds() -> list[str]:
    from importlib.metadata import entry_points

    from contextcliff_dagster.corpora.registry import CORPUS_KINDS, ENTRY_POINT_GROUP

    own = [entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)]
    return [kind for kind in (*CORPUS_KINDS, *own) if kind not in ("reference", "mixed")]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _folders() -> list[Path]:
    """Where local copies are looked for: here, and next to the store."""
    from contextcliff_dagster.store import store_root

    here, beside = Path.cwd() / _FOLDER, store_root().parent / _FOLDER.name
    return list(dict.fromkeys((here, beside)))
