"""The names of tokenizers, and suggestions for a name that is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.sampling.tokenizers.hub import is_repository
from contextcliff_dagster.sampling.tokenizers.tiktoken_vocabularies import (
    carried_encodings,
    encoding_names,
)


@dataclass(frozen=True, slots=True)
class KnownTokenizer:
    """One that a study may name: as it is written (a part in ``<>`` is to be filled in), what it
    counts, and what has to be there for it; empty where nothing has to."""

    name: str
    counts: str
    needs: str = ""


def known_tokenizers() -> list[KnownTokenizer]:
    """Those that this machine knows, and the forms that others are named in."""
    carried = carried_encodings()
    return [
        KnownTokenizer("reference", "tokens of the reference models"),
        *(
            KnownTokenizer(
                f"tiktoken:{name}",
                _MODELS.get(name, "tokens of this encoding of tiktoken"),
                "" if name in carried else "the network at its first use, or tiktoken's cache",
            )
            for name in encoding_names()
        ),
        KnownTokenizer(
            "file:<path>", "as this Hugging Face tokenizer.json, or that of this folder", "the file"
        ),
        KnownTokenizer(
            "hub:<repository>",
            "as the tokenizer.json of this repository of the Hugging Face hub",
            "the network at its first use; HF_TOKEN where it is gated",
        ),
        KnownTokenizer(
            "server:<model>",
            "as the server of this model of models.yaml (vLLM, llama.cpp)",
            "the server, running",
        ),
        KnownTokenizer("server:<URL>", "the same, by address", "the server, running"),
    ]


_MODELS = {
    "o200k_base": "tokens of GPT-4o and later models of OpenAI",
    "o200k_harmony": "tokens of gpt-oss",
    "cl100k_base": "tokens of GPT-4 and GPT-3.5",
    "p50k_base": "tokens of OpenAI's models for code before 2023",
    "p50k_edit": "tokens of OpenAI's models for edits before 2023",
    "r50k_base": "tokens of GPT-3",
    "gpt2": "tokens of GPT-2",
}


def no_such_tokenizer(name: str, models: Iterable[str] = ()) -> StudyError:
    """The error that ``name`` is no tokenizer, with what may have been meant.

    Args:
        models: names that may follow ``server:``, where they are known.
    """
    kind, _, rest = name.partition(":")
    if kind == "tiktoken" and rest:
        return StudyError(
            f"tiktoken has no encoding {rest!r}{_meant(rest, encoding_names())}; it has "
            f"{', '.join(encoding_names())}."
        )
    if kind == "server" and rest:
        known = sorted(models)
        listed = (
            f"models.yaml has {', '.join(known)} behind servers"
            if known
            else "only a study knows models.yaml; elsewhere write server:http://HOST:PORT"
        )
        return StudyError(f"There is no server of a model {rest!r}{_meant(rest, known)}; {listed}.")
    guess = _guess(name)
    meant = f" (did you mean {guess!r}?)" if guess else ""
    return StudyError(
        f"There is no tokenizer {name!r}{meant}; there are reference, tiktoken:<encoding>, "
        "file:<path of a tokenizer.json>, hub:<repository>, server:<model of models.yaml> and "
        "server:<URL> (`contextcliff tokenizers`)."
    )


def _meant(written: str, known: Iterable[str]) -> str:
    near = get_close_matches(written, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _guess(name: str) -> str | None:
    from tiktoken.model import encoding_name_for_model

    names = encoding_names()
    if name in names:
        return f"tiktoken:{name}"
    if name.startswith(("http://", "https://")):
        return f"server:{name}"
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(name).expanduser()
        if path.suffix == ".json" or (path / "tokenizer.json").is_file():
            return f"file:{name}"
    if len(name) > 2 and (begun := [one for one in names if one.startswith(name)]):
        return f"tiktoken:{begun[0]}"
    if "/" in name and is_repository(name):
        return f"hub:{name}"
    known = ["reference", *names, *(f"tiktoken:{one}" for one in names)]
    if near := get_close_matches(name, known, n=1, cutoff=0.7):
        return near[0] if near[0] == "reference" or ":" in near[0] else f"tiktoken:{near[0]}"
    with suppress(KeyError):
        return f"tiktoken:{encoding_name_for_model(name)}"
    return None
