"""The sections of a study file: their keys, defaults and checks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from contextcliff_dagster.contracts import PrimaryScore, PromptMode
from contextcliff_dagster.inference.requests.wordings import NEUTRAL_WORDINGS
from contextcliff_dagster.studies.cron import check_cron
from contextcliff_dagster.studies.section import Section as Section

_MOST, _MOST_TOKENS = 1_000_000, 1_000_000_000
"""Of examples, calls and the like; of tokens, seconds or dollars: more is a slip of the pen."""

NAME_CHARS = 60
"""A study's name is a folder, a Dagster group and a part of asset keys."""


def study_name(text: str) -> str:
    """``text`` as a study's name: unchanged where it is short enough, else cut, with a hash."""
    if len(text) <= NAME_CHARS:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: NAME_CHARS - 9].rstrip('-')}-{digest}"


class CorpusSection(BaseModel):
    """Where examples come from: ``kind`` and that kind's own options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str = Field(description="Corpus adapter, e.g. reference, file")

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def changed_options(
        self, change: Callable[[str, Mapping[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """The options as ``change`` makes them by kind, in each part too where parts are mixed."""
        options = change(self.kind, self.options)
        if self.kind == "mixed" and isinstance(parts := options.get("parts"), list):
            options["parts"] = [
                change(str(part.get("kind")), part) if isinstance(part, dict) else part
                for part in parts
            ]
        return options


class BinsSection(Section):
    """How the length axis is cut."""

    kind: Literal["quantile", "fixed"] = "quantile"
    count: int = Field(default=10, ge=1, le=100, description="Number of bins")
    width: int | None = Field(
        default=None, ge=1, le=_MOST_TOKENS, description="Tokens per bin, for fixed bins"
    )
    starved_below: int = Field(
        default=5, ge=1, le=_MOST, description="Fewer distinct documents than this: starved"
    )
    starved: Literal["merge", "refuse"] = "merge"

    @model_validator(mode="after")
    def _width_belongs_to_fixed_bins(self) -> BinsSection:
        if (self.width is None) == (self.kind == "fixed"):
            raise ValueError("give 'width' for 'kind: fixed', and only then")
        return self


class TargetSection(Section):
    """Lengths the corpus must span for the study to mean anything."""

    min_tokens: int = Field(ge=0, le=_MOST_TOKENS)
    max_tokens: int = Field(ge=1, le=_MOST_TOKENS)

    @model_validator(mode="after")
    def _in_order(self) -> TargetSection:
        if self.min_tokens > self.max_tokens:
            raise ValueError("'min_tokens' must not exceed 'max_tokens'")
        return self


class SamplingSection(Section):
    """How many examples are drawn per bin, and which."""

    samples_per_bin: int = Field(default=20, ge=1, le=_MOST)
    pilot_per_bin: int = Field(
        default=5, ge=1, le=_MOST, description="Examples per bin of the job `pilot`"
    )
    seed: int = Field(default=0, ge=0)
    questions_per_document: int = Field(default=1, ge=1, le=_MOST)
    min_tokens: int = Field(
        default=0, ge=0, le=_MOST_TOKENS, description="Shorter documents are left out"
    )

    @model_validator(mode="after")
    def _pilot_is_smaller(self) -> SamplingSection:
        if self.pilot_per_bin > self.samples_per_bin:
            raise ValueError("'pilot_per_bin' must not exceed 'samples_per_bin'")
        return self


class TargetedSection(Section):
    """Pilot, then rounds where a token is most informative; ``samples_per_bin``: a bin's most."""

    pilot: int = Field(
        default=5, ge=1, le=_MOST, description="Examples per bin before anything is aimed at"
    )
    until: str = Field(
        default="5%",
        pattern=r"^\d+(\.\d+)?%$",
        description="Half-width of the window that is to hold the loss, share of the examples",
    )

    @field_validator("until")
    @classmethod
    def _until_can_be_reached(cls, until: str) -> str:
        if not 1 <= float(until.removesuffix("%")) <= 25:
            raise ValueError("'until' is a percentage of 1% to 25%")
        return until

    round: int = Field(default=20, ge=1, le=_MOST, description="Examples of one round")


