"""Tokenizers that count: exact, fast and without a network.

Counts equal the reference library's (``tiktoken``; Hugging Face ``tokenizers``), which makes the
first of them; all others ``fastokens`` makes, five to sixty times faster
(``benchmarks/length_map.py``) and compared with it before it counts (`cross_checked_counter`). What
that does not read (WordPiece, Unigram) ``tokenizers`` counts itself. Counts are of the text alone:
no special tokens, truncation or padding. One thread counts, text by text: every thread of fastokens
keeps a cache of 35 MB, and the length map is to stay small on machines of many cores.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.sampling.tokenizers.catalogue import no_such_tokenizer
from contextcliff_dagster.sampling.tokenizers.cross_checked_counter import (
    CheckedCounter,
    Count,
    CountMany,
)
from contextcliff_dagster.sampling.tokenizers.hub import LARGEST_FILE, hub_file
from contextcliff_dagster.sampling.tokenizers.server import ServerTokenizer
from contextcliff_dagster.sampling.tokenizers.tiktoken_vocabularies import (
    RANKS_SHA256,
    SAME_RANKS,
    encoding_names,
    forget_encoding,
    rank_file,
    tiktoken_encoding,
)
from contextcliff_dagster.user_files import loads, read_file

_BATCH_CHARACTERS = 1 << 19
_TIKTOKEN_CHARACTERS = 12_000_000
"""tiktoken counts these in the three seconds that fastokens takes to load such a vocabulary."""
_TOKENIZERS_CHARACTERS = 500_000


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

    Names: ``reference`` (that of the reference models), ``tiktoken:<encoding>``, ``file:<path of a
    tokenizer.json>``, ``hub:<repository of the Hugging Face hub>`` and ``server:<URL>`` (the
    ``/tokenize`` of a running server; one of models.yaml, by its name:
    `inference.models.tokenizers.open_any_tokenizer`).

    Raises:
        StudyError: the name is not one of these, its vocabulary is missing or unreadable, or the
            hub or the server cannot be asked.
    """
    kind, _, rest = name.partition(":")
    if name == "reference":
        from contextcliff_dagster.reference.card import weights_path

        return TokenizerJson(name, weights_path("reference-short") / "tokenizer.json")
    if kind == "tiktoken" and rest:
        if rest not in encoding_names():
            raise no_such_tokenizer(name)
        return TiktokenTokenizer(rest)
    if kind == "file" and rest:
        path = Path(rest).expanduser()
        return TokenizerJson(name, path / "tokenizer.json" if path.is_dir() else path)
    if kind == "hub" and rest:
        return TokenizerJson(name, hub_file(name))
    if kind == "server" and rest.startswith(("http://", "https://")):
        return ServerTokenizer(name, rest)
    raise no_such_tokenizer(name)


