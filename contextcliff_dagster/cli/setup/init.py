"""`init` and `models add`: create entries and studies, checking everything before writing."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.cli.ad_hoc_study import over_data
from contextcliff_dagster.cli.display.output import print_either
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.measuring.options import tolerance_share
from contextcliff_dagster.cli.options import StudyOptions, common_options, share_option
from contextcliff_dagster.cli.setup.endpoint import (
    EndpointOptions,
    ask,
    ask_shortest,
    ask_until,
    can_ask,
    choose,
    chosen_endpoint,
    chosen_model,
    endpoint_options,
    new_entry,
    nothing_written_on_interruption,
    same_entry,
    tried,
    typed,
)
from contextcliff_dagster.contracts import CorpusError, StudyError
from contextcliff_dagster.reporting.wording import count

if TYPE_CHECKING:
    from contextcliff_dagster.inference.execution.single_request import Trial
    from contextcliff_dagster.inference.models.models_file import ModelEntry, NewEntry
    from contextcliff_dagster.studies import Study


_TOLERANCES = (0.3, 0.2, 0.1)
_LEAST_SCORES = (None, 0.5, 0.8, 0.9)
_ROOM_TO_REASON = 4096
"""Output tokens for a model that reasons before it answers."""
_LEAST_DOCUMENTS = 5
_LOOKED_AT = 12
"""PDF files whose text is looked for, the smallest first."""


@dataclass(frozen=True, slots=True)
class StudyWishes:
    """The options of `init`; an option that was not given is None."""

    data: str | None = None
    questions: str | None = None
    tolerance: float | None = None
    min_score: float | None = None
    name: str | None = None


def with_answers(wishes: StudyWishes) -> StudyWishes:
    """Return the wishes completed by questions on the terminal."""
    has_data = wishes.data is not None  # asking again would not help
    data = _asked_data(wishes) if has_data else ask_until(lambda: _asked_data(wishes))
    wishes = replace(wishes, data=data.data, questions=data.questions)
    if wishes.tolerance is None:
        wishes = replace(wishes, tolerance=_asked_tolerance())
    if wishes.min_score is None:
        wishes = replace(wishes, min_score=_asked_least_score())
    if wishes.name is None:
        wishes = replace(wishes, name=ask_until(lambda: _asked_name(wishes)))
    return wishes


def with_defaults(wishes: StudyWishes) -> StudyWishes:
    """Return the wishes, with verbatim recall if there is no table of questions."""
    if wishes.questions is None and lacks_questions(wishes):
        say("Note: no table of questions, so verbatim recall is asked: copying, not understanding.")
        return replace(wishes, questions="recall")
    return wishes


def lacks_questions(wishes: StudyWishes) -> bool:
    """Return whether the data are documents without a table of questions."""
    from contextcliff_dagster.corpora.folder.questions import find_table
    from contextcliff_dagster.corpora.readers.rows import is_url
    from contextcliff_dagster.corpora.recognition import recognise

    data = wishes.data or ""
    if wishes.questions is not None or is_url(data):
        return False
    path = Path(data).expanduser().absolute()
    recognised = recognise(path) if path.exists() else None
    if recognised is None or recognised.kind != "folder" or "questions" in recognised.options:
        return False
    return find_table(path if path.is_dir() else path.parent, path) is None


def new_study(wishes: StudyWishes, model: str, tokenizer: str | None, *, reasons: bool) -> Study:
    """Return a study of ``model`` on the data; ``reasons``: the model reasons before it answers.

    Raises:
        ContextCliffError: the data are unreadable or too few, or the name is invalid.
    """
    study = over_data(StudyOptions(study=None, data=wishes.data, questions=wishes.questions))
    _documents(study)
    prompt = dict(study.prompt)
    if reasons:
        prompt["max_output_tokens"] = _ROOM_TO_REASON
    options = dict(study.corpus.options)
    for key in ("path", "questions"):
        if key in options:
            options[key] = _relative(options[key], folder())
    tolerance = wishes.tolerance if wishes.tolerance is not None else _TOLERANCES[0]
    return study.changed(
        name=wishes.name or default_name(wishes),
        description=f"Answers of {model} on {Path(str(wishes.data)).name}, by length.",
        corpus={"kind": study.corpus.kind, **options},
        models=(model,),
        tokenizer=tokenizer or study.tokenizer,
        prompt=prompt,
        analysis={
            **dict(study.analysis),
            "tolerance": tolerance,
            "min_score": wishes.min_score,
        },
    )


def default_name(wishes: StudyWishes) -> str:
    """Return an unused study name derived from the data's name."""
    from contextcliff_dagster.studies import load_studies, study_name

    stem = unicodedata.normalize("NFKD", Path(str(wishes.data).rstrip("/")).stem.lower())
    stem = re.sub(r"[\u0300-\u036f]", "", stem)  # a letter stays without its accent
    plain = study_name(re.sub(r"[^a-z0-9]+", "-", stem).strip("-") or "study")
    names = [plain, *(study_name(f"{plain}-{number}") for number in range(2, 100))]
    known = load_studies()
    return next((n for n in names if n not in known and not file_of(n).exists()), plain)


