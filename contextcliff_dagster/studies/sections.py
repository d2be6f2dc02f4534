"""The sections of a study file: their keys, defaults and checks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo

from contextcliff_dagster.contracts import PrimaryScore, PromptMode
from contextcliff_dagster.inference.requests.recipe import NEUTRAL_WORDINGS

MOST, MOST_TOKENS = 1_000_000, 1_000_000_000
"""Largest number of examples, calls etc., and of tokens, seconds or dollars; more is a typo."""


class Section(BaseModel):
    """Section of a study; unknown keys are errors, so no misspelt key falls back to its default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and _is_number(cls.model_fields[str(info.field_name)]):
            raise ValueError(f"should be a number, not {str(value).lower()}")
        return value


def listed(value: Any) -> Any:
    """Return ``value`` as a list; a single value becomes a one-item list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _is_number(field: FieldInfo) -> bool:
    kinds = set(get_args(field.annotation) or (field.annotation,))
    return bool(kinds & {int, float}) and bool not in kinds


_OWNER = re.compile(r"team:[A-Za-z0-9_]{1,60}|[^@\s]{1,60}@[^@\s]{1,60}\.[^@\s.]{1,20}")
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,60}(/[A-Za-z0-9_.-]{1,60})?")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,60}")


class AssetsSection(Section):
    """How the study's assets are shown in Dagster; no result depends on it."""

    group: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_]{1,60}$",
        description="Asset group, instead of the study's name",
        examples=["contracts_eu"],
    )
    owners: tuple[str, ...] = Field(
        default=(),
        description="Owners: `team:NAME` or e-mail addresses",
        examples=[["team:search"]],
    )
    tags: dict[str, str] = Field(
        default_factory=dict, description="Tags of every asset", examples=[{"domain": "legal"}]
    )
    kinds: tuple[str, ...] = Field(
        default=(), max_length=4, description="Further asset kinds", examples=[["vllm"]]
    )
    campaigns: int = Field(
        default=52,
        ge=1,
        le=10_000,
        description="Number of the newest campaigns that are partition keys",
        examples=[104],
    )

    @field_validator("owners")
    @classmethod
    def _owners_are_known_forms(cls, owners: tuple[str, ...]) -> tuple[str, ...]:
        for owner in owners:
            if not _OWNER.fullmatch(owner):
                raise ValueError(f"{owner!r} is neither team:NAME nor an e-mail address")
        return owners

    @field_validator("tags")
    @classmethod
    def _tags_are_short_words(cls, tags: dict[str, str]) -> dict[str, str]:
        for name, value in tags.items():
            if not _TAG.fullmatch(name) or not _TAG_VALUE.fullmatch(value):
                raise ValueError(
                    f"the tag {name!r}: {value!r} may only have letters, digits, '_', '.', '-'"
                )
        return tags

    @field_validator("kinds")
    @classmethod
    def _kinds_are_short_words(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for kind in kinds:
            if not _TAG_VALUE.fullmatch(kind) or not kind:
                raise ValueError(f"{kind!r} is not a kind: use letters, digits, '_', '.', '-'")
        return kinds


_TRACKER_KEYS = {"mlflow": {"tracking_uri", "experiment"}, "wandb": {"project", "entity"}}


class TrackSection(Section):
    """Experiment tracker that every report is logged to (docs/tracking.md): its name, or a section
    with its settings. Keys and passwords stay in the tracker's own environment variables."""

    kind: Literal["mlflow", "wandb"] = Field(description="The tracker: mlflow or wandb")
    tracking_uri: str | None = Field(
        default=None,
        min_length=1,
        description="MLflow: address of its server, or of a database or folder (sqlite:///..., a "
        "path from the study file). Default: MLFLOW_TRACKING_URI, else mlflow/ in the store",
        examples=["http://127.0.0.1:5000"],
        json_schema_extra={"with": {"kind": "mlflow"}},
    )
    experiment: str | None = Field(
        default=None,
        min_length=1,
        description="MLflow: experiment that the runs belong to. Default: contextcliff/ and the "
        "study's name",
        examples=["leases"],
        json_schema_extra={"with": {"kind": "mlflow"}},
    )
    project: str | None = Field(
        default=None,
        min_length=1,
        description="Weights & Biases: project of the runs. Default: WANDB_PROJECT, else "
        "contextcliff",
        examples=["leases"],
        json_schema_extra={"with": {"kind": "wandb"}},
    )
    entity: str | None = Field(
        default=None,
        min_length=1,
        description="Weights & Biases: user or team. Default: WANDB_ENTITY, else your own",
        examples=["my-team"],
        json_schema_extra={"with": {"kind": "wandb"}},
    )

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, given: Any) -> Any:
        return {"kind": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _keys_belong_together(self) -> Self:
        for kind, keys in _TRACKER_KEYS.items():
            for key in sorted(keys):
                if kind != self.kind and getattr(self, key) is not None:
                    raise ValueError(f"'{key}' is for 'kind: {kind}'")
        if self.tracking_uri and urlsplit(self.tracking_uri).username is not None:
            raise ValueError(
                "'tracking_uri' has a user or password in it; put them into "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )
        return self


class RegressionSection(Section):
    """Noise that the check `no_shrink` allows for (docs/regression.md)."""

    flip_rate: float = Field(
        default=0.05, gt=0, lt=0.5, description="Share of answers that may differ between runs"
    )
    yearly_error: float = Field(
        default=0.05, gt=0, lt=1, description="Chance that an unchanged study fails in a year"
    )
    runs_per_year: int = Field(
        default=52, ge=1, le=10_000, description="Runs that share `yearly_error`"
    )


class CronSection(Section):
    """A time for automatic measurements; the schedule must be switched on in Dagster."""

    cron: str = Field(
        description="Five fields: minute, hour, day, month, weekday", examples=["0 3 * * 1"]
    )
    timezone: str = Field(
        default="UTC",
        description="Time zone of `cron`",
        examples=["Europe/Zurich"],
        json_schema_extra={"with": {"cron": "0 3 * * 1"}},
    )

    @model_validator(mode="after")
    def _cron_means_something(self) -> Self:
        check_cron(self.cron)
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError("'timezone' is unknown; use e.g. UTC or Europe/Zurich") from error
        return self


class ScheduleSection(CronSection):
    """A new campaign at every tick."""

    grace_hours: float = Field(
        default=24,
        gt=0,
        le=100_000,
        description="Hours after a missed tick until the report counts as stale",
        json_schema_extra={"with": {"cron": "0 3 * * 1"}},
    )


class SentinelSection(CronSection):
    """A few examples at the cap at every tick (docs/regression.md)."""

    cron: str = Field(default="0 5 * * *", description="Five fields, e.g. 0 5 * * *: daily at 5")
    examples: int = Field(
        default=20,
        ge=10,
        le=MOST,
        description="Examples from the bin that holds the cap; at most samples_per_bin",
    )
    runs_per_year: int = Field(
        default=365,
        ge=1,
        le=10_000,
        description="Runs per year across which the yearly error rate is divided",
    )


class AlertsSection(Section):
    """Webhook that is called when `no_shrink` or a run fails (docs/regression.md)."""

    webhook_env: str | None = Field(
        default=None,
        description="Environment variable with the URL: never the URL itself",
        examples=["ALERTS_URL"],
    )


class BudgetSection(Section):
    """Money: a hard limit, and the estimate above which the terminal asks first."""

    usd: float | None = Field(
        default=None,
        ge=0,
        le=MOST_TOKENS,
        description="Hard limit; a call that could exceed it is not sent",
        examples=[5],
    )
    confirm_above_usd: float = Field(
        default=1.0,
        ge=0,
        le=MOST_TOKENS,
        description="Ask for confirmation if the estimated cost exceeds this",
    )


_FIELDS = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day", 1, 31, ""),
    ("month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    ("weekday", 0, 7, "sun mon tue wed thu fri sat"),
)
_PART = re.compile(r"(?:\*|(\w{1,3})(?:-(\w{1,3}))?)(?:/(\d{1,2}))?")
_LONGEST_MONTH = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def check_cron(line: str) -> None:
    """Check that ``line`` is minute, hour, day, month and weekday, and matches some time.

    Raises:
        ValueError: it is not; the message names the field.
    """
    fields = line.split()
    if len(fields) != len(_FIELDS):
        raise ValueError("'cron' has five fields: minute, hour, day, month, weekday")
    _, _, days, months, _ = (
        _values(text, *field) for text, field in zip(fields, _FIELDS, strict=True)
    )
    comes = any(min(days) <= _LONGEST_MONTH[month] for month in months)
    if not comes and fields[4] == "*":
        raise ValueError(f"'cron' names day {min(days)} of months that have no such day")


def _values(text: str, name: str, low: int, high: int, words: str) -> set[int]:
    values: set[int] = set()
    for part in text.lower().split(","):
        if name == "day" and part == "l":  # the last of the month
            values.add(28)
            continue
        match = _PART.fullmatch(part)
        first, last, step = match.groups() if match else (None, None, None)
        if first is None:
            start, end = low, high
        else:
            start = _number(first, low, words)
            end = _number(last, low, words) if last else (high if step else start)
        if match is None or step == "0":
            raise ValueError(f"'cron' has {text[:40]!r} as {name}, which means nothing")
        if not low <= start <= end <= high:
            raise ValueError(f"'cron' has {text[:40]!r} as {name}, which goes from {low} to {high}")
        values.update(range(start, end + 1, int(step or 1)))
    return values


def _number(text: str, low: int, words: str) -> int:
    if text in words.split():
        return words.split().index(text) + low
    return int(text) if text.isdecimal() else -1


NAME_CHARS = 60
"""Maximum length of a study name, which becomes a folder, Dagster group and part of asset keys."""
STUDY_NAME = rf"[a-z0-9][a-z0-9-]{{0,{NAME_CHARS - 1}}}"
"""Regular expression of a valid study name."""


def study_name(text: str) -> str:
    """Return ``text`` as a study name: unchanged if short enough, else cut, with a hash."""
    if len(text) <= NAME_CHARS:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: NAME_CHARS - 9].rstrip('-')}-{digest}"


