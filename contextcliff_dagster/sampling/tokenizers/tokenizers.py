"""Tokenizers that count exactly, fast and without a network.

Counts equal the reference library's (``tiktoken``; Hugging Face ``tokenizers``). It makes the first
counts, because ``fastokens`` takes seconds to load and is then five to sixty times faster
(``benchmarks/length_map.py``). Before fastokens is used, both count `CHECK_TEXTS` and the beginning
of the text at hand; if any count differs, the reference library continues, and
`CheckedCounter.counted_by` says so. Tokenizers that fastokens cannot read (WordPiece, Unigram) are
left to ``tokenizers``.

tiktoken downloads an encoding's rank file on first use and then caches it. The package
``bpe-openai`` contains the two current ones, so that a machine without network access gets the same
counts. Counts are of the text alone: no special tokens, truncation or padding. One thread counts,
text by text: every thread of fastokens keeps a cache of 35 MB.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import tempfile
import threading
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import StudyError, package_version, pip_install
from contextcliff_dagster.freed_memory import return_freed_memory
from contextcliff_dagster.sampling.tokenizers.server import CHECK_TEXTS, ServerTokenizer, whole
from contextcliff_dagster.user_files import loads, read_file

if TYPE_CHECKING:
    import tiktoken

Count = Callable[[str], int]
CountMany = Callable[[Sequence[str]], list[int]]

_OWN_CHARACTERS = 100_000
_TIDY_CHARACTERS = 25_000_000
_LONG_RUN = re.compile(r"(?<!\s)\s{5000}|(?<!\S)\S{5000}")
"""Runs on which the reference libraries' regular expressions take quadratic time, or panic
(tiktoken 0.14: a million spaces). The pattern is linear: it is tried at the start of a run only."""


class CheckedCounter:
    """Thread-safe token counter of one vocabulary by two libraries, whose counts must agree.

    Args:
        reference, fast: load the libraries; ``fast`` returns None for a vocabulary it cannot read.
        names: names of the two, with their versions.
        worth_characters: length of text above which loading the fast library pays off.
        by_reference: whether only the reference library counts a text correctly.
    """

    def __init__(
        self,
        reference: Callable[[], CountMany],
        fast: Callable[[], Count | None],
        names: tuple[str, str],
        *,
        worth_characters: int,
        by_reference: Callable[[str], bool] = lambda text: False,
    ) -> None:
        self._load_reference, self._load_fast = reference, fast
        self._names = names
        self._left = worth_characters
        self.by_reference = by_reference
        self._reference: CountMany | None = None
        self._fast: Count | None = None
        self._verdict = ""
        self._agreed = False
        self._since = 0
        self._lock = threading.Lock()

    @property
    def counted_by(self) -> str:
        """The library that counts, and the result of comparing the two."""
        if not self._verdict:
            return self._names[0]
        return f"{self._names[self._agreed]}, {self._verdict}"

    def count(self, text: str) -> int:
        """Count the tokens of ``text``; halves of surrogate pairs count as U+FFFD.

        Raises:
            StudyError: a vocabulary is unavailable, or the library cannot count this text.
        """
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return one count per text, in order; see `count`."""
        texts = [whole(text) for text in texts]
        if not self._verdict:
            self._left -= sum(map(len, texts))
            hard = next((text for text in texts if _LONG_RUN.search(text)), None)
            if hard is not None or self._left < 0:
                self.compare(texts[0] if hard is None else hard)
        fast = self._fast
        if fast is None and self._agreed:
            fast = self._loaded_again()
        if fast is None:
            return self._refer(texts)
        self._since += sum(map(len, texts))
        if self._since > _TIDY_CHARACTERS:
            self._since = 0
            return_freed_memory()
        alone = self.by_reference
        return [self._refer([text])[0] if alone(text) else fast(text) for text in texts]

    def expect(self, characters: int) -> None:
        """Announce how much text will follow; the counter is chosen on the first call."""
        if characters > self._left:
            self._left = 0

    def refer(self, texts: Sequence[str]) -> list[int]:
        """Return one count per text, all from the reference library; the fast library is unloaded
        first, and loaded again when needed."""
        with self._lock:
            self._fast = None
        return_freed_memory()
        return self._refer([whole(text) for text in texts])

    def rest(self, *, but_reference: bool = False) -> None:
        """Unload both libraries' vocabularies; they are reloaded when needed.

        With ``but_reference``, a loaded vocabulary of the reference library stays.
        """
        with self._lock:
            self._fast = None
            if not but_reference:
                self._forget_reference()
        return_freed_memory()

    def _forget_reference(self) -> None:
        self._reference = None

    def _refer(self, texts: Sequence[str]) -> list[int]:
        if (reference := self._reference) is None:
            reference = self._reference = self._load_reference()
        try:
            return reference(texts)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # pyo3's, not a subclass of Exception
                raise
            longest = max(map(len, texts))
            raise StudyError(
                f"{self._names[0]} cannot count a document of up to {longest:,} characters (it "
                "fails on very long runs with or without spaces); leave this document out."
            ) from error

    def compare(self, text: str = "") -> None:
        """Choose a library, once only, by the check texts and the beginning of ``text``."""
        with self._lock:
            if self._verdict:
                return
            texts = list(CHECK_TEXTS)
            if not _LONG_RUN.search(text):
                texts.append(text[:_OWN_CHARACTERS])
            expected = self._refer(texts)
            # Never both in memory: the vocabulary of a large model takes 60 to 200 MB in each.
            self._forget_reference()
            return_freed_memory()
            fast, error = self._loaded()
            return_freed_memory()
            if fast is None:
                self._verdict = f"because {self._names[1]} {error}"
                return
            wrong = sum(
                _count_or_none(fast, sample) != n for sample, n in zip(texts, expected, strict=True)
            )
            if wrong:
                of = f"{wrong} of {len(texts)} check texts"
                self._verdict = f"because {self._names[1]} counted {of} otherwise"
                return
            self._fast, self._agreed = fast, True
            self._verdict = f"equal to {self._names[0]} on {len(texts)} check texts"

    def _loaded_again(self) -> Count | None:
        with self._lock:
            if self._fast is None:
                self._forget_reference()
                return_freed_memory()
                self._fast, _ = self._loaded()
            return self._fast

    def _loaded(self) -> tuple[Count | None, str]:
        try:
            return self._load_fast(), "does not read this kind of vocabulary"
        except StudyError:
            raise
        except Exception as error:
            return None, f"does not load here ({type(error).__name__})"


