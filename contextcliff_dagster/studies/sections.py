"""The sections of a study file: their keys, defaults and checks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from contextcliff_dagster.contracts import PrimaryScore, PromptMode
from contextcliff_dagster.inference.requests.wordings import NEUTRAL_WORDINGS
from contextcliff_dagster.studies.section import Section as Section

MOST, MOST_TOKENS = 1_000_000, 1_000_000_000
"""Of examples, calls and the like; of tokens, seconds or dollars: more is a slip of the pen."""

NAME_CHARS = 60
"""A study's name is a folder, a Dagster group and a part of asset keys."""
STUDY_NAME = rf"[a-z0-9][a-z0-9-]{{0,{NAME_CHARS - 1}}}"
"""As a regular expression."""


def study_name(text: str) -> str:
    """``text`` as a study's name: unchanged where it is short enough, else cut, with a hash."""
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
        """Whether every question is of a file of the user's own, and none of a benchmark."""
        parts = self.options.get("parts") if self.kind == "mixed" else None
        named = [part.get("kind") for part in parts or () if isinstance(part, dict)] or [self.kind]
        return set(named) <= {"file", "folder"}

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
        description="Tokens per bin, for fixed bins and for these alone",
        examples=[4000],
        json_schema_extra={"with": {"kind": "fixed"}},
    )
    starved_below: int = Field(
        default=5, ge=1, le=MOST, description="Fewer distinct documents than this: starved"
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
        description="A document as short as this",
        examples=[1000],
        json_schema_extra={"with": {"max_tokens": 60000}},
    )
    max_tokens: int = Field(
        ge=1,
        le=MOST_TOKENS,
        description="And one as long as this",
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
        default=20, ge=1, le=MOST, description="Examples per bin; a larger sample holds a smaller"
    )
    pilot_per_bin: int = Field(
        default=5, ge=1, le=MOST, description="Examples per bin of the job `pilot`"
    )
    seed: int = Field(default=0, ge=0, description="Another one draws other examples")
    questions_per_document: int = Field(
        default=1, ge=1, le=MOST, description="Questions on one document at most"
    )
    min_tokens: int = Field(
        default=0, ge=0, le=MOST_TOKENS, description="Shorter documents are left out"
    )

    @model_validator(mode="after")
    def _pilot_is_smaller(self) -> SamplingSection:
        if self.pilot_per_bin > self.samples_per_bin:
            raise ValueError("'pilot_per_bin' must not exceed 'samples_per_bin'")
        return self


class TargetedSection(Section):
    """Pilot, then rounds where a token is most informative; ``samples_per_bin``: a bin's most."""

    pilot: int = Field(
        default=5, ge=1, le=MOST, description="Examples per bin before anything is aimed at"
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

    round: int = Field(default=20, ge=1, le=MOST, description="Examples of one round")


class PromptSection(Section):
    """The request recipe. Files are relative to the study file."""

    mode: PromptMode = Field(
        default="chat",
        description="chat; chat_prefill: the answer is begun; completion: plain text, base models",
    )
    template: str | None = Field(
        default=None,
        description="File with {document} and {question}, or that text itself",
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
        description="File with one wording of the instruction per line; without it, ours",
        examples=["wordings.txt"],
    )
    replicates: int = Field(
        default=1, ge=1, le=MOST, description="Calls per example, each in another wording"
    )
    max_output_tokens: int = Field(
        default=32, ge=1, le=MOST_TOKENS, description="Longest answer; thinking takes thousands"
    )
    prefix_cache: bool = Field(
        default=True,
        description="off: calls of one document are kept apart and engines reuse nothing; for TTFT",
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
    """What a user waits at most (docs/method.md, Latency)."""

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
        description="Further tags that the model thinks in; `think` and the like are known",
        examples=[["scratchpad"]],
    )
    labels: tuple[str, ...] | None = Field(
        default=None,
        min_length=2,
        description="Of `typed`: the small set that every answer is from",
        examples=[["approved", "rejected"]],
    )


class AnalysisSection(Section):
    """How the cap is found (docs/method.md)."""

    tolerance: float = Field(
        default=0.3, gt=0, lt=1, description="Drop of the score, of its start, that is acceptable"
    )
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="Of the cap and intervals")
    resamples: int = Field(default=2000, ge=100, le=MOST, description="Of each bootstrap")
    assumption: Literal["falling", "any"] = Field(
        default="falling",
        description="falling: a model that fails at a length does not recover at a longer one; "
        "any: the cap holds for drops that recover, too, and is shorter",
    )
    chance: float = Field(
        default=0.0,
        ge=0,
        le=0.9,
        description="Mean score of guessing: what is lost is measured above it",
        examples=[0.25],
    )


class CallsSection(Section):
    """How the calls are made, where it is the study's business and not the model's."""

    concurrency: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="At most so many calls at once, whatever the model's entry says; 1 for TTFT",
        examples=[1],
    )
    deadline_s: float | None = Field(
        default=None,
        gt=0,
        le=MOST_TOKENS,
        description="Seconds after which one run sends nothing more",
        examples=[3600],
    )
    order: Literal["blocks", "by_length"] = Field(
        default="blocks",
        description="blocks: a document of every bin in turn, so that what drifts in time is no "
        "effect of length; by_length: bin after bin, so that each is finished early",
    )
