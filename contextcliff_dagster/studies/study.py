"""A study, the parts of it that each package needs, and the files that it references.

A study may come from another person. Files that it names outside its own folder, and the server
that counts its tokens, need the user's permission.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.contracts.extensions import extensions
from contextcliff_dagster.inference.requests.recipe import NEUTRAL_WORDINGS, Recipe
from contextcliff_dagster.private_files import make_folder
from contextcliff_dagster.store import PACKAGE, Store, slug
from contextcliff_dagster.studies import sections as parts
from contextcliff_dagster.studies.experiment_table import check_sections
from contextcliff_dagster.studies.sections import STUDY_NAME, CorpusSection, Section, study_name
from contextcliff_dagster.user_files import loads, read_file

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.allocation import Target
    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.sampling.bins import BinSpec

_LENGTH_PROFILE_KEYS = ("bins", "target", "targeted", "latency", "regression", "sentinel", "track")
PROMPT_FILES = ("template", "system", "instructions")
"""Keys of `prompt` whose values are file names."""
_MOST_NAMED = 8
_SERVER, _TRACKER = "server ", "tracker "


class Leave(NamedTuple):
    """A study's permission to read everything below ``home`` (None: anything, for the user's own).

    Other files, and servers, must be in ``allowed``, written as `leave_needed` returns them.
    """

    home: Path | None = None
    allowed: frozenset[str] = frozenset()

    def also(self, more: Iterable[str]) -> Leave:
        return Leave(self.home, self.allowed | frozenset(more))


def shipped_folders() -> list[Path]:
    """Return the folders of studies (and their prompts) in the package and its extensions."""
    installed = PACKAGE / "_studies"
    paths = [path for ext in extensions().values() if (path := ext.own("studies"))]
    return [installed if installed.is_dir() else PACKAGE.parent / "studies", *paths]


def absolute(folder: Path, file: str) -> str:
    """Return ``file`` as an absolute path, resolved against ``folder``; a URL is unchanged.

    Raises:
        StudyError: it begins with the home of an unknown user.
    """
    if "://" in file:
        return file
    try:
        return str(folder / Path(file).expanduser())
    except RuntimeError as error:
        raise StudyError(f"There is no home folder for {file!r}; write the whole path.") from error


def absolute_options(folder: Path, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a corpus's options with paths made absolute."""
    return {
        **options,
        **{key: absolute(folder, options[key]) for key in _path_keys(kind, options)},
    }


def _path_keys(kind: str, options: Mapping[str, Any]) -> list[str]:
    questions = kind == "folder" and options.get("questions") != "recall"
    keys = ("path", *(["questions"] if questions else []))
    return [key for key in keys if isinstance(options.get(key), str)]


def leave_needed(study: Study, part: str = "") -> list[str]:
    """Return the files and servers that the study needs but its user has not allowed.

    They are written `<key> <path>` (links followed), `server <host>` or `tracker <address>`.
    ``part`` limits them to this key (corpus, tokenizer, prompt or track).
    """
    from contextcliff_dagster.inference.models.tokenizers import unlisted_server

    needed, home = [], study.leave.home
    if home is not None:
        homes = (home.resolve(), *(folder.resolve() for folder in shipped_folders()))
        files = _files(study, part)
        outside = [(key, file) for key, file in files if not _is_within(file, homes)]
        needed = [f"{key} {_with_target(file)}" for key, file in outside]
    for key, server in _servers(study):
        if key.startswith(part) and (host := unlisted_server(server, home)):
            needed.append(f"{_SERVER}{host}")
    track = study.track if home is not None and "track".startswith(part) else None
    if track is not None and (address := track.tracking_uri or track.entity):
        needed.append(f"{_TRACKER}{address}")
    return [need for need in needed if need not in study.leave.allowed]


def described(study: Study, needed: Sequence[str]) -> str:
    """Return a clause that describes the results of `leave_needed`."""
    files = [need for need in needed if not need.startswith((_SERVER, _TRACKER))]
    ending = ["and others"] if len(files) > _MOST_NAMED else []
    hosts = [need.removeprefix(_SERVER) for need in needed if need.startswith(_SERVER)]
    models_file = "models.yaml" if study.leave.home is None else "CONTEXTCLIFF_MODELS"
    read = f"reads {', '.join(files[:_MOST_NAMED] + ending)}, outside of its folder"
    sent = f"sends its documents to {', '.join(hosts)}, which {models_file} does not list"
    trackers = [need.removeprefix(_TRACKER) for need in needed if need.startswith(_TRACKER)]
    logged = f"sends its results to {', '.join(trackers)}"
    clauses = [read] * bool(files) + [sent] * bool(hosts) + [logged] * bool(trackers)
    return f"study {study.name!r} {' and '.join(clauses)}"


