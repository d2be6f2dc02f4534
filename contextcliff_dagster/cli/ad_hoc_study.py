"""A study made on the spot over what `--data` names: a table, a benchmark, or documents."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.cli.data_sets import corpus_kind, named_corpus, with_questions, with_tasks
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.measuring.options import PRIMARY_SCORES
from contextcliff_dagster.cli.options import DEFAULT_STUDY, TASK_ALIASES, StudyOptions
from contextcliff_dagster.contracts import CorpusError, StudyError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from contextcliff_dagster.studies import Study

_SCORING = {
    "quality": {"scorer": "choice", "primary": "em"},
    "longbench-v2": {"scorer": "choice", "primary": "em"},
    "longbench-pro": {"primary": "contained"},  # replies begin with [Answer]
    "python-source": {"primary": "contained"},
}
_QUESTIONS_PER_DOCUMENT = 5
"""Of documents as they lie in a folder: there are fewer of them than of a benchmark's, and several
questions on each. Those of one document count together in every interval."""


LOOKED_AT = 120
"""Questions, the first of the data: they decide what kind of answers these have."""
_ROOM_TO_EXPLAIN = 256
"""Output tokens: whoever explains first reaches the answer."""
_DOCUMENTS_PER_BIN = 6
"""One more than a bin needs: some files turn out empty, or the same as another."""


def over_data(options: StudyOptions, *, tell: bool = True) -> Study:
    """The base study's bins and sampling over what ``options.data`` or ``dataset`` names.

    Lengths are counted with the first model's own tokenizer where models.yaml names it. Scoring is
    token-F1, which equals exact match for one-word answers and shows a slow loss for longer ones;
    for verbatim recall whether the words are in the reply. ``tell``: a note says what kind of
    answers was found, and what follows from it.

    Raises:
        ContextCliffError: the options contradict each other, or it is not clear what the path is.
    """
    from pathlib import Path

    from contextcliff_dagster.corpora.readers.download import is_url, local_copy
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
        source = recognise(path, questions)
    path = path or Path(source.options.get("path", source.kind))
    recall = questions == "recall"
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:30] or "file"
    tasks = sorted({TASK_ALIASES.get(task, task) for task in options.tasks})
    label = re.sub(r"[^a-z0-9]+", "-", "-".join(tasks).lower())[:16].strip("-")
    label = "recall" if recall else label
    lengths = tokenizer if base.corpus.kind == "reference" else base.tokenizer
    # All that the sample depends on: what differs in one of these never shares a manifest.
    task = tasks[0] if len(tasks) == 1 else tasks or None
    parts: list[Any] = [str(path), task, lengths, base.name, *([questions] if questions else [])]
    several = source.kind == "folder" and base.sampling.questions_per_document == 1
    usual = _QUESTIONS_PER_DOCUMENT if several else base.sampling.questions_per_document
    most = options.questions_per_document or usual
    parts += [most] if most != usual else []
    parts += [kind] if kind is not None and options.data is not None else []
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:6]
    corpus = {"kind": source.kind, **with_tasks(source.kind, source.options, options.tasks)}
    # A prompt that begins the answer with the question wants the bare beginning of the statement.
    if recall and "{question}" in (base.prompt.answer_prefix or ""):
        corpus["recall_question"] = "beginning"
    name = f"data-{stem}-{digest}-{label}".rstrip("-")
    changes: dict[str, Any] = {
        "name": name,
        "description": f"Verbatim recall of {path}." if recall else f"Examples of {path}.",
        "corpus": corpus,
        "target": None,
        "models": models or tuple(base.models),
    }
    kept = _kept(name)  # what was measured in other bins, or asked otherwise, stays paid
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
    study = with_questions(base.changed(**changes), most if most != usual else None)
    return judged(study, options)


def judged(study: Study, options: StudyOptions) -> Study:
    """The study with the tolerance and the score that ``options`` name; the sample is the same."""
    if options.tolerance is not None:
        study = study.changed(analysis={**dict(study.analysis), "tolerance": options.tolerance})
    keys = {("primary" if name in PRIMARY_SCORES else "scorer"): name for name in options.score}
    return study.changed(scoring={**dict(study.scoring), **keys}) if keys else study


def _kept(name: str) -> Study | None:
    """The study of this name that is in the store."""
    from contextcliff_dagster.store import store_root
    from contextcliff_dagster.studies import kept_in, load_study

    path = kept_in(store_root()) / f"{name}.yaml"
    return load_study(path) if path.is_file() else None


def _asked(
    kind: str, corpus: Mapping[str, Any], base: Study, *, recall: bool, tell: bool
) -> dict[str, Any]:
    """What is asked for, how it is judged, and what guessing scores, by the answers' type."""
    from contextcliff_dagster.corpora.registry import open_corpus
    from contextcliff_dagster.scoring.answer_types import (
        NAMED_AND_SCORED,
        guessing,
        instruction_of,
        study_type,
    )
    from contextcliff_dagster.scoring.published_rules import RULE

    prompt = {**base.prompt.model_dump(), "max_output_tokens": 96 if recall else 64}
    scoring = {"primary": "contained"} if recall else _SCORING.get(kind, {"primary": "f1"})
    if recall or kind not in ("file", "folder"):
        return {"prompt": prompt, "scoring": scoring}
    options = {key: value for key, value in corpus.items() if key != "kind"}
    texts: dict[str, str] = {}
    examples = []
    with suppress(CorpusError):  # the sentence comes with the sample
        for entry in islice(open_corpus(kind, options).entries(), LOOKED_AT):
            if RULE in entry.example.metadata:
                return {"prompt": prompt, "scoring": scoring}
            examples.append(entry.example)
            texts[entry.example.document_id] = entry.document.text
    if not examples:
        return {"prompt": prompt, "scoring": scoring}
    found, labels, why = study_type(examples, texts.__getitem__)
    instruction, (name, how) = instruction_of(found, labels), NAMED_AND_SCORED[found]
    if tell:
        say(
            f"Note: the accepted answers are {name} ({why}). The prompt ends with {instruction!r} "
            f"Replies are scored {how}. `prompt: template` and `scoring` of a study override this "
            "(--prompt, --score)."
        )
    scoring = {"primary": "f1" if found == "free" else "em", "scorer": "typed"}
    chance = guessing(found, labels, examples)
    template = f"{{document}}\n\n{{question}}\n{instruction}"
    return {
        "prompt": {**prompt, "template": template, "max_output_tokens": _ROOM_TO_EXPLAIN},
        "scoring": {**scoring, "labels": labels} if labels else scoring,
        "analysis": {**dict(base.analysis), "chance": chance},
    }


