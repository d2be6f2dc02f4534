"""The studies that options make of a study: other questions, another prompt, under another name."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.cli.data_sets import with_questions, with_tasks
from contextcliff_dagster.cli.options import TASK_ALIASES
from contextcliff_dagster.contracts import CorpusError, StudyError

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.studies import Study

REFERENCE_TASKS = ("lookup", "two_hop")

_PROMPT_BYTES = 1 << 18
"""Of ``--prompt``: the text becomes part of the study's definition, which has a limit, too."""


def with_synthetic_length(study: Study) -> Study:
    """The study with manufactured lengths allowed, under a name that says so.

    Raises:
        CorpusError: its corpus is no benchmark, so there is nothing to allow.
    """
    from contextcliff_dagster.corpora.benchmarks.benchmark_table import BENCHMARKS
    from contextcliff_dagster.corpora.benchmarks.corpus import ALLOW_SYNTHETIC_LENGTH
    from contextcliff_dagster.studies import study_name

    kind, options = study.corpus.kind, study.corpus_options
    own = [{"kind": kind, **options}]
    parts = list(options.get("parts") or ()) if kind == "mixed" else own
    benchmarks = [
        part for part in parts if isinstance(part, dict) and part.get("kind") in BENCHMARKS
    ]
    if not benchmarks:
        raise CorpusError(
            f"--allow-synthetic-length is for public benchmarks; study {study.name!r} reads a "
            f"corpus of kind {kind!r}, so leave it out."
        )
    if all(part.get(ALLOW_SYNTHETIC_LENGTH) for part in benchmarks):
        return study
    allowed = [
        {**part, ALLOW_SYNTHETIC_LENGTH: True} if part in benchmarks else part for part in parts
    ]
    corpus = {"kind": kind, **options, "parts": allowed} if kind == "mixed" else allowed[0]
    return _copy(study, name=study_name(f"{study.name}-synthetic-length"), corpus=corpus)


def with_prompt(study: Study, file: Path) -> Study:
    """The study that asks with the template in ``file``, under a name with the text's hash.

    Raises:
        StudyError: it cannot be read, or is no template.
    """
    from contextcliff_dagster.inference.requests.recipe import check_template
    from contextcliff_dagster.studies import study_name
    from contextcliff_dagster.user_files import read_file

    try:
        text = read_file(file.expanduser(), _PROMPT_BYTES).decode()
    except OSError as error:
        why = error.strerror or error
        raise StudyError(f"--prompt {file} cannot be read: {why}; name a text file.") from error
    except (ValueError, RuntimeError) as error:
        raise StudyError(f"--prompt {file} is not readable UTF-8 text: {error}.") from error
    try:
        check_template(text)
    except StudyError as error:
        raise StudyError(f"--prompt {file}: {error}") from None
    if text == study.prompt.template:
        return study
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return _copy(
        study,
        name=study_name(f"{study.name}-prompt-{digest}"),
        prompt={**dict(study.prompt), "template": text},
    )


def with_replicates(study: Study, replicates: int) -> Study:
    """The study with so many wordings of each question, under a name that says so.

    Raises:
        StudyError: there are not so many wordings.
    """
    from contextcliff_dagster.studies import study_name

    if replicates == study.prompt.replicates:
        return study
    return _copy(
        study,
        name=study_name(f"{study.name}-{replicates}-replicates"),
        prompt={**dict(study.prompt), "replicates": replicates},
    )


def with_more_questions(study: Study, most: int | None) -> Study:
    """The study with up to ``most`` questions on a document, under a name that says so."""
    from contextcliff_dagster.studies import study_name

    if most in (None, study.sampling.questions_per_document):
        return study
    copy = _copy(study, name=study_name(f"{study.name}-{most}-questions"))
    return with_questions(copy, most)


def for_tasks(study: Study, tasks: tuple[str, ...]) -> Study:
    from contextcliff_dagster.studies import load_studies, study_name

    if not tasks:
        return study
    named = sorted({TASK_ALIASES.get(task, task) for task in tasks})
    for task in named:
        if study.corpus.kind == "reference" and task not in REFERENCE_TASKS:
            raise StudyError(
                f"The reference corpus has no task {task!r}; it has {', '.join(REFERENCE_TASKS)} "
                "(multi_hop_qa means two_hop)."
            )
    if len(named) > 1:
        plain = re.sub(r"[^a-z0-9]+", "-", "-".join(named).lower()).strip("-")[:40]
        digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:6]
        return _asking(study, study_name(f"{study.name}-{plain}-{digest}"), tasks)
    task = named[0]
    default = "lookup" if study.corpus.kind == "reference" else task
    if task == (study.task or default):
        return study
    plain = re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-")
    if plain != task.replace("_", "-") or "-" in task:  # a hash tells what the name has lost
        digest = hashlib.sha256(task.encode()).hexdigest()[:6]
        plain = f"{plain}-{digest}" if plain else digest
    name = study_name(f"{study.name}-{plain}")
    same = load_studies().get(name)
    if same is not None and same.corpus.kind == study.corpus.kind and same.task == task:
        return same
    return _asking(study, name, tasks)


def _asking(study: Study, name: str, tasks: tuple[str, ...]) -> Study:
    """The study over ``tasks`` alone, under another name."""
    options = with_tasks(study.corpus.kind, study.corpus_options, tasks)
    return _copy(study, name=name, corpus={"kind": study.corpus.kind, **options})


def _copy(study: Study, **changes: Any) -> Study:
    # The corpus with an absolute path: the copy may lie anywhere.
    corpus = {"kind": study.corpus.kind, **study.corpus_options}
    return study.changed(**{"corpus": corpus, **changes})