def refuse_without_leave(study: Study, part: str = "") -> None:
    """Raise StudyError if the study needs permission, see `leave_needed`."""
    if needed := leave_needed(study, part):
        clause = described(study, needed)
        way = "move its file into CONTEXTCLIFF_STUDIES"
        if study.leave.home is None:
            way = "add that server to models.yaml (engine openai, base_url)"
        raise StudyError(
            f"{clause[0].upper()}{clause[1:]}; if you want that, run `contextcliff prepare` with "
            f"--trust-study, or {way}."
        )


def _files(study: Study, part: str) -> Iterator[tuple[str, str]]:
    files: list[tuple[str, str]] = []

    def note(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
        for key in _path_keys(kind, options):
            file = absolute(study.folder, options[key])
            files.append((f"corpus.{key}", file))
            if kind not in ("folder", "python-source"):  # these follow no link out of their folder
                files.extend((f"corpus.{key}", link) for link in _links_below(file))
        return dict(options)

    if "corpus".startswith(part):
        study.corpus.changed_options(note)
    for key, name in _tokenizers(study):
        if name.startswith("file:"):
            files.append((key, name[5:]))
    files.extend((f"prompt.{key}", file) for key, file in prompt_files(study).items())
    for name, section in study.sections.items():
        attributes = getattr(section, "named_files", ())
        files.extend((f"{name}.texts", absolute(study.folder, file)) for file in attributes)
    for key, file in files:
        if key.startswith(part):
            yield key, absolute(study.folder, file)


def _tokenizers(study: Study) -> Iterator[tuple[str, str]]:
    """Yield the study's tokenizer and those of its experiments, under the same key."""
    yield "tokenizer", study.tokenizer
    for section in study.sections.values():
        if name := getattr(section, "tokenizer", ""):
            yield "tokenizer", name


def _servers(study: Study) -> Iterator[tuple[str, str]]:
    """Yield the servers that receive the study's texts, in the form of tokenizer names."""
    yield from _tokenizers(study)
    if study.leave.home is not None:  # a user's own study file shows the address itself
        for name, section in study.sections.items():
            for address in getattr(section, "named_servers", ()):
                yield f"{name}.embeddings", f"server:{address}"


def _links_below(folder: str) -> list[str]:
    walked = os.walk(folder) if "://" not in folder and "\0" not in folder else ()
    paths = (Path(above) / name for above, dirs, files in walked for name in dirs + files)
    return [str(path) for path in paths if path.is_symlink()]


def _with_target(file: str) -> str:
    """Return ``file`` with its link's target, because permission covers only one target."""
    with suppress(OSError, RuntimeError, ValueError):
        if "://" not in file and (target := str(Path(file).resolve())) != os.path.normpath(file):
            return f"{file}, a link to {target}"
    return file


def _is_within(file: str, homes: tuple[Path, ...]) -> bool:
    try:
        path = Path(file).resolve()
        return "://" not in file and any(path.is_relative_to(home) for home in homes)
    except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a NUL
        return False


def home_of(file: Path) -> Path:
    """Return the folder that a study file may read from: the working folder or its own."""
    path, working_folder = file.resolve(), Path.cwd().resolve()
    # The home folder would include everything, even downloads.
    wide = working_folder in (Path.home().resolve(), Path(working_folder.anchor))
    return working_folder if path.is_relative_to(working_folder) and not wide else path.parent


def imported_mark(definition: Path) -> Path:
    """Return the file with permissions for an imported definition, next to it in the store."""
    return definition.with_suffix(".imported")


def leave_record(study: Study) -> bytes:
    """Return the content for `imported_mark`: permission for exactly this definition."""
    home, allowed = study.leave
    record = {"definition": _definition(study), "home": str(home), "allowed": sorted(allowed)}
    return json.dumps(record, indent=1).encode()


def recorded_leave(study: Study, definition: Path) -> Leave:
    """Return the permission for the study at ``definition``; minimal if the file changed."""
    mark = imported_mark(definition)
    if not mark.exists():
        return Leave()
    with suppress(OSError, ValueError, LookupError, TypeError):
        record = loads(read_file(mark))
        if record["definition"] == _definition(study):
            return Leave(Path(record["home"]), frozenset(map(str, record["allowed"])))
    return Leave(definition.parent)


def _definition(study: Study) -> str:
    values = study.model_dump(mode="json", exclude_defaults=True)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def prompt_files(study: Study) -> dict[str, str]:
    """Return the files of the study's prompt by key, as written in the study."""
    values = {key: getattr(study.prompt, key) for key in PROMPT_FILES}
    # The study may also contain the template's text itself.
    written = {"template"} if "{document}" in (study.prompt.template or "") else set()
    return {key: file for key, file in values.items() if file and key not in written}


def prompt_text(study: Study, key: str, file: str) -> str:
    """Read a file of the study's prompt.

    Raises:
        StudyError: it is missing, not text, or outside the folder of a study from elsewhere.
    """
    refuse_without_leave(study, "prompt")
    path = Path(absolute(study.folder, file))
    try:
        return read_file(path).decode()
    except FileNotFoundError as error:
        raise StudyError(
            f"Study {study.name!r} names {path} as prompt.{key}, but there is no such file."
        ) from error
    except (OSError, ValueError) as error:
        raise StudyError(
            f"Study {study.name!r}: {path} (prompt.{key}) is not readable UTF-8 text: {error}."
        ) from error


class Renaming(NamedTuple):
    """A renaming that has begun but is not finished."""

    old: str
    new: str

    @property
    def command(self) -> str:
        """The command line that finishes the renaming."""
        return f"contextcliff studies rename {self.old} {self.new}"


def renaming_note(store: Store) -> Path:
    """Return the file that exists while a renaming is unfinished."""
    return store.root / "_renaming.json"


def begun_renaming(store: Store) -> Renaming | None:
    """Return the unfinished renaming in ``store``, or None."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads(renaming_note(store).read_bytes())
        return Renaming(str(note["old"]), str(note["new"]))
    return None


@contextmanager
def study_used(store: Store, study: str) -> Iterator[None]:
    """Prevent ``study`` from being renamed within the block; the lock ends with the process.

    Raises:
        StoreError: it is being renamed, or a renaming was interrupted.
    """
    with _lock(store, study, fcntl.LOCK_SH) as is_locked:
        renaming = begun_renaming(store)
        if renaming is not None and study in renaming:
            raise StoreError(
                f"Study {renaming.old!r} is being renamed to {renaming.new!r}; if that was "
                f"interrupted, run `{renaming.command}` to finish it."
            )
        if not is_locked:
            raise StoreError(
                f"Study {study!r} is being renamed; wait for that, then use its new name."
            )
        yield


@contextmanager
def study_alone(store: Store, study: str) -> Iterator[None]:
    """Hold ``study`` exclusively within the block. Raises StoreError: a run is using it."""
    with _lock(store, study, fcntl.LOCK_EX) as is_locked:
        if not is_locked:
            raise StoreError(
                f"Study {study!r} has a run in progress or is already being renamed; wait for that "
                "to finish, then try again."
            )
        yield


@contextmanager
def _lock(store: Store, study: str, mode: int) -> Iterator[bool]:
    """Lock ``study`` in ``mode`` and yield whether it is locked; True where locks do not exist.

    The lock is an empty folder: a new study has no folder yet while its first run prepares it.
    """
    folder = store.root / "_locks" / study
    try:
        if store.root.is_dir():  # reading alone must not create a store
            make_folder(folder)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        held = True
        try:
            fcntl.flock(handle, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            held = False
        except OSError:  # a network file system without locks
            pass
        yield held
    finally:
        os.close(handle)


NO_CORPUS = CorpusSection(kind="none")
"""Corpus of a study whose experiments all generate their own documents."""


class Study(Section):
    """One configured profile: corpus, tokenizer, bins, sampling, models and scoring.

    Each experiment has a key of its own next to these (`sections`).
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(
        pattern=f"^{STUDY_NAME}$",
        description="Lowercase letters, digits, hyphens; also the name of result folders",
        examples=["contracts"],
    )
    description: str = Field(default="", description="Its question", examples=["Rents in leases"])
    corpus: CorpusSection = NO_CORPUS
    tokenizer: str = Field(
        default="",
        description="Counts lengths (`contextcliff tokenizers`); required with a corpus",
        examples=["tiktoken:o200k_base"],
    )
    bins: parts.BinsSection = parts.BinsSection()
    target: parts.TargetSection | None = None
    sampling: parts.SamplingSection = parts.SamplingSection()
    targeted: parts.TargetedSection | None = None
    prompt: parts.PromptSection = parts.PromptSection()
    models: tuple[str, ...] = Field(
        min_length=1, description="Names of models.yaml", examples=[["my-model"]]
    )
    scoring: parts.ScoringSection = parts.ScoringSection()
    analysis: parts.AnalysisSection = parts.AnalysisSection()
    latency: parts.LatencySection | None = None
    calls: parts.CallsSection = parts.CallsSection()
    budget: parts.BudgetSection = parts.BudgetSection()
    regression: parts.RegressionSection = parts.RegressionSection()
    schedule: parts.ScheduleSection | None = None
    sentinel: parts.SentinelSection | None = None
    alerts: parts.AlertsSection = parts.AlertsSection()
    assets: parts.AssetsSection = parts.AssetsSection()
    track: parts.TrackSection | None = None

    _folder: Path = PrivateAttr(default_factory=Path.cwd)  # its file's folder, for relative paths
    _leave: Leave = PrivateAttr(default=Leave())

    @model_validator(mode="wrap")
    @classmethod
    def _sections_are_checked(cls, data: Any, handler: ModelWrapValidatorHandler[Study]) -> Study:
        keys = set(cls.model_fields)
        return read_by_all(check_sections(data, handler, keys, needs=("corpus", "tokenizer")))

    @field_validator("models")
    @classmethod
    def _models_are_distinct(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        if len({slug(name) for name in models}) < len(models):
            raise ValueError("a model is listed twice")
        # On a file system that ignores case (macOS), their folders would be the same.
        names_by_slug: dict[str, str] = {}
        for name in models:
            other = names_by_slug.setdefault(slug(name).casefold(), name)
            if other != name:
                raise ValueError(f"{other} and {name} differ in case alone; rename one")
        return models

    @model_validator(mode="after")
    def _batches_have_no_times(self) -> Study:
        if self.calls.batch and self.latency is not None:
            raise ValueError(
                "calls in batches have no times, so `latency` (--ttft-limit) cannot be judged; "
                "leave it out, or leave out `calls: {batch: true}` (--batch)"
            )
        return self

    @property
    def sections(self) -> Mapping[str, Any]:
        """The sections for experiments in the file, by name, checked against their declarations."""
        return self.model_extra or {}

    @property
    def has_corpus(self) -> bool:
        """Whether documents come from a corpus; without one, no length profile is measured."""
        return self.corpus != NO_CORPUS

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def leave(self) -> Leave:
        return self._leave

    def trusted(self) -> Study:
        """Return the study with permission for all files and servers that it references."""
        return self.with_leave(self._leave.also(leave_needed(self)))

    def with_leave(self, leave: Leave) -> Study:
        copy = self.model_copy()
        copy._leave = leave
        return copy

    @property
    def task(self) -> str | None:
        """The study's task if its corpus specifies exactly one."""
        return None if (task := self.corpus.options.get("task")) is None else str(task)

    @property
    def bin_keys(self) -> tuple[str, ...]:
        """Keys of the length bins; they depend only on the count (a merged bin keeps its key)."""
        return tuple(f"b{number:02d}" for number in range(self.bins.count))

    @property
    def corpus_options(self) -> dict[str, Any]:
        """The adapter's options with paths made absolute (relative to the study file)."""
        return self.corpus.changed_options(partial(absolute_options, self._folder))

    @property
    def tokenizer_name(self) -> str:
        """The tokenizer's name; a ``file:`` path is absolute (relative to the study file)."""
        name = self.tokenizer
        return f"file:{absolute(self._folder, name[5:])}" if name.startswith("file:") else name

    def with_absolute_paths(self) -> Study:
        """Return the same study with absolute paths (relative ones start at the study file)."""
        named = prompt_files(self).items()
        files = {key: absolute(self._folder, file) for key, file in named}
        return self.changed(
            corpus={"kind": self.corpus.kind, **self.corpus_options},
            tokenizer=self.tokenizer_name,
            prompt={**dict(self.prompt), **files},
        )

    def bin_spec(self) -> BinSpec:
        from contextcliff_dagster.sampling.bins import BinSpec

        return BinSpec(**dict(self.bins))

    def recipe(self) -> Recipe:
        """Return the request recipe, including the texts of the prompt's files.

        Raises:
            StudyError: a file is missing, not text, or has too few instruction wordings.
        """
        values = {key: value for key, value in self.prompt if value is not None}
        replicates = values.pop("replicates")
        for key, file in prompt_files(self).items():
            values[key] = prompt_text(self, key, file)
        if "system" in values:
            values["system"] = values["system"].strip()
        if "instructions" in values:
            lines = map(str.strip, values["instructions"].splitlines())
            wordings = tuple(filter(None, lines))
            if len(wordings) < replicates:
                raise StudyError(
                    f"Study {self.name!r} asks for {replicates} replicates but "
                    f"{self._folder / str(self.prompt.instructions)} has {len(wordings)} wordings, "
                    "one a line; add some or lower prompt.replicates."
                )
            values["instructions"] = wordings[:replicates]
        else:
            values["instructions"] = NEUTRAL_WORDINGS[:replicates]
        try:
            return Recipe(**values)
        except StudyError as error:
            source = prompt_files(self).get("template", self.name)
            raise StudyError(f"{source}: {error}") from error

    def analysis_settings(self) -> AnalysisSettings:
        from contextcliff_dagster.analysis.records import AnalysisSettings

        limit = self.latency.ttft_ms_p95 if self.latency else None
        return AnalysisSettings(**dict(self.analysis), ttft_limit_ms=limit)

    def target_of_rounds(self) -> Target:
        """Return pilot, half-width and round size, or the defaults if the study has none.

        Raises:
            StudyError: ``until`` is outside its range.
        """
        from contextcliff_dagster.analysis.design.allocation import Target

        if (section := self.targeted) is None:
            return Target()
        return Target(section.pilot, float(section.until.removesuffix("%")) / 100.0, section.round)

    def manifest_spec_hash(self) -> str:
        """Return the SHA-256 (hex) of everything the manifest depends on except corpus bytes and
        sample size, because samples are nested: a manifest drawn for 20 per bin also serves 5."""
        drawn_by = {"seed", "questions_per_document", "min_tokens"}
        spec = {
            # Paths as written, not resolved: moving study and data together changes nothing.
            "corpus": self.corpus.model_dump(),
            "tokenizer": self.tokenizer,
            "bins": self.bins.model_dump(),
            "target": self.target.model_dump() if self.target else None,
            "sampling": self.sampling.model_dump(include=drawn_by),
        }
        return hashlib.sha256(json.dumps(spec, sort_keys=True, default=str).encode()).hexdigest()

    def with_models(self, models: Sequence[str]) -> Study:
        """Return the same study with other models; repeated names count once.

        Raises:
            StudyError: no model, or two whose names give the same file names.
        """
        return self.changed(models=tuple(dict.fromkeys(models)))

    def with_samples(self, samples_per_bin: int) -> Study:
        """Return the study with another sample size; smaller samples are part of larger ones."""
        pilot = min(self.sampling.pilot_per_bin, samples_per_bin)
        size = {"samples_per_bin": samples_per_bin, "pilot_per_bin": pilot}
        return self.changed(sampling={**dict(self.sampling), **size})

    def with_seed(self, seed: int) -> Study:
        """Return the study with another sample, named ``<name>-seed-<seed>`` to overwrite nothing.

        A generated corpus is generated anew, so that two seeds share no document; a corpus that
        samples files takes other files.

        Raises:
            StudyError: the seed is negative.
        """
        if seed == self.sampling.seed:
            return self

        def reseeded(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
            if kind not in ("reference", "python-source", "folder"):
                return dict(options)
            own_seed = options.get("seed", 0)
            # Opening the corpus refuses a seed that is not a whole number.
            new_seed = own_seed + seed - self.sampling.seed if type(own_seed) is int else own_seed
            return {**options, "seed": new_seed}

        options = self.corpus.changed_options(reseeded)
        return self.changed(
            name=study_name(f"{self.name}-seed-{seed}"),
            corpus=CorpusSection(kind=self.corpus.kind, **options),
            sampling={**dict(self.sampling), "seed": seed},
        )

    def changed(self, **values: Any) -> Study:
        """Return a copy with other values for some keys, checked like a study file.

        Raises:
            StudyError: a value is invalid for its key.
        """
        try:
            copy = Study.model_validate({**dict(self), **values})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(map(str, first["loc"]))
            message = str(first["msg"]).removeprefix("Value error, ")
            wrong = f"{key}: {message}" if key else message
            raise StudyError(
                f"Study {self.name!r} cannot be changed as asked: {wrong}; correct that."
            ) from None
        copy._folder, copy._leave = self._folder, self._leave
        return copy


def require_length_profile(study: Study) -> None:
    """Raise StudyError for a study without a corpus."""
    if not study.has_corpus:
        raise StudyError(
            f"Study {study.name!r} names no corpus, so it has no length profile, which this needs; "
            f"`contextcliff report {study.name}` shows what it measures, and `corpus` and "
            "`tokenizer` in its file add a length profile."
        )


def read_by_all(study: Study) -> Study:
    """Return ``study``; raise ValueError if it has no length profile but sets keys only a profile
    uses."""
    fields = type(study).model_fields
    extra = [key for key in _LENGTH_PROFILE_KEYS if getattr(study, key) != fields[key].default]
    if extra and not study.has_corpus:
        raise ValueError(
            f"only a length profile reads {' and '.join(extra)}, and a study without `corpus` has "
            "none; leave that out"
        )
    return study