def _count_or_none(count: Count, text: str) -> int | None:
    with suppress(Exception):  # any error means no count
        return count(text)
    return None


@dataclass(frozen=True, slots=True)
class KnownTokenizer:
    """A tokenizer that a study may name: its name (parts in ``<>`` are to be filled in), what it
    counts, and what must be installed for it (empty if nothing)."""

    name: str
    counts: str
    needs: str = ""


def known_tokenizers() -> list[KnownTokenizer]:
    """Return the tokenizers known on this machine, and the patterns of other names."""
    return [
        KnownTokenizer("reference", "tokens of the reference models"),
        *(
            KnownTokenizer(
                f"tiktoken:{name}",
                _MODELS.get(name, "tokens of this encoding of tiktoken"),
                "" if name in CARRIED else "the network at its first use, or tiktoken's cache",
            )
            for name in encoding_names()
        ),
        KnownTokenizer(
            "file:<path>", "as this Hugging Face tokenizer.json, or that of this folder", "the file"
        ),
        KnownTokenizer(
            "hub:<repository>",
            "as the tokenizer.json of this repository of the Hugging Face hub",
            "the network at its first use; HF_TOKEN if it is gated",
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
    """Return the error for a ``name`` that is not a tokenizer, with a suggestion.

    Args:
        models: names that may follow ``server:``, if known.
    """
    kind, _, value = name.partition(":")
    if kind == "tiktoken" and value:
        return StudyError(
            f"tiktoken has no encoding {value!r}{_meant(value, encoding_names())}; it has "
            f"{', '.join(encoding_names())}."
        )
    if kind == "server" and value:
        known = sorted(models)
        hint = (
            f"models.yaml has {', '.join(known)} behind servers"
            if known
            else "only a study knows models.yaml; elsewhere write server:http://HOST:PORT"
        )
        return StudyError(f"There is no server of a model {value!r}{_meant(value, known)}; {hint}.")
    guess = _guess(name)
    suggestion = f" (did you mean {guess!r}?)" if guess else ""
    return StudyError(
        f"There is no tokenizer {name!r}{suggestion}; there are reference, tiktoken:<encoding>, "
        "file:<path of a tokenizer.json>, hub:<repository>, server:<model of models.yaml> and "
        "server:<URL> (`contextcliff tokenizers`)."
    )


def _meant(written: str, known: Iterable[str]) -> str:
    matches = get_close_matches(written, list(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


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
    if len(name) > 2 and (codes := [encoding for encoding in names if encoding.startswith(name)]):
        return f"tiktoken:{codes[0]}"
    if "/" in name and is_repository(name):
        return f"hub:{name}"
    candidates = ["reference", *names, *(f"tiktoken:{encoding}" for encoding in names)]
    if near := get_close_matches(name, candidates, n=1, cutoff=0.7):
        return near[0] if near[0] == "reference" or ":" in near[0] else f"tiktoken:{near[0]}"
    with suppress(KeyError):
        return f"tiktoken:{encoding_name_for_model(name)}"
    return None


RANKS_SHA256 = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""The encodings that `bpe-openai` contains, with the SHA-256 that tiktoken pins for each."""
SAME_RANKS = {"o200k_harmony": "o200k_base"}
"""Encodings that differ from another only in special tokens, which plain text never yields."""
CARRIED = {*RANKS_SHA256, *SAME_RANKS}
"""Encodings whose vocabulary needs no network."""


def rank_file(encoding: str) -> bytes:
    """Return the rank file of an encoding in ``RANKS_SHA256``, verified by its hash.

    Raises:
        StudyError: it is damaged.
    """
    again = pip_install("--force-reinstall", "--no-deps", "bpe-openai")
    file = f"bpe_openai/data/{encoding}.tiktoken.gz"
    packed = Path(str(metadata.distribution("bpe-openai").locate_file(file)))
    try:
        content = gzip.decompress(packed.read_bytes())
    except (OSError, EOFError) as error:
        raise StudyError(f"The vocabulary {packed} is damaged ({error}); run {again}.") from error
    if hashlib.sha256(content).hexdigest() != RANKS_SHA256[encoding]:
        raise StudyError(f"The vocabulary of tiktoken's {encoding!r} is damaged; run {again}.")
    return content


def encoding_names() -> list[str]:
    """Return the encodings that tiktoken knows."""
    import tiktoken

    return tiktoken.list_encoding_names()


def tiktoken_encoding(name: str) -> tiktoken.Encoding:
    """Return tiktoken's own encoding.

    Raises:
        LookupError: tiktoken has no such encoding.
        StudyError: its vocabulary is not on this machine and cannot be fetched.
    """
    import tiktoken

    if name in CARRIED:
        return _from_rank_file(name)
    if name not in encoding_names():
        raise LookupError(name)
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:  # requests, OSError, a hash mismatch: there is no vocabulary
        raise StudyError(
            f"The vocabulary of tiktoken's {name!r} is not on this machine and cannot be fetched "
            f"({type(error).__name__}); connect once, or use {' or '.join(RANKS_SHA256)}, which "
            "need no network."
        ) from error


@lru_cache(maxsize=1)
def _from_rank_file(name: str) -> tiktoken.Encoding:
    import tiktoken

    words = rank_file(SAME_RANKS.get(name, name)).split()
    ranks = dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
    del words  # as large as the vocabulary
    return tiktoken.Encoding(**_constructed(name, lambda *_args, **_kwargs: ranks))


def _constructed(encoding: str, load: Callable[..., Any]) -> dict[str, Any]:
    """Return tiktoken's parameters for an encoding (pattern, special tokens), without the ranks."""
    import tiktoken_ext.openai_public as public  # type: ignore[import-untyped]

    original = public.load_tiktoken_bpe
    public.load_tiktoken_bpe = load
    try:
        return dict(public.ENCODING_CONSTRUCTORS[encoding]())
    finally:
        public.load_tiktoken_bpe = original


LARGEST_FILE = 256 << 20
"""Maximum size in bytes of a tokenizer.json that is read."""
_FILE = "tokenizer.json"
_REPOSITORY = re.compile(r"[\w-][\w.-]*(?:/[\w-][\w.-]*)?", re.ASCII)


def is_repository(name: str) -> bool:
    """Return whether ``name`` is a hub repository's name: ``OWNER/NAME`` or ``NAME``."""
    return len(name) <= 96 and _REPOSITORY.fullmatch(name) is not None


def hub_file(name: str) -> Path:
    """Return the tokenizer.json of ``hub:OWNER/NAME`` or ``hub:OWNER/NAME@REVISION``.

    The hub's cache on this machine is used first, so that later changes on the hub change no count.
    ``HF_TOKEN``, ``HF_ENDPOINT``, ``HF_HOME`` and ``HF_HUB_OFFLINE`` apply, as they do for every
    tool of the hub.

    Raises:
        StudyError: there is no such repository, it has no such file, or it cannot be reached.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    repository, _, revision_text = name.removeprefix("hub:").partition("@")
    revision = revision_text or None
    if not is_repository(repository):
        raise StudyError(f"Tokenizer {name!r} is not a repository of the hub; use hub:OWNER/NAME.")
    try:
        cached_path = hf_hub_download(repository, _FILE, revision=revision, local_files_only=True)
        return Path(cached_path).resolve()
    except (EntryNotFoundError, OSError, ValueError):
        pass
    disable_progress_bars()
    endpoint = constants.ENDPOINT
    try:
        # Check first: a download tries for half a minute to reach a missing hub.
        url = hf_hub_url(repository, _FILE, revision=revision, endpoint=endpoint)
        if (get_hf_file_metadata(url, endpoint=endpoint).size or 0) <= LARGEST_FILE:
            fetched = hf_hub_download(repository, _FILE, revision=revision, endpoint=endpoint)
            return Path(fetched).resolve()
        reason = f"its {_FILE} has more than {LARGEST_FILE >> 20} MB"
    except EntryNotFoundError:
        reason = f"the repository has no {_FILE}"
    except Exception as error:  # of its HTTP client, too; none is shown: it may hold the token
        reason = _refusal(error, endpoint)
    raise StudyError(
        f"Tokenizer {name!r} cannot be loaded: {reason}; correct that, or name a {_FILE} on this "
        "machine as file:PATH."
    )


def _refusal(error: Exception, endpoint: str) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    host = urlsplit(endpoint).netloc.rpartition("@")[2] or "the hub"  # without user and password
    if isinstance(error, GatedRepoError):
        return f"{host} gives it to some accounts only, and HF_TOKEN belongs to none of them"
    if isinstance(error, RepositoryNotFoundError):
        return f"{host} has no such repository, or a private one that HF_TOKEN does not open"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return f"{host} refuses HF_TOKEN (status {status})"
    if status is not None:
        return f"{host} answers with status {status}"
    if isinstance(error, OSError) and error.strerror:
        return f"the cache of the hub cannot be written ({error.strerror}; HF_HOME)"
    return f"{host} cannot be reached ({type(error).__name__})"


_BATCH_CHARACTERS = 1 << 19
_TIKTOKEN_CHARACTERS = 12_000_000
"""Number of characters that tiktoken counts in the three seconds that fastokens takes to load."""
_TOKENIZERS_CHARACTERS = 500_000


class Tokenizer(Protocol):
    """A counter of the tokens in plain text."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the vocabulary: tokenizers with equal fingerprints give equal counts."""
        ...

    def count(self, text: str) -> int: ...

    def count_many(self, texts: Sequence[str]) -> list[int]: ...


def open_tokenizer(name: str) -> Tokenizer:
    """Open the tokenizer with this name.

    Names: ``reference`` (the reference models' tokenizer), ``tiktoken:<encoding>``, ``file:<path of
    a tokenizer.json>``, ``hub:<repository of the Hugging Face hub>`` and ``server:<URL>`` (the
    ``/tokenize`` of a running server; for a model of models.yaml, by its name:
    `inference.models.tokenizers.open_any_tokenizer`).

    Raises:
        StudyError: the name is not one of these, its vocabulary is missing or unreadable, or the
            hub or the server cannot be asked.
    """
    kind, _, argument = name.partition(":")
    if name == "reference":
        from contextcliff_dagster.reference.card import weights_path

        return TokenizerJson(name, weights_path("reference-short") / "tokenizer.json")
    if kind == "tiktoken" and argument:
        if argument not in encoding_names():
            raise no_such_tokenizer(name)
        return TiktokenTokenizer(argument)
    if kind == "file" and argument:
        path = Path(argument).expanduser()
        return TokenizerJson(name, path / "tokenizer.json" if path.is_dir() else path)
    if kind == "hub" and argument:
        return TokenizerJson(name, hub_file(name))
    if kind == "server" and argument.startswith(("http://", "https://")):
        return ServerTokenizer(name, argument)
    raise no_such_tokenizer(name)


class TokenizerJson(CheckedCounter):
    """Any Hugging Face ``tokenizer.json``; counts like ``encode(text, add_special_tokens=False)``.

    As in ``encode``, a special token that is spelled out in the text counts as that one token.
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
        self.count("")  # any fault of the file shows now

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
        import tokenizers

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
    """A tiktoken encoding; counts like ``encode_ordinary``: special tokens are plain text."""

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
        # An unavailable vocabulary raises now.
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
        # It takes 30 to 55 MB, and half a CPU second to reread.
        _from_rank_file.cache_clear()

    def _fast_counter(self) -> Count | None:
        if self._encoding not in RANKS_SHA256:
            return None
        ranks = rank_file(self._encoding)
        fastokens = _single_threaded_fastokens()
        try:
            with tempfile.TemporaryDirectory(prefix="contextcliff-") as folder:
                path = Path(folder) / f"{self._encoding}.tiktoken"
                path.write_bytes(ranks)
                tokenizer = fastokens.Tokenizer.from_tiktoken(str(path), encoding=self._encoding)
        except OSError as error:
            raise StudyError(
                f"Tokenizer {self.name!r} needs {len(ranks) >> 20} MB for a moment in "
                f"{tempfile.gettempdir()}: {error.strerror or error}; set TMPDIR to a folder "
                "with room."
            ) from error

        def count(text: str) -> int:
            # Like encode_ordinary, but keeping only ids: 4 bytes a token instead of 16.
            ids, _ = tokenizer.encode_batch_flat([text], split_special_tokens=True)
            return len(ids) // 4

        return count


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in lists of bounded size, so that memory does not grow with their number."""
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
    # Read when the first long text is encoded; a value set by the user stays.
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    import fastokens  # type: ignore[import-untyped]

    return fastokens


def _fastokens_counter(text: str) -> Count | None:
    """Return fastokens' counter; None if it cannot read this kind of tokenizer."""
    fastokens = _single_threaded_fastokens()
    try:
        tokenizer = _untruncated(fastokens.Tokenizer.from_json_str(text))
    except Exception:  # fastokens has no error class: an unsupported normalizer, broken JSON
        return None
    return lambda text: len(tokenizer.encode(text))


def _untruncated(tokenizer: Any) -> Any:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _versioned(package: str) -> str:
    version = package_version(package)
    return f"{package} {version}" if version else package
