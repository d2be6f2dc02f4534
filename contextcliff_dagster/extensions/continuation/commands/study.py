"""A study made on the spot of the experiment continuation, from the options of its command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.cli.measuring.section_options import SectionOptions, digest
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.continuation.section import ContinuationSection, tokens_of

if TYPE_CHECKING:
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.studies import Study

_LATER = ("further_rounds", "compat", "word_list")
"""Keys that are in the digest only where they are used: older studies keep their names."""
_TEMPLATE_TOKENS = 128
"""Left free of a model's window by default: where the chat template is not in the count, 100 tokens
are kept for it, and a prompt that might not fit is not sent."""
CONTINUATION_OPTIONS = SectionOptions(
    "continuation",
    ContinuationSection,
    "contextcliff continuation",
    keys=(
        *("max_context", "start_context", "divisions", "rounds", "passages"),
        *("max_tokens", "temperature", "top_k", "top_p", "seed"),
    ),
    names={"temperature": "--temp"},
    help={
        "max_context": "Largest window, as 16384 or 16k (default: the model's less 128, else 16k)."
    },
)


def max_context(keys: Mapping[str, Any]) -> int | None:
    """`--max-context` in tokens; None where it is not given.

    Raises:
        StudyError: it is no number of tokens.
    """
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

    section: dict[str, Any] = {"texts": [_file(text) for text in texts], **keys}
    if "max_context" not in section and (window := entries[0].window_tokens):
        # The largest context of a compat study leaves room for a template itself.
        spared = 0 if keys.get("compat") else _TEMPLATE_TOKENS
        section["max_context"] = max(window - spared, 1)
    counts = tokenizer or entries[0].tokenizer or DEFAULT_TOKENIZER
    models = [entry.name for entry in entries]
    made = CONTINUATION_OPTIONS.study(
        section,
        description="Continuation: prose over the size of the context.",
        tokenizer=counts,
        models=models,
    )
    dumped = made.sections["continuation"].model_dump(mode="json")
    checked = {key: value for key, value in dumped.items() if key not in _LATER or value}
    if checked["embeddings"] == "auto":
        del checked["embeddings"]  # names of studies from before there was this key
    decides = digest([checked, counts, models])
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
