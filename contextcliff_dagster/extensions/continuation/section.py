"""The key `continuation` of a study file, and the cells that it specifies."""

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
from contextcliff_dagster.extensions.continuation.compat.slicing import context_lengths
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies.sections import Section, listed

BASE, BUILT_IN = "base", "built-in"
LEFT_FOR_TEMPLATE = 128
"""Tokens of a server's window left unused, because 100 tokens are reserved for a chat template that
cannot be counted, and a prompt that might not fit is not sent."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A partition of the study; ``arm`` is `BASE` or how it differs from it, as in the records."""

    tokens: int
    temperature: float
    arm: str

    @property
    def key(self) -> str:
        """Return the partition's key, e.g. ``c004096`` or ``c004096-t0_7``; keys sort by size."""
        suffix = "" if self.arm == BASE else f"-t{self.temperature:g}".replace(".", "_")
        return f"c{self.tokens:06d}{suffix}"


def cells_of(section: ContinuationSection) -> tuple[Cell, ...]:
    """Return the cells of a study, by temperature as listed, then by ascending size."""
    first = section.temperature[0]
    return tuple(
        Cell(size, temperature, BASE if temperature == first else f"temperature {temperature:g}")
        for temperature in section.temperature
        for size in section.sizes
    )


_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*(k|m)?", re.IGNORECASE)
_FACTOR = {"": 1, "k": 1024, "m": 1024**2}


_NEEDS: dict[str, Any] = {"with": {"texts": ["novel.txt"]}}
"""Key that every other key requires, added to the examples in docs/studies.md."""
_key: Any = partial(Field, json_schema_extra=_NEEDS)


def tokens_of(label: Any) -> int:
    """Parse a number of tokens, ``4096``, ``"4k"`` (4,096) or ``"1M"``; raise ValueError."""
    match = _SIZE.fullmatch(str(label).strip().replace(",", ""))
    size = round(float(match[1]) * _FACTOR[(match[2] or "").lower()]) if match else 0
    if size < 1 or isinstance(label, bool):
        raise ValueError(f"{label!r} is not a number of tokens; use 4096, 4k or 1M")
    return size


Tokens = Annotated[int, BeforeValidator(tokens_of, json_schema_input_type=int | str)]


class EmbeddingServer(Section):
    """OpenAI-compatible server that embeds sentences at ``/embeddings``."""

    base_url: str = Field(description="Address of the server, up to /v1")
    model: str = Field(min_length=1, max_length=300, description="Embedding model's name")
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        default=None, description="Environment variable that holds the key, never the key itself"
    )

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        # The message omits the address, because it may hold a password.
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            usable = usable and not (parts.query or parts.fragment or "@" in parts.netloc)
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("should be an address like http://HOST:PORT/v1, without user and key")
        return value

    @property
    def name(self) -> str:
        """Return the embedder's name in results."""
        return f"{self.model} at {urlsplit(self.base_url).netloc}"


Embeddings = Annotated[
    Annotated[Literal["auto", "local", "none"], Tag("word")]
    | Annotated[EmbeddingServer, Tag("server")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "server"),
]


