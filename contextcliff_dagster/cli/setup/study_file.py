"""The study that `init` writes: what it measures, by options or by questions, and its file."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.cli.ad_hoc_study import over_data
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import StudyOptions
from contextcliff_dagster.cli.setup.questions import ask, ask_until, choose
from contextcliff_dagster.contracts import CorpusError, StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study

_TOLERANCES = (0.3, 0.2, 0.1)
_ROOM_TO_REASON = 4096
"""Output tokens for a model that thinks before it answers."""
_LEAST_DOCUMENTS = 5


@dataclass(frozen=True, slots=True)
class StudyWishes:
    """What the person gave; None: not given."""

    data: str | None = None
    questions: str | None = None
    tolerance: float | None = None
    name: str | None = None


def with_answers(wishes: StudyWishes) -> StudyWishes:
    """The wishes with what was asked on the terminal."""
    given = wishes.data is not None  # asked again it would be as wrong
    data = _asked_data(wishes) if given else ask_until(lambda: _asked_data(wishes))
    wishes = replace(wishes, data=data.data, questions=data.questions)
    if wishes.tolerance is None:
        wishes = replace(wishes, tolerance=_asked_tolerance())
    if wishes.name is None:
        wishes = replace(wishes, name=ask_until(lambda: _asked_name(wishes)))
    return wishes


def with_defaults(wishes: StudyWishes) -> StudyWishes:
    """The wishes with recall where there is no table of questions."""
    if wishes.questions is None and lacks_questions(wishes):
        say("Note: no table of questions, so verbatim recall is asked: copying, not understanding.")
        return replace(wishes, questions="recall")
    return wishes


def lacks_questions(wishes: StudyWishes) -> bool:
    """Whether the data are documents without a table of questions."""
    from contextcliff_dagster.corpora.folder.questions import find_table
    from contextcliff_dagster.corpora.readers.download import is_url
    from contextcliff_dagster.corpora.recognition import recognise

    data = wishes.data or ""
    if wishes.questions is not None or is_url(data):
        return False
    path = Path(data).expanduser().absolute()
    found = recognise(path) if path.exists() else None
    if found is None or found.kind != "folder" or "questions" in found.options:
        return False
    return find_table(path if path.is_dir() else path.parent, path) is None


def new_study(wishes: StudyWishes, model: str, tokenizer: str | None, *, reasons: bool) -> Study:
    """The study of ``model`` over the data; ``reasons``: the model thinks before it answers.

    Raises:
        ContextCliffError: the data cannot be read, are too few, or the name cannot be used.
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
    name = wishes.name or default_name(wishes)
    tolerance = wishes.tolerance if wishes.tolerance is not None else _TOLERANCES[0]
    return study.changed(
        name=name,
        description=f"Answers of {model} on {Path(str(wishes.data)).name}, by length.",
        corpus={"kind": study.corpus.kind, **options},
        models=(model,),
        tokenizer=tokenizer or study.tokenizer,
        prompt=prompt,
        analysis={**dict(study.analysis), "tolerance": tolerance},
    )


def default_name(wishes: StudyWishes) -> str:
    """A name after the data, that no study or file has."""
    from contextcliff_dagster.studies import load_studies, study_name

    stem = unicodedata.normalize("NFKD", Path(str(wishes.data).rstrip("/")).stem.lower())
    stem = re.sub(r"[\u0300-\u036f]", "", stem)  # a letter stays without its accent
    plain = study_name(re.sub(r"[^a-z0-9]+", "-", stem).strip("-") or "study")
    names = [plain, *(study_name(f"{plain}-{number}") for number in range(2, 100))]
    known = load_studies()
    return next((n for n in names if n not in known and not file_of(n).exists()), plain)


def folder() -> Path:
    """Where studies of the user's own lie: ``CONTEXTCLIFF_STUDIES``, else the working folder."""
    return Path(os.environ.get("CONTEXTCLIFF_STUDIES") or ".").expanduser().absolute()


def file_of(name: str) -> Path:
    """The file of a new study called ``name``."""
    return folder() / f"{name}.yaml"


def check_data(data: str) -> None:
    """Raises:
    StudyError: there is nothing at this path.
    """
    from contextcliff_dagster.corpora.readers.download import is_url

    if not is_url(data) and not Path(data).expanduser().exists():
        raise StudyError(f"There is no file or folder {data}; check the path.")


def check_name(name: str) -> None:
    """Raises:
    StudyError: no study can have this name, or one has it.
    """
    from contextcliff_dagster.studies import load_studies

    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,59}", name):
        raise StudyError(
            f"{name!r} cannot be the name of a study: small letters, digits and hyphens, at most "
            "60, beginning with a letter or a digit."
        )
    if name in load_studies() or file_of(name).exists():
        where = f"the file {file_of(name)}" if file_of(name).exists() else f"a study {name!r}"
        raise StudyError(f"There is {where} already, and it stays as it is; choose another name.")


@contextmanager
def written(study: Study) -> Iterator[Path]:
    """Write the file of a new study; taken back if the block raises.

    Raises:
        StudyError: there is one already, or the folder is not writable.
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
    """A path below the study's folder as seen from there; others as they are."""
    with suppress(ValueError):
        return str(Path(path).relative_to(home))
    return path


def _documents(study: Study) -> int | None:
    """Documents that would be read, without reading them; None where they are not counted.

    Raises:
        CorpusError: too few of them.
    """
    from contextcliff_dagster.corpora.folder import FolderCorpus

    if study.corpus.kind != "folder":
        return None
    corpus = FolderCorpus(study.corpus.options)
    number = corpus.count_to_read()
    if number < _LEAST_DOCUMENTS:
        raise CorpusError(
            f"{corpus.path} has {number} document{'' if number == 1 else 's'} to ask about; a "
            f"curve over length needs at least {_LEAST_DOCUMENTS}, and some 60 of lengths over a "
            "decade make a good one."
        )
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
    if (documents := _documents(study)) is not None:
        say(f"  {documents:,} documents, {study.bins.count} bins of length.")
    return wishes


def _asked_tolerance() -> float:
    from contextcliff_dagster.studies.starter import answers_lost

    say("Which loss is acceptable at the safe cap, against short documents?")
    lines = [f"{100 * share:g}%: {answers_lost(share)}" for share in _TOLERANCES]
    return _TOLERANCES[choose("Tolerance", lines)]


def _asked_name(wishes: StudyWishes) -> str:
    name = ask("Name of the study", default_name(wishes))
    check_name(name)
    return name
