"""Tokenizers that count: exact, fast and without a network.

Counts equal the reference library's (``tiktoken``; Hugging Face ``tokenizers``) and are made by
``fastokens``, which is five to sixty times faster (``benchmarks/length_map.py``). What that does
not read (WordPiece, Unigram) is counted by ``tokenizers`` itself. Counts are of the text alone: no
special tokens are added, and truncation or padding saved in a tokenizer.json is switched off.

One thread counts, text by text: every thread of fastokens keeps a cache of 35 MB, and the length
map is to stay small on machines of many cores.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.sampling.tiktoken_ranks import (
    RANKS_SHA256,
    rank_file,
    tiktoken_encoding,
)

__all__ = ["TiktokenTokenizer", "Tokenizer", "TokenizerJson", "open_tokenizer"]

_SAME_ORDINARY_TOKENS = {"o200k_harmony": "o200k_base"}
"""Encodings that differ from another in special tokens only, which ordinary text never yields."""

_BATCH_CHARACTERS = 1 << 19
_NOT_A_TOKENIZER = "is not a Hugging Face tokenizer.json."


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
        except UnicodeDecodeError as fault:
            raise StudyError(f"Tokenizer {name!r}: {path} {_NOT_A_TOKENIZER}") from fault
        self._fast = _load_fastokens(text)
        self._slow: Any = _load_tokenizers(text, name, path) if self._fast is None else None

    @property
    def engine(self) -> str:
        """The library that counts."""
        return "tokenizers" if self._fast is None else "fastokens"

    def count(self, text: str) -> int:
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        if self._fast is not None:
            return [len(self._fast.encode(text)) for text in texts]
        counts: list[int] = []
        for batch in _batches(texts):
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
            fastokens = _single_threaded_fastokens()
            self.fingerprint = RANKS_SHA256[self._encoding]
            ranks = rank_file(self._encoding)
            try:
                with tempfile.TemporaryDirectory(prefix="contextcliff-") as folder:
                    path = Path(folder) / f"{self._encoding}.tiktoken"
                    path.write_bytes(ranks)
                    load = fastokens.Tokenizer.from_tiktoken
                    self._fast = load(str(path), encoding=self._encoding)
            except OSError as fault:
                raise StudyError(
                    f"Tokenizer {self.name!r} needs {len(ranks) >> 20} MB for a moment in "
                    f"{tempfile.gettempdir()}: {fault.strerror or fault}; set TMPDIR to a folder "
                    "with room."
                ) from fault
        else:
            self._reference = tiktoken_encoding(self._encoding)
            vocabulary = sorted(self._reference._mergeable_ranks.items(), key=itemgetter(1))
            content = repr((self._reference._pat_str, vocabulary)).encode()
            self.fingerprint = hashlib.sha256(content).hexdigest()

    def count(self, text: str) -> int:
        # tiktoken's (?i:'s) also matches the long s, fastokens' own scanner does not.
        if self._fast is None or "'\u017f" in text:
            return self._reference_count(text)
        return len(self._fast.encode_ordinary(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def _reference_count(self, text: str) -> int:
        if self._reference is None:
            self._reference = tiktoken_encoding(self._encoding)
        return len(self._reference.encode_ordinary(text))


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


def _single_threaded_fastokens() -> Any:
    # Read when the first long text is encoded; whoever set it means it.
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    import fastokens  # type: ignore[import-untyped]

    return fastokens


def _load_fastokens(text: str) -> Any:
    """The tokenizer, or None where fastokens does not read this kind."""
    fastokens = _single_threaded_fastokens()
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
        json.loads(text)["model"]
    except (ValueError, TypeError, KeyError) as fault:
        raise StudyError(f"Tokenizer {name!r}: {path} {_NOT_A_TOKENIZER}") from fault
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
