"""The key `continuation` of a study file, and what is measured apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.common.documents import DEFAULT_TOKENIZER
from contextcliff_dagster.extensions.continuation.compat.slicing import (
    context_lengths,
    require_start,
)
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies.sections import Section, listed

BASE = "base"


@dataclass(frozen=True, slots=True)
class Cell:
    """One partition. ``arm``: as in the records, `BASE` or what differs from it."""

    tokens: int
    temperature: float
    arm: str

    @property
    def key(self) -> str:
        """The partition's key: ``c004096``, ``c004096-t0_7``; keys sort as sizes do."""
        hot = "" if self.arm == BASE else f"-t{self.temperature:g}".replace(".", "_")
        return f"c{self.tokens:06d}{hot}"


def cells_of(section: ContinuationSection) -> tuple[Cell, ...]:
    """Return the cells of a study, those of the first temperature first, the smallest first."""
    first = section.temperature[0]
    return tuple(
        Cell(size, hot, BASE if hot == first else f"temperature {hot:g}")
        for hot in section.temperature
        for size in section.sizes
    )


_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*(k|m)?", re.IGNORECASE)
_FACTOR = {"": 1, "k": 1024, "m": 1024**2}


_NEEDS: dict[str, Any] = {"with": {"texts": ["novel.txt"]}}
"""What every other key needs next to it, for the examples in docs/studies.md."""
_key: Any = partial(Field, json_schema_extra=_NEEDS)


def tokens_of(label: Any) -> int:
    """Return the tokens of ``4096``, ``"4k"`` (4,096) or ``"1M"`` (1,048,576).

    Raises:
        ValueError: it is none of these.
    """
    match = _SIZE.fullmatch(str(label).strip().replace(",", ""))
    size = round(float(match[1]) * _FACTOR[(match[2] or "").lower()]) if match else 0
    if size < 1 or isinstance(label, bool):
        raise ValueError(f"{label!r} is no number of tokens; write 4096, 4k or 1M")
    return size


Tokens = Annotated[int, BeforeValidator(tokens_of, json_schema_input_type=int | str)]


class EmbeddingServer(Section):
    """An OpenAI-compatible server whose ``/embeddings`` are asked."""

    base_url: str = Field(description="Its address up to /v1")
    model: str = Field(min_length=1, max_length=300, description="The model as it calls it")
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        default=None, description="Environment variable that holds the key, never the key itself"
    )

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        # The text is not repeated: it may hold a password.
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            usable = usable and not (parts.query or parts.fragment or "@" in parts.netloc)
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("should be an address as http://HOST:PORT/v1, without user and key")
        return value

    @property
    def name(self) -> str:
        """The embedder's name in results."""
        return f"{self.model} at {urlsplit(self.base_url).netloc}"


Embeddings = Annotated[
    Annotated[Literal["auto", "local", "none"], Tag("word")]
    | Annotated[EmbeddingServer, Tag("server")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "server"),
]