class TokenizerJson(CheckedCounter):
    """Any Hugging Face ``tokenizer.json``; counts as ``encode(text, add_special_tokens=False)``.

    As there, a special token spelled out in the text counts as that one token.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self.fingerprint = hashlib.sha256(self._content()).hexdigest()
        super().__init__(
            self._reference_counter,
            lambda: _fastokens_counter(self._text()),
            (_versioned("tokenizers"), _versioned("fastokens")),
            worth_characters=_TOKENIZERS_CHARACTERS,
        )
        self.count("")  # whatever is wrong with the file is found now

    def _content(self) -> bytes:
        try:
            return read_file(self._path, LARGEST_FILE)
        except OSError as error:
            exists = self._path.exists()
            reason = str(error.strerror) if exists else "there is no such file"
            raise StudyError(
                f"Tokenizer {self.name!r} cannot be read from {self._path}: {reason}."
            ) from error

    def _text(self) -> str:
        content = self._content()
        if hashlib.sha256(content).hexdigest() != self.fingerprint:
            raise self._error("changed while it was in use; run the same command again.")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise self._error("is not a Hugging Face tokenizer.json.") from error

    def _error(self, what: str) -> StudyError:
        return StudyError(f"Tokenizer {self.name!r}: {self._path} {what}")

    def _reference_counter(self) -> CountMany:
        text = self._text()
        try:
            loads(text)["model"]
        except (ValueError, TypeError, KeyError) as error:
            raise self._error("is not a Hugging Face tokenizer.json.") from error
        try:
            import tokenizers
        except ImportError as error:
            raise StudyError(
                f"Tokenizer {self.name!r} ({self._path}) is of a kind that needs the package "
                "'tokenizers'; install it with: pip install tokenizers"
            ) from error
        try:
            tokenizer = _untruncated(tokenizers.Tokenizer.from_str(text))
        except Exception as error:  # tokenizers raises bare Exception
            raise self._error(f"is not a tokenizer.json ({error}).") from error

        def count_many(texts: Sequence[str]) -> list[int]:
            counts: list[int] = []
            for batch in _batches(texts):
                encoded = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
                counts += map(len, encoded)
            return counts

        return count_many


class TiktokenTokenizer(CheckedCounter):
    """A tiktoken encoding; counts as ``encode_ordinary``: special tokens are plain text."""

    def __init__(self, encoding: str) -> None:
        self.name = f"tiktoken:{encoding}"
        self._encoding = SAME_RANKS.get(encoding, encoding)
        super().__init__(
            self._reference_counter,
            self._fast_counter,
            (_versioned("tiktoken"), _versioned("fastokens")),
            worth_characters=_TIKTOKEN_CHARACTERS,
            # tiktoken's (?i:'s) also matches the long s, fastokens' own scanner does not.
            by_reference=lambda text: "'\u017f" in text,
        )
        self.fingerprint = RANKS_SHA256.get(self._encoding, "")
        # A vocabulary that is not to be had is missed now.
        if self.fingerprint:
            rank_file(self._encoding)
        else:
            reference: Any = tiktoken_encoding(self._encoding)
            vocabulary = sorted(reference._mergeable_ranks.items(), key=itemgetter(1))
            content = repr((reference._pat_str, vocabulary)).encode()
            self.fingerprint = hashlib.sha256(content).hexdigest()

    def _reference_counter(self) -> CountMany:
        encode = tiktoken_encoding(self._encoding).encode_ordinary
        return lambda texts: [len(encode(text)) for text in texts]

    def _forget_reference(self) -> None:
        super()._forget_reference()
        forget_encoding()

    def _fast_counter(self) -> Count | None:
        if self._encoding not in RANKS_SHA256:
            return None
        ranks = rank_file(self._encoding)
        fastokens = _single_threaded_fastokens()
        try:
            with tempfile.TemporaryDirectory(prefix="contextcliff-") as folder:
                path = Path(folder) / f"{self._encoding}.tiktoken"
                path.write_bytes(ranks)
                made = fastokens.Tokenizer.from_tiktoken(str(path), encoding=self._encoding)
        except OSError as error:
            raise StudyError(
                f"Tokenizer {self.name!r} needs {len(ranks) >> 20} MB for a moment in "
                f"{tempfile.gettempdir()}: {error.strerror or error}; set TMPDIR to a folder "
                "with room."
            ) from error

        def count(text: str) -> int:
            # As encode_ordinary, but its ids are all that is kept: 4 bytes a token instead of 16.
            ids, _ = made.encode_batch_flat([text], split_special_tokens=True)
            return len(ids) // 4

        return count


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
    # Read when the first long text is encoded; a setting of the environment stays.
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    import fastokens  # type: ignore[import-untyped]

    return fastokens


def _fastokens_counter(text: str) -> Count | None:
    """Its count, or None where fastokens does not read this kind."""
    fastokens = _single_threaded_fastokens()
    try:
        tokenizer = _untruncated(fastokens.Tokenizer.from_json_str(text))
    except Exception:  # of no class of its own: an unsupported normalizer, broken JSON
        return None
    return lambda text: len(tokenizer.encode(text))


def _untruncated(tokenizer: Any) -> Any:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _versioned(package: str) -> str:
    with suppress(metadata.PackageNotFoundError):
        return f"{package} {metadata.version(package)}"
    return package