def folder() -> Path:
    """Return the folder of the user's studies: ``CONTEXTCLIFF_STUDIES`` or the working folder."""
    return Path(os.environ.get("CONTEXTCLIFF_STUDIES") or ".").expanduser().absolute()


def file_of(name: str) -> Path:
    """Return the file of a new study called ``name``."""
    return folder() / f"{name}.yaml"


def check_data(data: str) -> None:
    """Raise StudyError unless ``data`` is a URL or an existing path."""
    from contextcliff_dagster.corpora.readers.rows import is_url

    if not is_url(data) and not Path(data).expanduser().exists():
        raise StudyError(f"There is no file or folder {data}; check the path.")


def check_name(name: str) -> None:
    """Raise StudyError if ``name`` is invalid or taken."""
    from contextcliff_dagster.studies import load_studies

    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,59}", name):
        raise StudyError(
            f"{name!r} cannot name a study: write at most 60 lower-case letters, digits and "
            "hyphens, starting with a letter or a digit."
        )
    if name in load_studies() or file_of(name).exists():
        where = f"the file {file_of(name)}" if file_of(name).exists() else f"a study {name!r}"
        raise StudyError(f"There is {where} already, and it stays as it is; choose another name.")


@contextmanager
def written(study: Study) -> Iterator[Path]:
    """Write the file of a new study; delete it if the block raises.

    Raises:
        StudyError: the file already exists, or the folder is not writable.
    """
    from contextcliff_dagster.studies.starter import study_text

    path = file_of(study.name)
    models = ", ".join(study.models)
    about = f"Up to which length of document does {models} answer well enough?"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(study_text(study, about), encoding="utf-8")
        os.link(temporary, path)  # fails where there is one
    except FileExistsError:
        raise StudyError(
            f"There is the file {path} already, and it stays as it is; choose another name with "
            "--name."
        ) from None
    except OSError as error:
        raise StudyError(
            f"{path} cannot be written ({error.strerror}); run the command in a folder that you "
            "may write to."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    try:
        yield path
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _relative(path: str, home: Path) -> str:
    """Return a path below ``home`` relative to it, and any other path unchanged."""
    with suppress(ValueError):
        return str(Path(path).relative_to(home))
    return path


def _documents(study: Study, *, tell: bool = True) -> int | None:
    """Count a folder's documents, reading only some PDF files; return None for other corpora."""
    from contextcliff_dagster.corpora.folder import FolderCorpus

    if study.corpus.kind != "folder":
        return None
    corpus = FolderCorpus(study.corpus.options)
    number = corpus.count_to_read()
    scans, looked_at = corpus.scans(_LOOKED_AT)
    scanned = (
        f"PDF files without text, perhaps scans: {len(scans)} of {looked_at} looked at, such as "
        f"{scans[0]}. Recognise their text first (OCR, for example with ocrmypdf)."
        if scans
        else ""
    )
    if number - len(scans) < _LEAST_DOCUMENTS:
        raise CorpusError(
            f"{corpus.path} has {count(number, 'document')} to ask about; a curve over length "
            f"needs at least {_LEAST_DOCUMENTS} with text, and some 60 of lengths over a decade "
            f"make a good one. {scanned}".rstrip()
        )
    if scanned and tell:
        say(f"Note: {scanned}")
    return number


def _asked_data(wishes: StudyWishes) -> StudyWishes:
    if wishes.data is None:
        wishes = replace(wishes, data=ask("Folder of your documents, or a table of examples"))
    check_data(str(wishes.data))
    if lacks_questions(wishes):
        say("There is no table of questions (columns document, question, answers) with it.")
        say("  recall: questions of verbatim recall, made from the texts (copying, not reasoning)")
        wishes = replace(wishes, questions=ask("A table of questions, or recall", "recall"))
    options = StudyOptions(study=None, data=wishes.data, questions=wishes.questions)
    study = over_data(options, tell=False)  # `new_study` tells it
    if (documents := _documents(study, tell=False)) is not None:
        say(f"  {documents:,} documents, {study.bins.count} bins of length.")
    return wishes


def _asked_tolerance() -> float:
    from contextcliff_dagster.studies.starter import answers_lost

    say("Which loss is acceptable at the safe cap, against short documents?")
    lines = [f"{100 * share:g}%: {answers_lost(share)}" for share in _TOLERANCES]
    return _TOLERANCES[choose("Tolerance", lines)]


def _asked_least_score() -> float | None:
    say("How often must answers up to the cap be right for the model to be of use?")
    words = ["any share: show every cap", *(f"at least {at:.0%}" for at in _LEAST_SCORES if at)]
    return _LEAST_SCORES[choose("Least score", words)]


def _asked_name(wishes: StudyWishes) -> str:
    name = ask("Name of the study", default_name(wishes))
    check_name(name)
    return name


@click.command()
@endpoint_options
@click.option(
    "--model", metavar="NAME", help="Name in models.yaml; an existing entry is used unchanged."
)
@click.option("--data", metavar="PATH|URL", help="A folder of documents, or a table of examples.")
@click.option(
    "--questions", metavar="FILE|recall", help="Questions on them: a table, or verbatim recall."
)
@share_option(
    "--tolerance",
    "Loss that is acceptable at the cap, e.g. 30%: up to 3 of 10 right answers lost.",
    callback=tolerance_share,
)
@share_option(
    "--min-score",
    "Least mean score for a cap to be of use, e.g. 80%; below it, there is no policy.",
)
@click.option("--name", metavar="NAME", help="Name of the study (default: after the data).")
@click.option("--yes", is_flag=True, help="Ask nothing; take the defaults.")
@common_options
def init(
    endpoint: EndpointOptions,
    model: str | None,
    data: str | None,
    questions: str | None,
    tolerance: float | None,
    min_score: float | None,
    name: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Set up a measurement: an endpoint in models.yaml, and a study of your documents.

    On a terminal it asks questions; elsewhere, or with --yes, it uses options and defaults. It
    makes one small call to check the model, writes both files, then makes three more calls to show
    replies to questions on short documents.
    """
    from contextcliff_dagster.atlas.results import sampling_range
    from contextcliff_dagster.studies import load_study

    asking = can_ask() and not yes
    wishes = StudyWishes(data, questions, tolerance, min_score, name)
    if name is not None:
        check_name(name)
    if data is not None:
        check_data(data)
    if not asking and data is None:
        raise StudyError(
            "No data given: add --data PATH, a folder of documents or a table of examples"
            + ("" if model or endpoint.named else ", and --preset NAME or --base-url URL")
            + "."
        )
    with nothing_written_on_interruption():
        entry, new, trial = _model(endpoint, model, asking=asking)
        wishes = with_answers(wishes) if asking else with_defaults(wishes) if yes else wishes
        reasons = bool(trial and trial.reasons)
        study = new_study(wishes, entry.name, entry.tokenizer, reasons=reasons)
        check_name(study.name)
        if new is None:
            with written(study) as study_file:
                models_file = None
        else:
            from contextcliff_dagster.inference.models.models_file import added

            with added(new) as models_file, written(study) as study_file:
                pass
    command = _next(study_file, study.name)
    if models_file:
        say(f"Wrote model {entry.name} into {models_file}.")
    say(f"Wrote study {study.name} into {study_file}.")
    if (known := sampling_range(entry.model_id, entry.window_tokens)) is not None:
        say(f"Note: {known}")
    asked = []
    if trial is not None:
        asked = ask_shortest(load_study(study_file), trial.entry, endpoint.timeout)
    value = {
        "model": entry.name,
        "models_file": None if models_file is None else str(models_file),
        "study": study.name,
        "study_file": str(study_file),
        "window_tokens": trial.window_tokens if trial else entry.window_tokens,
        "asked": asked,
        "next": command,
    }
    print_either(value, f"Measure it with\n\n    {command}\n", as_json=as_json)


def add_model(endpoint: EndpointOptions, name: str | None, *, as_json: bool) -> None:
    """Add a model to models.yaml, after one small call.

    Raises:
        ContextCliffError: the endpoint cannot be used, or the name is taken; nothing is written.
    """
    from contextcliff_dagster.inference.models.models_file import added, known_models

    asking = can_ask()
    with nothing_written_on_interruption():
        chosen = chosen_model(chosen_endpoint(endpoint, asking=asking), asking=asking)
        new, trial = new_entry(chosen, name, asking=asking)
        done = "Wrote" if new.name not in known_models() else "Unchanged:"
        with added(new) as path:
            pass
    window = trial.window_tokens if trial else new.checked().window_tokens
    command = typed("--data", "PATH", "--model", new.name)
    value = {"model": new.name, "models_file": str(path), "window_tokens": window, "next": command}
    print_either(
        value, f"{done} model {new.name} in {path}. Measure it: {command}", as_json=as_json
    )


def _model(
    endpoint: EndpointOptions, name: str | None, *, asking: bool
) -> tuple[ModelEntry, NewEntry | None, Trial | None]:
    """Return the model's entry, the entry to write if it is new, and the findings of one call."""
    from contextcliff_dagster.inference.models.models_file import get_model, known_models

    entry = None
    if name is not None and not endpoint.named and (name in known_models() or not asking):
        entry = get_model(name, known_models())
        if endpoint.set_keys:
            raise StudyError(f"--set is for a new entry; edit that of {name} in models.yaml.")
    else:
        endpoint = chosen_model(chosen_endpoint(endpoint, asking=asking), asking=asking)
        if name is None and (entry := same_entry(endpoint)):
            say(f"models.yaml has this model at this address: {entry.name}. It is used as it is.")
    if entry is not None:
        heavy = entry.spec.needs_devices or entry.spec.needs_weights
        trial = None if heavy or endpoint.no_call else tried(entry, endpoint.timeout)
        return entry, None, trial
    new, trial = new_entry(endpoint, name, asking=asking)
    return new.checked(), new, trial


def _next(path: Path, name: str) -> str:
    """Return the command line that measures the study."""
    from contextcliff_dagster.studies import load_study
    from contextcliff_dagster.studies.study import leave_needed

    word = name if os.environ.get("CONTEXTCLIFF_STUDIES") else path.name
    # Its data lie elsewhere: just stated, so not asked again.
    more = ["--trust-study"] if leave_needed(load_study(path), "corpus") else []
    return typed("profile", word, *more)
