"""A study made on the spot of the experiment continuation, from the options of its command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from contextcliff_dagster.cli.measuring.study_of_options import digest, first_error, given_keys
from contextcliff_dagster.cli.options import Finite, count_option, gathered_as, together
from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.studies import Study

_NAMES = {"temperature": "temp"}
"""Key of the section -> option, where that has another name."""
_KEYS = (
    *("max_context", "start_context", "divisions", "rounds", "passages"),
    *("max_tokens", "temperature", "top_k", "top_p", "seed"),
)
_LATER = ("further_rounds", "compat", "word_list")
"""Keys that are in the digest only where they are used: older studies keep their names."""
_HOTTEST = 2
_LAST_SEED = 2**31 - 2001
_TEMPLATE_TOKENS = 128
"""Left free of a model's window by default: where the chat template is not in the count, 100 tokens
are kept for it, and a prompt that might not fit is not sent."""


class _Temperatures(click.ParamType[tuple[float, ...]]):
    """One temperature, or several with commas between."""

    name = "temperatures"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        heats: tuple[float, ...] = ()
        with suppress(ValueError):
            heats = tuple(float(one) for one in str(value).split(","))
        if not heats or not all(0 <= heat <= _HOTTEST for heat in heats):
            self.fail(
                f"{value!r} is no temperature; write one from 0 to {_HOTTEST}, or several with "
                "commas between, as 1,0.7.",
                param,
                ctx,
            )
        return heats


_OPTIONS = together(
    click.option(
        "--max-context",
        metavar="TOKENS",
        help="Largest window, as 16384 or 16k (default: the model's less 128, else 16k).",
    ),
    click.option("--start-context", metavar="TOKENS", help="Smallest window (default: 2k)."),
    count_option(
        "--divisions",
        0,
        16,
        "Sizes between two doublings, at equal ratios (default: 0); with --compat: steps from "
        "one to the other, equal in tokens, 1, 2, 4, ... (default: 1, no size between).",
    ),
    count_option(
        "--rounds", 1, 1000, "Continuations of each point and size, by seed (default: 10)."
    ),
    count_option("--passages", 1, 500, "Points in each text (default: 8)."),
    click.option("--max-tokens", metavar="TOKENS", help="Longest continuation (default: 1024)."),
    click.option(
        "--temp",
        "temperature",
        type=_Temperatures(),
        metavar="T[,T...]",
        help="Temperature; of several each is compared with the first (default: 1).",
    ),
    count_option("--top-k", 0, 1_000_000, "Tokens that may be drawn; 0: all (default: 100)."),
    click.option(
        "--top-p",
        type=Finite(0, 1, min_open=True),
        metavar="P",
        help="Their share of the probability (default: 1).",
    ),
    count_option("--seed", 0, _LAST_SEED, "Seed of the first round (default: 0)."),
)


continuation_options = gathered_as("keys", given_keys, _OPTIONS, _KEYS)
"""Gives a command the keys of the section as options, those that are given as ``keys``."""


def max_context(keys: Mapping[str, Any]) -> int | None:
    """`--max-context` in tokens; None where it is not given.

    Raises:
        StudyError: it is no number of tokens.
    """
    from contextcliff_dagster.experiments.continuation.section import tokens_of

    try:
        return tokens_of(keys["max_context"]) if "max_context" in keys else None
    except ValueError as error:
        raise StudyError(f"--max-context: {error}; see `contextcliff continuation -h`.") from None


def made_study(
    texts: Sequence[Path],
    keys: Mapping[str, Any],
    entries: Sequence[ModelEntry],
    tokenizer: str | None = None,
) -> Study:
    """Return the study that the options describe; options like these get a name of their own.

    ``keys``: of the section. ``entries``: the models, of which the first gives the largest window
    and the ``tokenizer`` where neither is named.

    Raises:
        StudyError: a text is not there, or an option has no such value.
    """
    from contextcliff_dagster.experiments.common.kept_documents import DEFAULT_TOKENIZER
    from contextcliff_dagster.studies import Study

    section: dict[str, Any] = {"texts": [_file(text) for text in texts], **keys}
    if "max_context" not in section and (window := entries[0].window_tokens):
        # The largest context of a compat study leaves room for a template itself.
        spared = 0 if keys.get("compat") else _TEMPLATE_TOKENS
        section["max_context"] = max(window - spared, 1)
    counts = tokenizer or entries[0].tokenizer or DEFAULT_TOKENIZER
    study: dict[str, Any] = {
        "name": "continuation",
        "description": "Continuation: prose over the size of the context.",
        "tokenizer": counts,
        "models": [entry.name for entry in entries],
        "continuation": section,
    }
    try:
        made = Study.model_validate(study)
    except ValidationError as error:
        raise _sentence(error) from None
    dumped = made.sections["continuation"].model_dump(mode="json")
    checked = {key: value for key, value in dumped.items() if key not in _LATER or value}
    if checked["embeddings"] == "auto":
        del checked["embeddings"]  # names of studies from before there was this key
    decides = digest([checked, counts, study["models"]])
    stem = re.sub(r"[^a-z0-9]+", "-", texts[0].stem.lower()).strip("-")[:30].strip("-") or "text"
    more = f"-and-{len(texts) - 1}" if len(texts) > 1 else ""
    return made.changed(name=f"continuation-{stem}{more}-{decides}")


def _file(text: Path) -> str:
    """The text's absolute path.

    Raises:
        StudyError: there is no such file.
    """
    file = text.expanduser().absolute()
    try:
        is_file = file.is_file()
    except (OSError, ValueError):
        is_file = False
    if not is_file:
        raise StudyError(
            f"There is no text {text}; name a file of prose (txt, md, html, pdf, docx, epub)."
        )
    return str(file)


def _sentence(error: ValidationError) -> StudyError:
    places, what, _ = first_error(error)
    what = re.sub(r"'(\w+)'", lambda key: _shown(key[1]), what)
    key = next((place for place in places if place in _KEYS), "")
    before = f"--{_option(key)}: " if key else ""
    what = what if before else f"{what[:1].upper()}{what[1:]}"
    return StudyError(f"{before}{what}; see `contextcliff continuation -h`.")


def _shown(key: str) -> str:
    return f"--{_option(key)}" if key in (*_KEYS, *_LATER[1:]) else f"'{key}'"


def _option(key: str) -> str:
    return _NAMES.get(key, key).replace("_", "-")