class PromptSection(Section):
    """The request recipe. Files are relative to the study file."""

    mode: PromptMode = "chat"
    template: str | None = Field(
        default=None, description="File with {document} and {question}, or that text itself"
    )
    system: str | None = Field(default=None, description="File with the system text")
    answer_prefix: str | None = Field(
        default=None, description="The beginning of the answer; may contain {question}"
    )
    instructions: str | None = Field(
        default=None,
        description="File with one wording of the instruction per line; without it, ours",
    )
    replicates: int = Field(
        default=1, ge=1, le=_MOST, description="Calls per example, each in another wording"
    )
    max_output_tokens: int = Field(default=32, ge=1, le=_MOST_TOKENS)
    prefix_cache: bool = Field(
        default=True,
        description="off: calls of one document are kept apart and engines reuse nothing; for TTFT",
    )
    output_schema: dict[str, Any] | None = None

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
    """What a user waits at most (docs/method.md, Latency)."""

    ttft_ms_p95: float = Field(
        gt=0, le=_MOST_TOKENS, description="Limit on the time to the first token, 95% of calls"
    )


class ScoringSection(Section):
    primary: PrimaryScore = "em"
    scorer: str = Field(
        default="auto",
        description="auto: each question by its benchmark's own rule, lettered options by letter, "
        "other answers as text; or text, numeric, choice, structured, or one of a package",
    )


class AnalysisSection(Section):
    tolerance: float = Field(default=0.3, gt=0, lt=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    resamples: int = Field(default=2000, ge=100, le=_MOST)
    assumption: Literal["falling", "any"] = Field(
        default="falling",
        description="falling: a model that fails at a length does not recover at a longer one; "
        "any: the cap holds for drops that recover, too, and is shorter",
    )


class CallsSection(Section):
    """How the calls are made, where it is the study's business and not the model's."""

    concurrency: int | None = Field(
        default=None,
        ge=1,
        le=_MOST,
        description="At most so many calls at once, whatever the model's entry says; 1 for TTFT",
    )
    deadline_s: float | None = Field(
        default=None,
        gt=0,
        le=_MOST_TOKENS,
        description="Seconds after which one run sends nothing more",
    )
    order: Literal["blocks", "by_length"] = Field(
        default="blocks",
        description="blocks: a document of every bin in turn, so that what drifts in time is no "
        "effect of length; by_length: bin after bin, so that each is finished early",
    )


class RegressionSection(Section):
    """What the check `no_shrink` takes for noise (docs/regression.md)."""

    flip_rate: float = Field(
        default=0.05, gt=0, lt=0.5, description="Share of answers that may differ between runs"
    )
    yearly_error: float = Field(
        default=0.05, gt=0, lt=1, description="Chance that an unchanged study fails in a year"
    )
    runs_per_year: int = Field(default=52, ge=1, le=10_000)


class CronSection(Section):
    """When something is measured by itself; its schedule has to be switched on in Dagster."""

    cron: str = Field(description="Five fields, e.g. 0 3 * * 1: Mondays at 3")
    timezone: str = "UTC"

    @model_validator(mode="after")
    def _cron_means_something(self) -> Self:
        check_cron(self.cron)
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError("'timezone' is unknown; write e.g. UTC or Europe/Zurich") from error
        return self


class ScheduleSection(CronSection):
    """A new campaign at every tick."""

    grace_hours: float = Field(
        default=24,
        gt=0,
        le=100_000,
        description="The report is stale so long after a tick it has missed",
    )


class SentinelSection(CronSection):
    """A few examples at the cap at every tick (docs/regression.md)."""

    cron: str = Field(default="0 5 * * *", description="Five fields, e.g. 0 5 * * *: daily at 5")
    examples: int = Field(
        default=20,
        ge=10,
        le=_MOST,
        description="Of the bin that holds the cap; at most samples_per_bin",
    )
    runs_per_year: int = Field(
        default=365, ge=1, le=10_000, description="The year's error rate is divided by it"
    )


class AlertsSection(Section):
    """Who else is alerted when `no_shrink` fails (docs/regression.md)."""

    webhook_env: str | None = Field(
        default=None, description="Environment variable with the URL: never the URL itself"
    )


class BudgetSection(Section):
    """Money: a hard limit, and the estimate above which the terminal asks first."""

    usd: float | None = Field(default=None, ge=0, le=_MOST_TOKENS)
    confirm_above_usd: float = Field(default=1.0, ge=0, le=_MOST_TOKENS)