class ContinuationSection(Section):
    """A model continues texts from fixed points, at growing sizes of its context."""

    texts: Annotated[
        tuple[str, ...],
        BeforeValidator(listed, json_schema_input_type=list[str] | str),
        Field(min_length=1),
    ] = Field(
        description="Files of prose (txt, md, html, pdf, docx, epub), relative to the study's file",
        examples=[["novel.txt"]],
    )
    max_context: Tokens = _key(
        default=16384, description="Largest window, with the continuation in it", examples=[32768]
    )
    start_context: Tokens = _key(default=2048, description="Smallest window", examples=[4096])
    divisions: int = _key(
        default=0,
        ge=0,
        le=16,
        description="Sizes between two doublings, at equal ratios; with `compat` equal steps from "
        "one to the other, a power of two; 1, the default there: no size between",
    )
    passages: int = _key(default=8, ge=1, le=500, description="Points in each text")
    rounds: int = _key(
        default=10, ge=1, le=1000, description="Continuations of each point and size, by seed"
    )
    max_tokens: Tokens = _key(
        default=1024, description="Longest continuation, part of every window"
    )
    temperature: Annotated[
        tuple[Annotated[float, Field(ge=0, le=2)], ...],
        BeforeValidator(listed, json_schema_input_type=list[float] | float),
        Field(min_length=1),
    ] = _key(
        default=(1.0,),
        description="One value, or a list whose first value is compared with each of the others",
        examples=[[1.0, 0.7]],
    )
    top_k: int = _key(
        default=100, ge=0, le=1_000_000, description="Tokens that may be drawn; 0: all"
    )
    top_p: float = _key(default=1.0, gt=0, le=1, description="Their share of the probability")
    seed: int = _key(default=0, ge=0, le=2**31 - 2001, description="Seed of the first round")
    margin: float = _key(default=0.1, gt=0, le=0.5, description="Decline of the score that matters")
    instruction: str = _key(
        default="",
        description="What is asked after the context; empty: our own words",
        examples=["Go on with the story."],
    )
    tokenizer: str = _key(
        default="",
        description=f"Counts windows; else the study's, else {DEFAULT_TOKENIZER}",
        examples=["tiktoken:cl100k_base"],
    )
    embeddings: Embeddings = _key(
        default="auto",
        description="For the coherence of sentences: `auto` is `local` where the extra "
        "`embeddings` is installed, else `none`; or `base_url`, `model` and `api_key_env` of a "
        "server",
        examples=["local"],
    )

    further_rounds: dict[Tokens, Annotated[int, Field(ge=1, le=1000)]] = _key(
        default_factory=dict,
        description="More continuations at single sizes: window -> number",
        examples=[{4096: 5}],
    )
    compat: Literal["", "context-tester"] = _key(
        default="",
        description="Measure one passage as this tool does: its sizes, contexts and figures",
        examples=["context-tester"],
    )
    word_list: str = Field(
        default="",
        description="File of familiar words, one on each line, for `compat`",
        examples=["easy_words.txt"],
        json_schema_extra={"with": {**_NEEDS["with"], "compat": "context-tester"}},
    )

    @model_validator(mode="before")
    @classmethod
    def _compat_has_defaults_of_its_own(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("compat"):
            return {"passages": 1, "divisions": 1, **given}
        return given

    @field_validator("temperature")
    @classmethod
    def _temperatures_differ(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(value)) < len(value):
            raise ValueError("a temperature is listed twice")
        return value

    @model_validator(mode="after")
    def _sizes_hold_a_continuation(self) -> ContinuationSection:
        if len(set(self.text_names)) < len(self.texts):
            raise ValueError("two texts have the same name; rename a file")
        if self.max_tokens < 16:
            raise ValueError("'max_tokens' should be at least 16")
        try:
            smallest = self.sizes[0]
        except StudyError as error:
            raise ValueError(str(error).rstrip(".")) from None
        self._require_compat()
        if smallest < 2 * self.max_tokens:
            raise ValueError(
                f"the smallest window, {smallest:,} tokens, is to hold {self.max_tokens:,} of "
                "continuation and at least as much context: raise 'start_context' or lower "
                "'max_tokens'"
            )
        if strange := sorted(set(self.further_rounds) - set(self.sizes)):
            raise ValueError(
                f"'further_rounds' names {strange[0]:,}, which is no size of the study"
            )
        return self

    def _require_compat(self) -> None:
        if not self.compat:
            if self.word_list:
                raise ValueError("'word_list' goes with 'compat'; nothing else uses one")
            return
        for key, count in (("texts", len(self.texts)), ("passages", self.passages)):
            if count != 1:
                raise ValueError(f"'compat' measures one passage of one text; '{key}' has {count}")
        if len(self.temperature) != 1:
            raise ValueError("'compat' measures at one 'temperature'; make a run of each")
        try:
            require_start(self.start_context, self.max_tokens)
        except StudyError as error:
            raise ValueError(str(error).rstrip(".")) from None

    def rounds_at(self, size: int) -> int:
        """Continuations of each point at a window of ``size`` tokens."""
        return self.rounds + self.further_rounds.get(size, 0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Windows in tokens, the smallest first."""
        if self.compat:
            return tuple(context_lengths(self.max_context, self.divisions, self.start_context))
        return context_sizes(self.max_context, self.start_context, self.divisions)

    @property
    def text_names(self) -> tuple[str, ...]:
        """The texts by slugs of their file names."""
        return tuple(slug(PurePath(file).stem) or "text" for file in self.texts)

    @property
    def named_files(self) -> Sequence[str]:
        """Files that a study names here: those beyond its folder need its user's leave."""
        return (*self.texts, *([self.word_list] if self.word_list else []))

    @property
    def named_servers(self) -> Sequence[str]:
        """Addresses that a study names here: texts are sent there, which needs leave likewise."""
        return [self.embeddings.base_url] if isinstance(self.embeddings, EmbeddingServer) else []


SMALLEST = 2048


def context_sizes(most: int, least: int = SMALLEST, divisions: int = 0) -> tuple[int, ...]:
    """Return tokens of the windows: ``least`` doubled up to ``most``, and points between.

    ``divisions``: points between two neighbours, equal steps of the ratio: 1 adds the geometric
    mean. ``most`` is the last size, whether or not it is a doubling of the first.

    Raises:
        StudyError: there is no size, or a number is out of its bounds.
    """
    if least < 1 or divisions < 0:
        raise StudyError(
            f"A smallest context of {least} tokens with {divisions} divisions cannot be; give at "
            "least 1 token and no negative number of divisions."
        )
    if most < least:
        raise StudyError(
            f"The largest context, {most:,} tokens, is below the smallest, {least:,}; raise one or "
            "lower the other."
        )
    doublings = [least]
    while doublings[-1] * 2 <= most:
        doublings.append(doublings[-1] * 2)
    steps = divisions + 1
    sizes = {round(size * 2 ** (part / steps)) for size in doublings for part in range(steps)} | {
        most
    }
    return tuple(sorted(size for size in sizes if size <= most))