def _bins(kind: str, corpus: Mapping[str, Any], most: int) -> int:
    """As many bins as the documents support, ``most`` at most."""
    from contextcliff_dagster.corpora.folder import FolderCorpus
    from contextcliff_dagster.corpora.registry import open_corpus

    options = {key: value for key, value in corpus.items() if key != "kind"}
    documents = enough = most * _DOCUMENTS_PER_BIN
    if kind == "folder":
        documents = FolderCorpus(options).count_to_read()  # without reading them
    else:
        with suppress(CorpusError):  # the sentence comes with the sample
            documents = sum(1 for _ in islice(open_corpus(kind, options).documents(), enough))
    return min(most, max(2, documents // _DOCUMENTS_PER_BIN))


def _questions(name: str | None, path: Path) -> str | None:
    """``recall``, or the file of questions: from here, or else from the folder of documents.

    Raises:
        StudyError: there is no such file.
    """
    from pathlib import Path

    if name is None or name == "recall":
        return name
    in_folder = (path if path.is_dir() else path.parent) / name
    for file in (Path(name).expanduser().absolute(), in_folder):
        if file.is_file():
            return str(file)
    raise StudyError(
        f"--questions {name}: there is no such file here or in {in_folder.parent}; name a table of "
        "questions, or `recall`."
    )
