"""Studies: one YAML file says what is measured, with which models, and how it is judged.

Belongs here: the schema of a study file, its defaults and cross-checks, and where study files are
looked for. Does not belong here: carrying a study out; its methods only hand each room the part
of the study that room asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from contextcliff_dagster.contracts import PrimaryScore, PromptMode, StudyError
from contextcliff_dagster.store import slug, store_root

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.settings import AnalysisSettings
    from contextcliff_dagster.inference.recipe import Recipe
    from contextcliff_dagster.sampling.bins import BinSpec
    from contextcliff_dagster.sampling.manifest import SampleSpec


class _Section(BaseModel):
    """Unknown keys are errors: a misspelt key must not silently fall back to its default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CorpusSection(BaseModel):
    """Where examples come from: ``kind`` and that kind's own options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str = Field(description="Corpus adapter, e.g. reference, file")

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class BinsSection(_Section):
    """How the length axis is cut."""

    kind: Literal["quantile", "fixed"] = "quantile"
    count: int = Field(default=10, ge=1, le=100, description="Number of bins")
    width: int | None = Field(default=None, ge=1, description="Tokens per bin, for fixed bins")
    starved_below: int = Field(default=5, ge=1, description="Fewer examples than this: starved")
    starved: Literal["merge", "refuse"] = "merge"

    @model_validator(mode="after")
    def _width_belongs_to_fixed_bins(self) -> BinsSection:
        if (self.width is None) == (self.kind == "fixed"):
            raise ValueError("give 'width' for 'kind: fixed', and only then")
        return self


class TargetSection(_Section):
    """Lengths the corpus must span for the study to mean anything."""

    min_tokens: int = Field(ge=0)
    max_tokens: int = Field(ge=1)


class SamplingSection(_Section):
    """How many examples are drawn per bin, and which."""

    samples_per_bin: int = Field(default=20, ge=1)
    pilot_per_bin: int = Field(default=5, ge=1, description="Examples per bin of the job `pilot`")
    seed: int = Field(default=0, ge=0)
    questions_per_document: int = Field(default=1, ge=1)
    min_tokens: int = Field(default=0, ge=0, description="Shorter documents are left out")

    @model_validator(mode="after")
    def _pilot_is_smaller(self) -> SamplingSection:
        if self.pilot_per_bin > self.samples_per_bin:
            raise ValueError("'pilot_per_bin' must not exceed 'samples_per_bin'")
        return self


class PromptSection(_Section):
    """The request recipe. Files are relative to the study file."""

    mode: PromptMode = "chat"
    template: str | None = Field(default=None, description="File with {document} and {question}")
    system: str | None = Field(default=None, description="File with the system text")
    answer_prefix: str | None = None
    instructions: str | None = Field(
        default=None, description="File with one wording of the instruction per line"
    )
    replicates: int = Field(default=1, ge=1, description="Calls per example")
    max_output_tokens: int = Field(default=32, ge=1)
    output_schema: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _replicates_differ(self) -> PromptSection:
        if self.replicates > 1 and self.instructions is None:
            raise ValueError(
                "several 'replicates' need 'instructions', a file with one wording per line: at "
                "temperature 0 the same prompt twice buys the same answer twice"
            )
        return self


class ScoringSection(_Section):
    primary: PrimaryScore = "em"
    scorer: str = "text"


class AnalysisSection(_Section):
    tolerance: float = Field(default=0.3, gt=0, lt=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    resamples: int = Field(default=2000, ge=100)


class BudgetSection(_Section):
    """Money: a hard limit, and the estimate above which the terminal asks first."""

    usd: float | None = Field(default=None, ge=0)
    confirm_above_usd: float = Field(default=1.0, ge=0)


class Study(_Section):
    """One configured profile: corpus, tokenizer, bins, sampling, models and scoring."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")
    description: str = ""
    corpus: CorpusSection
    tokenizer: str
    bins: BinsSection = BinsSection()
    target: TargetSection | None = None
    sampling: SamplingSection = SamplingSection()
    prompt: PromptSection = PromptSection()
    models: tuple[str, ...] = Field(min_length=1)
    scoring: ScoringSection = ScoringSection()
    analysis: AnalysisSection = AnalysisSection()
    budget: BudgetSection = BudgetSection()

    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @field_validator("models")
    @classmethod
    def _models_are_distinct(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        if len({slug(name) for name in models}) < len(models):
            raise ValueError("a model is listed twice")
        return models

    @property
    def task(self) -> str | None:
        """The one task this study asks for, where its corpus names one."""
        task = self.corpus.options.get("task")
        return str(task) if task is not None else None

    @property
    def bin_keys(self) -> tuple[str, ...]:
        """Keys of the length bins, fixed by the count alone (a merged bin keeps its key)."""
        return tuple(f"b{number:02d}" for number in range(self.bins.count))

    @property
    def corpus_options(self) -> dict[str, Any]:
        """The adapter's options with ``path`` made absolute (relative to the study file)."""
        options = self.corpus.options
        if isinstance(path := options.get("path"), str):
            options["path"] = str(self._folder / Path(path).expanduser())
        return options

    @property
    def tokenizer_name(self) -> str:
        """The tokenizer, a ``file:`` path made absolute (relative to the study file)."""
        kind, _, path = self.tokenizer.partition(":")
        return (
            f"file:{self._folder / Path(path).expanduser()}" if kind == "file" else self.tokenizer
        )

    def bin_spec(self) -> BinSpec:
        from contextcliff_dagster.sampling.bins import BinSpec

        b = self.bins
        return BinSpec(b.kind, b.count, b.width, b.starved_below, b.starved)

    def sample_spec(self, samples_per_bin: int | None = None) -> SampleSpec:
        from contextcliff_dagster.sampling.manifest import SampleSpec

        s = self.sampling
        n = max(samples_per_bin or 0, s.samples_per_bin)
        return SampleSpec(n, s.seed, s.questions_per_document, s.min_tokens)

    def recipe(self) -> Recipe:
        """What is asked, with the texts of the prompt's files read in.

        Raises:
            StudyError: a file is missing, not text, or has too few instruction wordings.
        """
        from contextcliff_dagster.inference.recipe import Recipe

        p = self.prompt
        given: dict[str, Any] = {"mode": p.mode, "max_output_tokens": p.max_output_tokens}
        if p.template is not None:
            given["template"] = self._text("template", p.template)
        if p.system is not None:
            given["system"] = self._text("system", p.system).strip()
        if p.answer_prefix is not None:
            given["answer_prefix"] = p.answer_prefix
        if p.output_schema is not None:
            given["output_schema"] = p.output_schema
        if p.instructions is not None:
            given["instructions"] = self._wordings(p.instructions)
        return Recipe(**given)

    def _wordings(self, file: str) -> tuple[str, ...]:
        p = self.prompt
        lines = self._text("instructions", file).splitlines()
        wordings = [line.strip() for line in lines if line.strip()]
        if len(wordings) < p.replicates:
            raise StudyError(
                f"Study {self.name!r} asks for {p.replicates} replicates but "
                f"{self._folder / file} has {len(wordings)} wordings, one a line; "
                "add some or lower prompt.replicates."
            )
        return tuple(wordings[: p.replicates])

    def _text(self, key: str, file: str) -> str:
        path = self._folder / Path(file).expanduser()
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError as fault:
            raise StudyError(
                f"Study {self.name!r} names {path} as prompt.{key}, but there is no such file."
            ) from fault
        except (OSError, UnicodeDecodeError) as fault:
            raise StudyError(
                f"Study {self.name!r}: {path} (prompt.{key}) is not readable UTF-8 text: {fault}."
            ) from fault

    def analysis_settings(self) -> AnalysisSettings:
        from contextcliff_dagster.analysis.settings import AnalysisSettings

        a = self.analysis
        return AnalysisSettings(
            tolerance=a.tolerance, confidence=a.confidence, resamples=a.resamples
        )

    def manifest_spec(self) -> dict[str, Any]:
        """What the manifest depends on, apart from the corpus bytes and the sample size.

        The size is left out because samples are nested: a manifest drawn for 20 a bin serves 5.
        """
        sampling = self.sampling.model_dump(
            include={"seed", "questions_per_document", "min_tokens"}
        )
        return {
            # Paths as written, not resolved: moving study and data together changes nothing.
            "corpus": self.corpus.model_dump(),
            "tokenizer": self.tokenizer,
            "bins": self.bins.model_dump(),
            "target": self.target.model_dump() if self.target else None,
            "sampling": sampling,
        }

    def manifest_spec_hash(self) -> str:
        """SHA-256 (hex) of :meth:`manifest_spec`; the frozen manifest is reused while it holds."""
        text = json.dumps(self.manifest_spec(), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def with_models(self, models: Sequence[str]) -> Study:
        """The same study over other models."""
        return self._copy(models=tuple(models))

    def with_samples(self, samples_per_bin: int) -> Study:
        """The same study with another sample size; a smaller one is a part of the larger."""
        pilot = min(self.sampling.pilot_per_bin, samples_per_bin)
        sampling = {
            **dict(self.sampling),
            "samples_per_bin": samples_per_bin,
            "pilot_per_bin": pilot,
        }
        return self._copy(sampling=SamplingSection(**sampling))

    def with_seed(self, seed: int) -> Study:
        """The same study over another sample, under its own name: ``<name>-seed-<seed>``.

        Its own name keeps its manifest, records and report from overwriting the study's. A
        generated corpus is generated afresh too, so that two seeds share no document.
        """
        if seed == self.sampling.seed:
            return self
        options = self.corpus.options
        if self.corpus.kind == "reference":
            options["seed"] = int(options.get("seed", 0)) + seed - self.sampling.seed
        return self._copy(
            name=f"{self.name}-seed-{seed}",
            corpus=CorpusSection(kind=self.corpus.kind, **options),
            sampling=self.sampling.model_copy(update={"seed": seed}),
        )

    def _copy(self, **update: Any) -> Study:
        copy = Study.model_validate({**dict(self), **update})
        copy._folder = self._folder
        return copy


def load_study(path: Path) -> Study:
    """One study from its YAML file.

    Raises:
        StudyError: naming the file, the line and the key.
    """
    from contextcliff_dagster.inference.yaml_errors import load_validated

    study = load_validated(path, Study)
    study._folder = path.resolve().parent
    return study


def study_folders() -> list[Path]:
    """Folders that are searched, a later one winning: the shipped, the store's, the user's own.

    The store keeps the studies that were made on the command line or imported (:func:`kept_in`);
    the user's folder is ``CONTEXTCLIFF_STUDIES``.

    Raises:
        StudyError: ``CONTEXTCLIFF_STUDIES`` names no folder.
    """
    package = Path(__file__).resolve().parent
    installed = package / "_studies"
    folders = [installed if installed.is_dir() else package.parent / "studies"]
    folders.append(kept_in(store_root()))
    if own := os.environ.get("CONTEXTCLIFF_STUDIES"):
        folder = Path(own).expanduser()
        if not folder.is_dir():
            raise StudyError(f"CONTEXTCLIFF_STUDIES names {folder}, which is not a folder.")
        folders.append(folder)
    return folders


def kept_in(root: Path) -> Path:
    """Where the store at ``root`` keeps definitions; no study can have this name."""
    return root / "_studies"


def load_studies() -> dict[str, Study]:
    """All studies by name, sorted; a user's study replaces the shipped one of the same name.

    Raises:
        StudyError: a file is malformed, or two files of one folder give the same name.
    """
    studies: dict[str, Study] = {}
    for folder in study_folders():
        here: dict[str, Path] = {}
        for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
            study = load_study(path)
            if study.name in here:
                raise StudyError(
                    f"{here[study.name]} and {path} both name their study {study.name!r}; "
                    "rename one."
                )
            here[study.name] = path
            studies[study.name] = study
    return dict(sorted(studies.items()))


def find_study(name: str) -> Study:
    """The study called ``name``, or the one in the YAML file ``name``.

    Raises:
        StudyError: there is none; the sentence lists those there are.
    """
    if name.endswith((".yaml", ".yml")):
        return load_study(Path(name))
    studies = load_studies()
    if name not in studies:
        raise StudyError(
            f"There is no study {name!r}; there are {', '.join(studies)} "
            "(add your own folder with CONTEXTCLIFF_STUDIES)."
        )
    return studies[name]
