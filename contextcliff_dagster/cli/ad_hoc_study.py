"""Ad hoc studies of the data given by `--data` or `--dataset`."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.measuring.options import PRIMARY_SCORES
from contextcliff_dagster.cli.options import DEFAULT_STUDY, TASK_ALIASES, StudyOptions
from contextcliff_dagster.contracts import CorpusError, StudyError
from contextcliff_dagster.store import store_root

if TYPE_CHECKING:
    from contextcliff_dagster.corpora.recognition import Recognised
    from contextcliff_dagster.studies import Study

_OF_TABLES = ("file", "folder")
_NEEDS_NO_PATH = "python-source"
_MADE = {"python-source": 6, "folder": 5, "reference": 1}
"""Default number of questions that a corpus generates per document."""
_FOLDER = Path("data") / "corpora"


def corpus_kind(name: str | None) -> str | None:
    """Return the kind of corpus that ``--dataset name`` means, whatever its spelling, or None.

    A study with that name takes precedence, and ``mixed`` needs a study file.
    """
    from contextcliff_dagster.studies import known_study

    if name is None or known_study(name) is not None:
        return None
    plain = {_plain(kind): kind for kind in _kinds()}
    return plain.get(_plain(name))


def named_corpus(kind: str, path: Path | None, questions: str | None) -> Recognised:
    """Return the corpus of type ``kind`` over ``path``, or its copy in ``data/corpora/<kind>``.

    Raises:
        CorpusError: there is no copy (the message gives the publisher's address), or questions are
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
    """Return the error for an unknown corpus ``name``, listing the known ones."""
    from contextcliff_dagster.corpora.benchmarks.benchmark_table import PUBLISHED

    named = [study for study in studies if not study.startswith("data-")]
    known = {_plain(data_set): data_set for data_set in (*PUBLISHED, _NEEDS_NO_PATH, *named)}
    near = difflib.get_close_matches(_plain(name), known, n=1)
    hint = f" Did you mean {known[near[0]]}?" if near else ""
    return CorpusError(
        f"There is no data set {name!r}.{hint} Available: {', '.join([*named, _NEEDS_NO_PATH])}; "
        f"with their files in {_FOLDER}/NAME or given with --data: {', '.join(PUBLISHED)}. "
        "--data PATH reads your own documents."
    )


def with_tasks(kind: str, options: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """Restrict a corpus's options to questions of ``tasks``; leave them unchanged without tasks.

    The options differ by kind: for a table, a single task also becomes the task of rows without
    one.
    """
    if not tasks:
        return dict(options)
    plain = sorted({TASK_ALIASES.get(task, task) for task in tasks})
    kept = {key: value for key, value in options.items() if key not in ("task", "tasks", "kinds")}
    several = "kinds" if kind == "python-source" else "tasks"
    single = {"task": plain[0]} if len(plain) == 1 else {}
    if kind in _OF_TABLES and options.get("questions") != "recall":
        return {**kept, **single, several: sorted({*tasks, *plain})}
    return {**kept, **(single or {several: plain})}


def with_questions(study: Study, most: int | None) -> Study:
    """Return the study with up to ``most`` questions per document, or unchanged if None.

    Corpora that generate their questions generate that many.
    """
    if most is None:
        return study

    def with_count(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
        recall = kind == "folder" and options.get("questions") == "recall"
        name = {"reference": "questions", "python-source": "questions_per_document"}.get(kind)
        name = "questions_per_document" if recall else name
        count = options.get(name, _MADE.get(kind, 0)) if name else None
        # A value that is not an integer is refused when the corpus is opened.
        if name is None or type(count) is not int or count >= most:
            return dict(options)
        return {**options, name: most}

    return study.changed(
        corpus={"kind": study.corpus.kind, **study.corpus.changed_options(with_count)},
        sampling={**dict(study.sampling), "questions_per_document": most},
    )


def _kinds() -> list[str]:
    from importlib.metadata import entry_points

    from contextcliff_dagster.corpora.registry import CORPUS_KINDS, ENTRY_POINT_GROUP

    registered = [entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)]
    return [kind for kind in (*CORPUS_KINDS, *registered) if kind not in ("reference", "mixed")]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _folders() -> list[Path]:
    """Return the folders to search for local copies: the working one, and one by the store."""
    here, beside = Path.cwd() / _FOLDER, store_root().parent / _FOLDER.name
    return list(dict.fromkeys((here, beside)))


_SCORING = {
    "quality": {"scorer": "choice", "primary": "em"},
    "longbench-v2": {"scorer": "choice", "primary": "em"},
    "longbench-pro": {"primary": "contained"},  # replies begin with [Answer]
    "python-source": {"primary": "contained"},
}
_QUESTIONS_PER_DOCUMENT = 5
"""Default questions per document of a folder, which has fewer documents than a benchmark.
Questions on the same document count as one cluster in every interval."""


LOOKED_AT = 120
"""Number of questions, from the start of the data, that determine the answers' type."""
_ROOM_TO_EXPLAIN = 256
"""Output tokens that let a model explain before it answers."""
_DOCUMENTS_PER_BIN = 6
"""Documents per bin, one more than needed, because some files are empty or duplicates."""


def over_data(options: StudyOptions, *, tell: bool = True) -> Study:
    """Return a study of ``options.data`` or ``dataset`` with the base study's bins and sampling.

    Lengths are counted with the first model's own tokenizer if models.yaml names it. The score is
    token F1, which equals exact match for one-word answers and shows gradual losses for longer
    ones; for verbatim recall, it is whether the reply contains the words. ``tell`` prints a note on
    the type of answers detected and its consequences.

    Raises:
        ContextCliffError: the options contradict each other, or the path's format is unclear.
    """
    from contextcliff_dagster.corpora.readers.rows import is_url, local_copy
    from contextcliff_dagster.corpora.recognition import recognise
    from contextcliff_dagster.inference.models.models_file import load_models
    from contextcliff_dagster.studies import find_study

    kind = corpus_kind(options.dataset)
    if options.dataset is not None and kind is None:
        raise StudyError("--data and --dataset both name the corpus; leave one of the two out.")
    base = find_study(options.study or DEFAULT_STUDY)
    models = options.models or (base.models if options.study else ())
    entries = load_models() if models else {}
    tokenizer = "tiktoken:o200k_base"
    for name in models[:1]:
        tokenizer = entries[name].tokenizer or tokenizer
    path = questions = None
    if options.data is not None:
        data = str(options.data)
        path = local_copy(data) if is_url(data) else Path(data).expanduser().absolute()
        questions = _questions(options.questions, path)
    if kind is not None:
        source = named_corpus(kind, path, questions)
    else:
        assert path is not None
        source = recognise(path, questions, options.columns)
    if options.columns and "columns" not in source.options:
        raise StudyError(f"--dataset {kind} has columns of its own; leave --columns out.")
    path = path or Path(source.options.get("path", source.kind))
    recall = questions == "recall"
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:30] or "file"
    tasks = sorted({TASK_ALIASES.get(task, task) for task in options.tasks})
    label = re.sub(r"[^a-z0-9]+", "-", "-".join(tasks).lower())[:16].strip("-")
    label = "recall" if recall else label
    lengths = tokenizer if base.corpus.kind == "reference" else base.tokenizer
    # Everything the sample depends on: studies that differ in any of these share no manifest.
    task = tasks[0] if len(tasks) == 1 else tasks or None
    parts: list[Any] = [str(path), task, lengths, base.name, *([questions] if questions else [])]
    several = source.kind == "folder" and base.sampling.questions_per_document == 1
    default = _QUESTIONS_PER_DOCUMENT if several else base.sampling.questions_per_document
    most = options.questions_per_document or default
    parts += [most] if most != default else []
    parts += [kind] if kind is not None and options.data is not None else []
    parts += [dict(options.columns)] if options.columns else []
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:6]
    corpus = with_tasks(source.kind, source.options, options.tasks)
    # A prompt that begins the answer with the question needs only the statement's beginning.
    if recall and "{question}" in (base.prompt.answer_prefix or ""):
        corpus["recall_question"] = "beginning"
    name = f"data-{stem}-{digest}-{label}".rstrip("-")
    changes: dict[str, Any] = {
        "name": name,
        "description": f"Verbatim recall of {path}." if recall else f"Examples of {path}.",
        "corpus": {"kind": source.kind, **corpus},
        "target": None,
        "models": models or tuple(base.models),
    }
    kept = _kept(name)  # so that answers already paid for still fit bins and prompts
    changes["sampling"] = {**dict(base.sampling), "questions_per_document": most}
    if base.bins.kind == "quantile":
        count = kept.bins.count if kept else _bins(source.kind, corpus, base.bins.count)
        changes["bins"] = {**dict(base.bins), "count": count}
    if base.corpus.kind == "reference":
        changes["tokenizer"] = tokenizer
        if kept:
            changes |= {"prompt": kept.prompt.model_dump(), "scoring": kept.scoring.model_dump()}
            changes["analysis"] = {**dict(base.analysis), "chance": kept.analysis.chance}
        elif tokenizer != "reference":
            tell = tell and options.prompt is None and not options.score
            changes |= _asked(source.kind, corpus, base, recall=recall, tell=tell)
        else:
            changes["scoring"] = _SCORING.get(source.kind, {"primary": "f1"})
    study = with_questions(base.changed(**changes), most if most != default else None)
    return judged(study, options)


