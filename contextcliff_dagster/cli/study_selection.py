"""Selection of study and campaign by options, and variants of studies that options define.

A study is shipped, read from a file, or created ad hoc over named data. An ad hoc study gets a
unique name, so that its manifest and records never mix with another's. Its definition is saved in
the store, so that `contextcliff report NAME` finds it without repeating the options, even in a copy
of the store.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from contextcliff_dagster.cli.ad_hoc_study import (
    corpus_kind,
    judged,
    no_such_data_set,
    over_data,
    with_questions,
    with_tasks,
)
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import DEFAULT_STUDY, TASK_ALIASES, StudyOptions
from contextcliff_dagster.contracts import CorpusError, StudyError
from contextcliff_dagster.inference.requests.recipe import check_template
from contextcliff_dagster.store import Store, write_atomic
from contextcliff_dagster.studies import (
    Study,
    find_study,
    hidden_study,
    kept_in,
    known_study,
    load_studies,
    self_contained,
    study_name,
)
from contextcliff_dagster.studies.study import (
    described,
    imported_mark,
    leave_needed,
    leave_record,
    refuse_without_leave,
    require_length_profile,
)
from contextcliff_dagster.user_files import read_file
from contextcliff_dagster.yaml_config import yaml_text


def profiled_campaigns(store: Store, study: str) -> list[str]:
    """Return the campaigns of ``study`` with a profile in the store, oldest first."""
    profiles = (store.study_dir(study) / "profiles").glob("*/*/cliffs.json")
    profiled = {path.parents[1].name for path in profiles}
    if not store.has_ledger:
        return sorted(profiled)
    from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    with Ledger.open(store.ledger) as ledger:
        begun = [campaign.name for campaign in list_campaigns(ledger, study)]
    return [*sorted(profiled - set(begun)), *(name for name in begun if name in profiled)]


def newest_campaign(store: Store, study: str) -> str | None:
    """Return the newest campaign of ``study``; sentinels do not count."""
    if not store.has_ledger:
        return None
    from contextcliff_dagster.inference.ledger.campaigns import SENTINEL, list_campaigns
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    with Ledger.open(store.ledger) as ledger:
        begun = [c.name for c in list_campaigns(ledger, study) if not c.name.startswith(SENTINEL)]
    return begun[-1] if begun else None


def profiled_campaign(store: Store, study: str, campaign: str | None = None) -> str:
    """Return ``campaign``, or the newest profiled one.

    Raises:
        StudyError: no campaign, or not ``campaign``, is profiled; the message lists those that are.
    """
    campaigns = profiled_campaigns(store, study)
    if not campaigns:
        if known := known_study(study):
            require_length_profile(known)
        raise not_measured(study, store, "length profile")
    if campaign is None:
        return campaigns[-1]
    if campaign not in campaigns:
        raise StudyError(
            f"Study {study!r} has no profile of a campaign {campaign!r} in {store.root}; it has "
            f"{', '.join(campaigns)}."
        )
    return campaign


def not_measured(study: str, store: Store, what: str) -> StudyError:
    """Return the error for a study that has no ``what`` in the store."""
    return StudyError(
        f"Study {study!r} has no {what} in {store.root}; measure it with "
        f"`contextcliff profile {study}`."
    )


REFERENCE_TASKS = ("lookup", "two_hop")

_PROMPT_BYTES = 1 << 18
"""Maximum size of a ``--prompt`` file, whose text becomes part of the study's definition."""


def with_synthetic_length(study: Study) -> Study:
    """Return the study with manufactured lengths allowed, under a name that says so.

    Raises:
        CorpusError: its corpus is not a benchmark, so the option does not apply.
    """
    from contextcliff_dagster.corpora.benchmarks.benchmark_table import BENCHMARKS
    from contextcliff_dagster.corpora.benchmarks.corpus import ALLOW_SYNTHETIC_LENGTH

    kind, options = study.corpus.kind, study.corpus_options
    whole = [{"kind": kind, **options}]
    parts = list(options.get("parts") or ()) if kind == "mixed" else whole
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
    """Return the study with the template in ``file``, under a name with the text's hash.

    Raises:
        StudyError: the file cannot be read, or is not a template.
    """
    try:
        text = read_file(file.expanduser(), _PROMPT_BYTES).decode()
    except OSError as error:
        why = error.strerror or error
        raise StudyError(f"--prompt {file} cannot be read: {why}; choose a text file.") from error
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
    """Return the study with ``replicates`` wordings per question, under a name that says so.

    Raises:
        StudyError: there are fewer wordings.
    """
    if replicates == study.prompt.replicates:
        return study
    return _copy(
        study,
        name=study_name(f"{study.name}-{replicates}-replicates"),
        prompt={**dict(study.prompt), "replicates": replicates},
    )


