"""Tokenizers that count: exact, fast and without a network.

Counts equal the reference library's (``tiktoken``; Hugging Face ``tokenizers``) and are made by
``fastokens``, which is five to sixty times faster (``benchmarks/length_map.py``). What that does
not read (WordPiece, Unigram) is counted by ``tokenizers`` itself. Counts are of the text alone: no
special tokens are added, and truncation or padding saved in a tokenizer.json is switched off.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.sampling.tiktoken_ranks import (
    RANKS_SHA256,
    carried_ranks,
    tiktoken_encoding,
)

__all__ = ["TiktokenTokenizer", "Tokenizer", "TokenizerJson", "open_tokenizer"]

_SAME_ORDINARY_TOKENS = {"o200k_harmony": "o200k_base"}
"""Encodings that differ from another in special tokens only, which ordinary text never yields."""

_BATCH_CHARACTERS = 1 << 21


class Tokenizer(Protocol):
    """Counts tokens of plain text."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the vocabulary: equal fingerprints count equally."""
        ...

    def count(self, text: str) -> int: ...

    def count_many(self, texts: Sequence[str]) -> list[int]: ...


def open_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of this name.

    Names: ``reference`` (that of the reference models), ``tiktoken:<encoding>`` and
    ``file:<path of a tokenizer.json>``.

    Raises:
        StudyError: the name is not one of these, or its vocabulary is missing or unreadable.
    """
    kind, _, rest = name.partition(":")
    if name == "reference":
        from contextcliff_dagster.reference.card import weights_path

        return TokenizerJson(name, weights_path("reference-short") / "tokenizer.json")
    if kind == "tiktoken" and rest:
        return TiktokenTokenizer(rest)
    if kind == "file" and rest:
        path = Path(rest).expanduser()
        return TokenizerJson(name, path / "tokenizer.json" if path.is_dir() else path)
    raise StudyError(
        f"There is no tokenizer {name!r}; name 'reference', 'tiktoken:<encoding>' (e.g. "
        "tiktoken:o200k_base) or 'file:<path of a tokenizer.json>'."
    )


class TokenizerJson:
    """Any Hugging Face ``tokenizer.json``; counts as ``encode(text, add_special_tokens=False)``.

    As there, a special token spelled out in the text counts as that one token.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        try:
            content = path.read_bytes()
        except OSError as fault:
            reason = "there is no such file" if not path.exists() else str(fault.strerror)
            raise StudyError(f"Tokenizer {name!r} cannot be read from {path}: {reason}.") from fault
        self.fingerprint = hashlib.sha256(content).hexdigest()
        try:
            text = content.decode()
            json.loads(text)["model"]
        except (ValueError, TypeError, KeyError) as fault:
            raise StudyError(
                f"Tokenizer {name!r}: {path} is not a Hugging Face tokenizer.json."
            ) from fault
        self._fast = _load_fastokens(text)
        self._slow: Any = _load_tokenizers(text, name, path) if self._fast is None else None

    @property
    def engine(self) -> str:
        """The library that counts."""
        return "tokenizers" if self._fast is None else "fastokens"

    def count(self, text: str) -> int:
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        counts: list[int] = []
        for batch in _batches(texts):
            if self._fast is not None:
                counts += _flat_counts(self._fast, batch)
            else:
                encoded = self._slow.encode_batch_fast(batch, add_special_tokens=False)
                counts += [len(one) for one in encoded]
        return counts


class TiktokenTokenizer:
    """A tiktoken encoding; counts as ``encode_ordinary``: special tokens are plain text."""

    def __init__(self, encoding: str) -> None:
        self.name = f"tiktoken:{encoding}"
        self._encoding = _SAME_ORDINARY_TOKENS.get(encoding, encoding)
        self._reference: Any = None
        self._fast: Any = None
        if self._encoding in RANKS_SHA256:
            import fastokens  # type: ignore[import-untyped]

            self.fingerprint = RANKS_SHA256[self._encoding]
            with tempfile.TemporaryDirectory(prefix="contextcliff-") as folder:
                path = Path(folder) / f"{self._encoding}.tiktoken"
                path.write_bytes(carried_ranks(self._encoding))
                self._fast = fastokens.Tokenizer.from_tiktoken(str(path), encoding=self._encoding)
        else:
            self._reference = tiktoken_encoding(self._encoding)
            ranks = sorted(self._reference._mergeable_ranks.items(), key=lambda item: item[1])
            content = repr((self._reference._pat_str, ranks)).encode()
            self.fingerprint = hashlib.sha256(content).hexdigest()

    def count(self, text: str) -> int:
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        counts: list[int] = []
        for batch in _batches(texts):
            if self._fast is None:
                counts += [self._reference_count(text) for text in batch]
                continue
            counted = _flat_counts(self._fast, batch, split_special_tokens=True)
            for at, text in enumerate(batch):
                # tiktoken's (?i:'s) also matches the long s, fastokens' own scanner does not.
                if "'\u017f" in text:
                    counted[at] = self._reference_count(text)
            counts += counted
        return counts

    def _reference_count(self, text: str) -> int:
        if self._reference is None:
            self._reference = tiktoken_encoding(self._encoding)
        return len(self._reference.encode_ordinary(text))


def _flat_counts(tokenizer: Any, batch: list[str], **options: bool) -> list[int]:
    import numpy as np

    _, offsets = tokenizer.encode_batch_flat(batch, **options)
    counts: list[int] = np.diff(np.frombuffer(offsets, dtype=np.uint64)).tolist()
    return counts


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in lists of bounded size, so that memory does not follow the number of texts."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and size + len(text) > _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _load_fastokens(text: str) -> Any:
    """The tokenizer, or None where fastokens does not read this kind."""
    import fastokens

    try:
        tokenizer = fastokens.Tokenizer.from_json_str(text)
    except (
        Exception
    ):  # its reasons (an unsupported normalizer, broken JSON) carry no class of their own
        return None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _load_tokenizers(text: str, name: str, path: Path) -> Any:
    try:
        import tokenizers
    except ImportError as fault:
        raise StudyError(
            f"Tokenizer {name!r} ({path}) is of a kind that needs the package 'tokenizers'; "
            "install it with: pip install tokenizers"
        ) from fault
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except Exception as fault:  # tokenizers raises bare Exception
        raise StudyError(
            f"Tokenizer {name!r}: {path} is not a tokenizer.json ({fault})."
        ) from fault
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