def judged(study: Study, options: StudyOptions) -> Study:
    """Return the study with the tolerance and score in ``options``; the sample stays the same."""
    if options.tolerance is not None:
        study = study.changed(analysis={**dict(study.analysis), "tolerance": options.tolerance})
    keys = {("primary" if name in PRIMARY_SCORES else "scorer"): name for name in options.score}
    return study.changed(scoring={**dict(study.scoring), **keys}) if keys else study


def _kept(name: str) -> Study | None:
    """Return the study of this name from the store, or None."""
    from contextcliff_dagster.studies import kept_in, load_study

    path = kept_in(store_root()) / f"{name}.yaml"
    return load_study(path) if path.is_file() else None


def _asked(
    kind: str, corpus: Mapping[str, Any], base: Study, *, recall: bool, tell: bool
) -> dict[str, Any]:
    """Return the prompt, the scoring and the chance score for the answers' type."""
    from contextcliff_dagster.corpora.registry import open_corpus
    from contextcliff_dagster.scoring.scorers import RULE
    from contextcliff_dagster.scoring.typed import (
        NAMED_AND_SCORED,
        guessing,
        instruction_of,
        study_type,
    )

    prompt = {**base.prompt.model_dump(), "max_output_tokens": 96 if recall else 64}
    scoring = {"primary": "contained"} if recall else _SCORING.get(kind, {"primary": "f1"})
    if recall or kind not in ("file", "folder"):
        return {"prompt": prompt, "scoring": scoring}
    texts: dict[str, str] = {}
    examples = []
    with suppress(CorpusError):  # the sentence comes with the sample
        for entry in islice(open_corpus(kind, corpus).entries(), LOOKED_AT):
            if RULE in entry.example.metadata:
                return {"prompt": prompt, "scoring": scoring}
            examples.append(entry.example)
            texts[entry.example.document_id] = entry.document.text
    if not examples:
        return {"prompt": prompt, "scoring": scoring}
    answer_type, labels, why = study_type(examples, texts.__getitem__)
    instruction, (name, how) = instruction_of(answer_type, labels), NAMED_AND_SCORED[answer_type]
    if tell:
        say(
            f"Note: the accepted answers are {name} ({why}). The prompt ends with {instruction!r} "
            f"Replies are scored {how}. `prompt: template` and `scoring` of a study override this "
            "(--prompt, --score)."
        )
    scoring = {"primary": "f1" if answer_type == "free" else "em", "scorer": "typed"}
    chance = guessing(answer_type, labels, examples)
    template = f"{{document}}\n\n{{question}}\n{instruction}"
    return {
        "prompt": {**prompt, "template": template, "max_output_tokens": _ROOM_TO_EXPLAIN},
        "scoring": {**scoring, "labels": labels} if labels else scoring,
        "analysis": {**dict(base.analysis), "chance": chance},
    }


def _bins(kind: str, corpus: Mapping[str, Any], most: int) -> int:
    """Return how many bins the documents can support, at most ``most``."""
    from contextcliff_dagster.corpora.folder import FolderCorpus
    from contextcliff_dagster.corpora.registry import open_corpus

    documents = enough = most * _DOCUMENTS_PER_BIN
    if kind == "folder":
        documents = FolderCorpus(corpus).count_to_read()  # without reading them
    else:
        with suppress(CorpusError):  # the sentence comes with the sample
            documents = sum(1 for _ in islice(open_corpus(kind, corpus).documents(), enough))
    return min(most, max(2, documents // _DOCUMENTS_PER_BIN))


def _questions(name: str | None, path: Path) -> str | None:
    """Return ``recall``, or the questions file, searched for here and in the documents' folder."""
    if name is None or name == "recall":
        return name
    in_folder = (path if path.is_dir() else path.parent) / name
    for file in (Path(name).expanduser().absolute(), in_folder):
        if file.is_file():
            return str(file)
    raise StudyError(
        f"--questions {name}: there is no such file here or in {in_folder.parent}; choose a table "
        "of questions, or `recall`."
    )
