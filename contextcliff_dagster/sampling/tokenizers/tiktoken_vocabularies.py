"""tiktoken's vocabularies, found without a network where they can be.

tiktoken fetches the rank file of an encoding at its first use and then keeps it. The package
``bpe-openai`` carries the two current ones; they are taken from there, so that a machine that
never reaches the network counts the same. Where it is missing, tiktoken's own way remains.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from binascii import a2b_base64
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    import tiktoken

RANKS_SHA256 = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""The encodings that `bpe-openai` carries, with the SHA-256 that tiktoken pins for each."""
SAME_RANKS = {"o200k_harmony": "o200k_base"}
"""Encodings that differ from another in special tokens only, which ordinary text never yields."""


def rank_file(encoding: str) -> bytes:
    """The rank file of one of ``RANKS_SHA256``, proven against its hash.

    Raises:
        StudyError: it is not installed, not cached and not reachable, or damaged.
    """
    if (packed := _packed(encoding)) is None:
        content = _cached_or_fetched(encoding)
    else:
        try:
            content = gzip.decompress(packed.read_bytes())
        except (OSError, EOFError) as error:
            raise StudyError(
                f"The vocabulary {packed} is damaged ({error}); install bpe-openai again."
            ) from error
    if hashlib.sha256(content).hexdigest() != RANKS_SHA256[encoding]:
        raise StudyError(
            f"The vocabulary of tiktoken's {encoding!r} on this machine is damaged; install "
            "bpe-openai again or clear TIKTOKEN_CACHE_DIR."
        )
    return content


def encoding_names() -> list[str]:
    """The encodings that tiktoken knows."""
    import tiktoken

    return tiktoken.list_encoding_names()


def carried_encodings() -> set[str]:
    """Those whose vocabulary needs no network here."""
    carried = {name for name in RANKS_SHA256 if _packed(name) is not None}
    return carried | {name for name, ranks in SAME_RANKS.items() if ranks in carried}


def tiktoken_encoding(name: str) -> tiktoken.Encoding:
    """Return tiktoken's own encoding.

    Raises:
        LookupError: tiktoken has no such encoding.
        StudyError: its vocabulary is not on this machine and cannot be fetched.
    """
    import tiktoken

    if name in RANKS_SHA256 or name in SAME_RANKS:
        return _from_rank_file(name)
    if name not in encoding_names():
        raise LookupError(name)
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:  # requests, OSError, a hash mismatch: there is no vocabulary
        raise _not_to_be_had(name, error) from error


def forget_encoding() -> None:
    """Let go of the encoding that was read last: 30 to 55 MB, and half a CPU second to read."""
    _from_rank_file.cache_clear()


def _packed(encoding: str) -> Path | None:
    """Where the installed bpe-openai has the rank file; None where that is not installed."""
    spec = importlib.util.find_spec("bpe_openai")
    for folder in (spec and spec.submodule_search_locations) or ():
        packed = Path(folder) / "data" / f"{encoding}.tiktoken.gz"
        if packed.is_file():
            return packed
    return None


def _cached_or_fetched(encoding: str) -> bytes:
    import tiktoken.load

    try:
        # The address and its pinned hash stay tiktoken's; the file is wanted before it is parsed.
        made = _constructed(encoding, tiktoken.load.read_file_cached)
        return bytes(made["mergeable_ranks"])
    except Exception as error:  # requests, OSError, a hash mismatch: there is no vocabulary
        raise _not_to_be_had(encoding, error) from error


@lru_cache(maxsize=1)
def _from_rank_file(name: str) -> tiktoken.Encoding:
    import tiktoken

    words = rank_file(SAME_RANKS.get(name, name)).split()
    ranks = dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
    del words  # as large as the vocabulary
    return tiktoken.Encoding(**_constructed(name, lambda *_args, **_kwargs: ranks))


def _constructed(encoding: str, load: Callable[..., Any]) -> dict[str, Any]:
    """tiktoken's own parameters of an encoding (pattern, special tokens), but for the ranks."""
    import tiktoken_ext.openai_public as public  # type: ignore[import-untyped]

    original = public.load_tiktoken_bpe
    public.load_tiktoken_bpe = load
    try:
        return dict(public.ENCODING_CONSTRUCTORS[encoding]())
    finally:
        public.load_tiktoken_bpe = original


def _not_to_be_had(encoding: str, error: Exception) -> StudyError:
    without = (
        "install bpe-openai, which carries it"
        if encoding in RANKS_SHA256
        else f"use {' or '.join(RANKS_SHA256)}, which need no network"
    )
    return StudyError(
        f"The vocabulary of tiktoken's {encoding!r} is not on this machine and cannot be "
        f"fetched ({type(error).__name__}); connect once, or {without}."
    )