def with_more_questions(study: Study, most: int | None) -> Study:
    """Return the study with up to ``most`` questions per document, under a name that says so."""
    if most in (None, study.sampling.questions_per_document):
        return study
    copy = _copy(study, name=study_name(f"{study.name}-{most}-questions"))
    return with_questions(copy, most)


def for_tasks(study: Study, tasks: tuple[str, ...]) -> Study:
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
    if study.corpus.kind == "reference" and task == (study.task or "lookup"):
        return study
    if with_tasks(study.corpus.kind, study.corpus_options, tasks) == study.corpus_options:
        return study
    plain = re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-")
    if plain != task.replace("_", "-") or "-" in task:  # a hash tells what the name has lost
        digest = hashlib.sha256(task.encode()).hexdigest()[:6]
        plain = f"{plain}-{digest}" if plain else digest
    name = study_name(f"{study.name}-{plain}")
    same = known_study(name)
    if same is not None and same.corpus.kind == study.corpus.kind and same.task == task:
        return same
    return _asking(study, name, tasks)


def _asking(study: Study, name: str, tasks: tuple[str, ...]) -> Study:
    """Return the study restricted to ``tasks``, under another name."""
    options = with_tasks(study.corpus.kind, study.corpus_options, tasks)
    return _copy(study, name=name, corpus={"kind": study.corpus.kind, **options})


def _copy(study: Study, **changes: Any) -> Study:
    # The corpus by its absolute path: the copy may lie anywhere.
    corpus = {"kind": study.corpus.kind, **study.corpus_options}
    return study.changed(**{"corpus": corpus, **changes})


def choose_study(options: StudyOptions) -> Study:
    """Return the study that ``options`` describes; :func:`keep_definition` stores it.

    Raises:
        ContextCliffError: the study, corpus, task or model is unknown; the message lists the known.
    """
    given = {
        "STUDY": options.study,
        "--dataset": options.dataset,
        "--questions": options.questions,
    }
    for name, value in [*given.items(), *(("--task", task) for task in options.tasks)]:
        # An unset variable in a script must not select the default.
        if value is not None and not value.strip():
            raise StudyError(f"{name} is empty; use a value, or leave it out.")
    kind = corpus_kind(options.dataset)
    if options.questions is not None and options.data is None:
        raise StudyError(
            "--questions needs --data PATH, the folder of the documents; add it, or leave out "
            "--questions."
        )
    if options.columns and options.data is None:
        raise StudyError("--columns needs --data PATH, the table that has them; add it.")
    if options.models:
        from contextcliff_dagster.inference.models.models_file import get_model, load_models

        models = load_models()
        for name in options.models:
            get_model(name, models)
    if options.study is not None and (files := hidden_study(options.study)):
        say(
            f"Note: study {options.study!r} is {files[0]}, not {files[1]} of this store, which "
            "measures something else; rename your file to use the other."
        )
    made = options.data is not None or kind is not None
    study = over_data(options) if made else _by_name(options)
    if not study.has_corpus:
        _refuse_without_profile(study, options)
    if options.seed is not None:
        study = study.with_seed(options.seed)
    if options.allow_synthetic_length:
        study = with_synthetic_length(study)
    if options.prompt is not None:
        study = with_prompt(study, options.prompt)
    if options.replicates is not None:
        study = with_replicates(study, options.replicates)
    if options.study is not None and not options.models:
        _note_models_file_elsewhere(study, Path(options.study))
    return self_contained(study)


def _note_models_file_elsewhere(study: Study, file: Path) -> None:
    """Print a note about an unread models.yaml next to a study file in another folder."""
    from contextcliff_dagster.inference.models.models_file import load_models

    models_file, known = file.absolute().parent / "models.yaml", load_models()
    if (
        file.suffix in (".yaml", ".yml")
        and models_file.is_file()
        and any(model not in known for model in study.models)
    ):
        say(
            f"Note: {models_file} is read only in its own folder; run the command there, or set "
            "CONTEXTCLIFF_MODELS to that file."
        )