class CorpusSection(BaseModel):
    """Where examples come from: ``kind`` and that kind's own options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str = Field(description="Corpus adapter", examples=["file"])

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def of_ones_own(self) -> bool:
        """Whether all questions come from the user's own files and none from a benchmark."""
        parts = self.options.get("parts") if self.kind == "mixed" else None
        kinds = [part.get("kind") for part in parts or () if isinstance(part, dict)] or [self.kind]
        return set(kinds) <= {"file", "folder"}

    def changed_options(
        self, change: Callable[[str, Mapping[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the options changed by ``change``, which takes their kind; also in mixed parts."""
        options = change(self.kind, self.options)
        if self.kind == "mixed" and isinstance(parts := options.get("parts"), list):
            options["parts"] = [
                change(str(part.get("kind")), part) if isinstance(part, dict) else part
                for part in parts
            ]
        return options


class BinsSection(Section):
    """How the length axis is cut."""

    kind: Literal["quantile", "fixed"] = Field(
        default="quantile",
        description="quantile: equally many documents in each; fixed: by width",
        examples=["quantile"],
    )
    count: int = Field(default=10, ge=1, le=100, description="Number of bins")
    width: int | None = Field(
        default=None,
        ge=1,
        le=MOST_TOKENS,
        description="Tokens per bin; for fixed bins only",
        examples=[4000],
        json_schema_extra={"with": {"kind": "fixed"}},
    )
    starved_below: int = Field(
        default=5, ge=1, le=MOST, description="Fewest distinct documents of a bin"
    )
    starved: Literal["merge", "refuse"] = Field(
        default="merge", description="A starved bin joins its neighbour, or the study is refused"
    )

    @model_validator(mode="after")
    def _width_belongs_to_fixed_bins(self) -> BinsSection:
        if (self.width is None) == (self.kind == "fixed"):
            raise ValueError("give 'width' for 'kind: fixed', and only then")
        return self


class TargetSection(Section):
    """Lengths the corpus must span for the study to mean anything."""

    min_tokens: int = Field(
        ge=0,
        le=MOST_TOKENS,
        description="The corpus must have a document this short",
        examples=[1000],
        json_schema_extra={"with": {"max_tokens": 60000}},
    )
    max_tokens: int = Field(
        ge=1,
        le=MOST_TOKENS,
        description="The corpus must have a document this long",
        examples=[60000],
        json_schema_extra={"with": {"min_tokens": 1000}},
    )

    @model_validator(mode="after")
    def _in_order(self) -> TargetSection:
        if self.min_tokens > self.max_tokens:
            raise ValueError("'min_tokens' must not exceed 'max_tokens'")
        return self


class SamplingSection(Section):
    """How many examples are drawn per bin, and which."""

    samples_per_bin: int = Field(
        default=20, ge=1, le=MOST, description="Examples per bin; larger samples contain smaller"
    )
    pilot_per_bin: int = Field(
        default=5, ge=1, le=MOST, description="Examples per bin of the job `pilot`"
    )
    seed: int = Field(default=0, ge=0, description="Another seed draws other examples")
    questions_per_document: int = Field(
        default=1, ge=1, le=MOST, description="Most questions on one document"
    )
    min_tokens: int = Field(
        default=0, ge=0, le=MOST_TOKENS, description="Leave out shorter documents"
    )

    @model_validator(mode="after")
    def _pilot_is_smaller(self) -> SamplingSection:
        if self.pilot_per_bin > self.samples_per_bin:
            raise ValueError("'pilot_per_bin' must not exceed 'samples_per_bin'")
        return self


class TargetedSection(Section):
    """A pilot, then rounds where tokens inform most; ``samples_per_bin`` limits each bin."""

    pilot: int = Field(
        default=5, ge=1, le=MOST, description="Examples per bin before targeting starts"
    )
    until: str = Field(
        default="5%",
        pattern=r"^\d+(\.\d+)?%$",
        description="Half-width of the window that must hold the loss, share of the examples",
    )

    @field_validator("until")
    @classmethod
    def _until_can_be_reached(cls, until: str) -> str:
        if not 1 <= float(until.removesuffix("%")) <= 25:
            raise ValueError("'until' is a percentage of 1% to 25%")
        return until

    round: int = Field(default=20, ge=1, le=MOST, description="Examples of one round")


class PromptSection(Section):
    """The request recipe. Files are relative to the study file."""

    mode: PromptMode = Field(
        default="chat",
        description="chat; chat_prefill: begins the answer; completion: plain text, base models",
    )
    template: str | None = Field(
        default=None,
        description="Template with {document} and {question}: a file, or the text itself",
        examples=["template.txt"],
    )
    system: str | None = Field(
        default=None, description="File with the system text", examples=["system.txt"]
    )
    answer_prefix: str | None = Field(
        default=None,
        description="The beginning of the answer; may contain {question}",
        examples=["Answer:"],
        json_schema_extra={"with": {"mode": "chat_prefill"}},
    )
    instructions: str | None = Field(
        default=None,
        description="File with one wording of the instruction per line; default: ours",
        examples=["wordings.txt"],
    )
    replicates: int = Field(
        default=1, ge=1, le=MOST, description="Calls per example, each worded differently"
    )
    max_output_tokens: int = Field(
        default=32, ge=1, le=MOST_TOKENS, description="Most answer tokens; thinking needs 1000s"
    )
    prefix_cache: bool = Field(
        default=True,
        description="off: spread out calls on one document, so engines reuse nothing; for TTFT",
    )
    output_schema: dict[str, Any] | None = Field(
        default=None,
        description="JSON Schema of the answer: others are tagged `schema_violation`",
        examples=[{"type": "object", "required": ["answer"]}],
    )

    @model_validator(mode="after")
    def _replicates_differ(self) -> PromptSection:
        if self.replicates > len(NEUTRAL_WORDINGS) and self.instructions is None:
            raise ValueError(
                f"more than {len(NEUTRAL_WORDINGS)} 'replicates' need 'instructions', a file with "
                "one wording per line: at temperature 0 the same prompt twice buys the same answer "
                "twice"
            )
        return self

    @model_validator(mode="after")
    def _only_a_prefill_needs_a_begun_answer(self) -> PromptSection:
        if self.mode == "chat_prefill" and not self.answer_prefix:
            raise ValueError(
                "'mode: chat_prefill' needs 'answer_prefix', the beginning of the answer"
            )
        if self.mode == "chat" and self.answer_prefix is not None:
            raise ValueError("'mode: chat' takes no 'answer_prefix'; write 'mode: chat_prefill'")
        return self


class LatencySection(Section):
    """Longest time that a user waits (docs/method.md, Latency)."""

    ttft_ms_p95: float = Field(
        gt=0,
        le=MOST_TOKENS,
        description="Limit on the time to the first token in ms, kept by 95% of calls",
        examples=[2000],
    )


class ScoringSection(Section):
    """How answers are judged (studies/README.md)."""

    primary: PrimaryScore = Field(
        default="em",
        description="em: the whole answer is right; f1: words shared; contained: right words in it",
    )
    scorer: str = Field(
        default="auto",
        description="auto: each question by its benchmark's own rule, lettered options by letter, "
        "other answers as text; typed: by the kind of the accepted answer, wherever the reply "
        "states it; or text, numeric, choice, structured, or one of a package",
    )
    thought_tags: tuple[str, ...] | None = Field(
        default=None,
        description="Further tags around the model's thoughts; `think` etc. are built in",
        examples=[["scratchpad"]],
    )
    labels: tuple[str, ...] | None = Field(
        default=None,
        min_length=2,
        description="For `typed`: the small set of labels that answers come from",
        examples=[["approved", "rejected"]],
    )


class AnalysisSection(Section):
    """How the cap is found (docs/method.md)."""

    tolerance: float = Field(
        default=0.3, gt=0, lt=1, description="Acceptable drop, as a share of the first score"
    )
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="For cap and intervals")
    resamples: int = Field(default=2000, ge=100, le=MOST, description="Bootstrap samples")
    assumption: Literal["falling", "any"] = Field(
        default="falling",
        description="falling: a model that fails at a length does not recover at a longer one; "
        "any: the cap holds for drops that recover, too, and is shorter",
    )
    chance: float = Field(
        default=0.0,
        ge=0,
        le=0.9,
        description="Mean score of guessing; losses are measured above it",
        examples=[0.25],
    )
    min_score: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Least mean score up to the cap for the cap to be of use; below it, reports "
        "grey the cap and there is no policy",
        examples=[0.8],
    )


class CallsSection(Section):
    """Settings for making calls that belong to the study and not to the model."""

    concurrency: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="Most calls at once, whatever the model's entry says; 1 for TTFT",
        examples=[1],
    )
    deadline_s: float | None = Field(
        default=None,
        gt=0,
        le=MOST_TOKENS,
        description="Seconds after which a run sends no more calls",
        examples=[3600],
    )
    order: Literal["blocks", "by_length"] = Field(
        default="blocks",
        description="blocks: a document of every bin in turn, so that what drifts in time is no "
        "effect of length; by_length: bin after bin, so that each is finished early",
    )
    batch: bool = Field(
        default=False,
        description="Ask through the models' batch interfaces: cheaper, but answers may take a day",
    )