class ContinuationSection(Section):
    """Settings of the experiment that continues texts at growing context sizes."""

    texts: Annotated[
        tuple[str, ...],
        BeforeValidator(listed, json_schema_input_type=list[str] | str),
        Field(min_length=1),
    ] = Field(
        description="Files of prose (txt, md, html, pdf, docx, epub), relative to the study's file",
        examples=[["novel.txt"]],
    )
    max_context: Tokens = _key(
        default=16384, description="Largest window, including the continuation", examples=[32768]
    )
    start_context: Tokens = _key(default=2048, description="Smallest window", examples=[4096])
    divisions: int = _key(
        default=0,
        ge=0,
        le=16,
        description="Sizes between two doublings, at equal ratios; with `compat` the number of "
        "equal steps, a power of two, 1 unless given",
    )
    passages: int = _key(default=8, ge=1, le=500, description="Points in each text")
    rounds: int = _key(
        default=10, ge=1, le=1000, description="Seeded continuations per point and size"
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
        default=100, ge=0, le=1_000_000, description="Most likely tokens to draw from; 0: all"
    )
    top_p: float = _key(default=1.0, gt=0, le=1, description="Share of probability to draw from")
    seed: int = _key(default=0, ge=0, le=2**31 - 2001, description="Seed of the first round")
    margin: float = _key(default=0.1, gt=0, le=0.5, description="Decline of the score that matters")
    instruction: str = _key(
        default="",
        description="Instruction after the context; empty: the built-in one; `context-tester`: "
        "what that tool asks for",
        examples=["Go on with the story."],
    )
    tokenizer: str = _key(
        default="",
        description=f"Tokenizer of windows; else the study's, else {DEFAULT_TOKENIZER}",
        examples=["tiktoken:cl100k_base"],
    )
    embeddings: Embeddings = _key(
        default="auto",
        description="Embeddings for the coherence of sentences: `auto` is `local` if the extra "
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
        description="Measure one passage with the sizes, contexts and figures of this tool",
        examples=["context-tester"],
    )
    word_list: str = Field(
        default="",
        description="Familiar words of the cloze score of `compat`: a file with one per line, or "
        "`built-in`; without them there is none",
        examples=["easy_words.txt"],
        json_schema_extra={"with": {**_NEEDS["with"], "compat": "context-tester"}},
    )

    @model_validator(mode="before")
    @classmethod
    def _compat_has_defaults_of_its_own(cls, keys: Any) -> Any:
        if isinstance(keys, dict) and keys.get("compat"):
            return {"passages": 1, "divisions": 1, **keys}
        return keys

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
                f"the smallest window, {smallest:,} tokens, must hold {self.max_tokens:,} of "
                "continuation and at least as much context: raise 'start_context' or lower "
                "'max_tokens'"
            )
        if unknown_sizes := sorted(set(self.further_rounds) - set(self.sizes)):
            raise ValueError(
                f"'further_rounds' names {unknown_sizes[0]:,}, which is not a size of the study"
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
            raise ValueError("'compat' measures at one 'temperature'; run each one on its own")
        if self.start_context < 2 * self.max_tokens:
            raise ValueError(
                f"--start-context is {self.start_context:,}, less than twice --max-tokens "
                f"({self.max_tokens:,}); start at {2 * self.max_tokens:,} or generate less"
            )

    def rounds_at(self, size: int) -> int:
        """Return the number of continuations of each point at a window of ``size`` tokens."""
        return self.rounds + self.further_rounds.get(size, 0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the windows in tokens, smallest first."""
        if self.compat:
            return tuple(context_lengths(self.max_context, self.divisions, self.start_context))
        return context_sizes(self.max_context, self.start_context, self.divisions)

    @property
    def text_names(self) -> tuple[str, ...]:
        """Return the names of the texts: slugs of their file names."""
        return tuple(slug(PurePath(file).stem) or "text" for file in self.texts)

    @property
    def named_files(self) -> Sequence[str]:
        """Return the files that the section specifies; files outside its folder need permission."""
        return (*self.texts, *({self.word_list} - {"", BUILT_IN}))

    @property
    def named_servers(self) -> Sequence[str]:
        """Return the servers that texts are sent to, for which a study needs permission."""
        return [self.embeddings.base_url] if isinstance(self.embeddings, EmbeddingServer) else []


SMALLEST = 2048


def context_sizes(most: int, least: int = SMALLEST, divisions: int = 0) -> tuple[int, ...]:
    """Return window sizes in tokens, doubling from ``least`` to ``most``, with optional sizes
    between.

    ``divisions`` is the number of sizes between neighbours, at equal ratios: 1 adds the geometric
    mean. ``most`` is always the last size, even if doubling does not reach it.

    Raises:
        StudyError: no size fits.
    """
    if most < least:
        raise StudyError(
            f"The largest context, {most:,} tokens, is below the smallest, {least:,}; raise one or "
            "lower the other."
        )
    doublings = [least]
    while doublings[-1] * 2 <= most:
        doublings.append(doublings[-1] * 2)
    steps = divisions + 1
    sizes = {round(size * 2 ** (part / steps)) for size in doublings for part in range(steps)}
    return tuple(sorted({most, *(size for size in sizes if size <= most)}))