def agreed(study: Study, options: StudyOptions, *, frozen: bool = False) -> Study:
    """Return the study with the user's consent to its file reads and calls; ask on a terminal.

    ``frozen``: its sample exists, so neither corpus nor tokenizer is opened. `keep_definition`
    stores the consent.

    Raises:
        StudyError: the user refuses, or there is no terminal to ask on.
    """
    part = "prompt" if frozen else ""
    needed = leave_needed(study, part)
    what = described(study, needed)
    doubtful = [key for key in needed if not (options.data and key.startswith("corpus."))]
    if needed and (options.trust_study or not doubtful):
        say(f"Note: {what}.")
    elif needed and not (sys.stdin.isatty() and sys.stderr.isatty()):
        refuse_without_leave(study, part)
    elif needed and not click.confirm(f"{what[0].upper()}{what[1:]}. Allow that?", err=True):
        raise StudyError(f"Not allowed, so nothing of study {study.name!r} was read.")
    return study.with_leave(study.leave.also(needed))


def _refuse_without_profile(study: Study, options: StudyOptions) -> None:
    given = {
        "--prompt": options.prompt,
        "--seed": options.seed,
        "--replicates": options.replicates,
        "--tolerance": options.tolerance,
        "--score": options.score or None,
    }
    if named := [name for name, value in given.items() if value is not None]:
        raise StudyError(
            f"Study {study.name!r} names no corpus, so it has no length profile, which "
            f"{' and '.join(named)} would change; leave that out."
        )


def campaign_shared(study: Study, options: StudyOptions, store: Store) -> str | None:
    """Return the campaign that a study with replicates shares with the study without them.

    That is the newest campaign without replicates, if ``study`` has none yet; otherwise None.
    """
    from contextcliff_dagster.inference.ledger.campaigns import current_campaign, list_campaigns
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    if options.replicates is None or not store.has_ledger:
        return None
    base = choose_study(replace(options, replicates=None))
    with Ledger.open(store.ledger) as ledger:
        if list_campaigns(ledger, study.name) or not list_campaigns(ledger, base.name):
            return None
        return current_campaign(ledger, base.name)


def as_asked(study: Study, options: StudyOptions) -> Study:
    """Return the study with the models, sample size and limit of ``options``.

    Their tolerance and score apply, too; both only change how answers are judged.
    """
    study = judged(study, options)
    if options.samples_per_bin is not None:
        study = study.with_samples(options.samples_per_bin)
    if options.ttft_limit is not None:
        study = study.changed(latency={"ttft_ms_p95": options.ttft_limit})
    return study.with_models(options.models) if options.models else study


def keep_definition(study: Study, store: Store) -> None:
    """Write the study's YAML to the store unless a study folder has the same definition.

    For an imported study, also write what it may read.

    Raises:
        StoreError: the store cannot be written.
    """
    known = known_study(study.name)
    if known is not None and known.model_dump() == study.model_dump():
        if known.leave.home is None or study.leave.allowed <= known.leave.allowed:
            return
        study = study.with_leave(study.leave.also(known.leave.allowed))
    text = yaml_text(study.model_dump(mode="json", exclude_none=True))
    path = kept_in(store.root) / f"{study.name}.yaml"
    if study.leave.home is not None:  # before the definition: it is never there without its mark
        write_atomic(imported_mark(path), leave_record(study))
    header = "# Kept by contextcliff for its commands; edit a copy, not this file.\n"
    write_atomic(path, (header + text).encode())
    if study.leave.home is None:
        imported_mark(path).unlink(missing_ok=True)


def _by_name(options: StudyOptions) -> Study:
    dataset = options.dataset
    if dataset not in (None, DEFAULT_STUDY):
        studies = load_studies()
        named = [
            key
            for key, study in studies.items()
            if study.has_corpus and study.corpus.kind != "reference"
        ]
        if dataset not in named:
            raise no_such_data_set(dataset, [DEFAULT_STUDY, *named])
    study = find_study(options.study or dataset or DEFAULT_STUDY)
    fits = study.corpus.kind == "reference" if dataset == DEFAULT_STUDY else study.name == dataset
    if dataset is not None and not fits:
        raise StudyError(
            f"Study {study.name!r} has its own corpus, so --dataset {dataset} does not apply; "
            "leave one of the two out."
        )
    return with_more_questions(for_tasks(study, options.tasks), options.questions_per_document)
