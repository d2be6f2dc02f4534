"""tiktoken's encodings without a network: the two current ones carry their rank files here."""

from __future__ import annotations

import base64
import hashlib
import lzma
from importlib import resources
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    import tiktoken

__all__ = ["RANKS_SHA256", "carried_ranks", "tiktoken_encoding"]

RANKS_SHA256 = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""The carried encodings, with the SHA-256 of their rank files as tiktoken pins it."""


def carried_ranks(encoding: str) -> bytes:
    """The rank file of a carried encoding, proven against the hash that tiktoken pins.

    Raises:
        StudyError: the packaged file is damaged.
    """
    packed = resources.files("contextcliff_dagster.sampling") / "ranks" / f"{encoding}.tiktoken.xz"
    try:
        content = lzma.decompress(packed.read_bytes())
    except (OSError, lzma.LZMAError) as fault:
        raise StudyError(
            f"The vocabulary {packed} is damaged ({fault}); install the package again."
        ) from fault
    if hashlib.sha256(content).hexdigest() != RANKS_SHA256[encoding]:
        raise StudyError(
            f"The vocabulary {packed} is not tiktoken's {encoding}; install the package again."
        )
    return content


def tiktoken_encoding(name: str) -> tiktoken.Encoding:
    """tiktoken's own encoding; the carried ones never ask the network.

    Raises:
        StudyError: tiktoken has no such encoding, or its vocabulary is not cached nor reachable.
    """
    import tiktoken

    if name in RANKS_SHA256:
        return _from_carried_ranks(name)
    names = tiktoken.list_encoding_names()
    if name not in names:
        raise StudyError(f"tiktoken has no encoding {name!r}; it has {', '.join(names)}.")
    try:
        return tiktoken.get_encoding(name)
    except Exception as fault:  # requests, OSError, a hash mismatch: there is no vocabulary
        raise StudyError(
            f"The vocabulary of tiktoken's {name!r} is not on this machine and cannot be "
            f"fetched ({type(fault).__name__}); connect once, or use "
            f"{' or '.join(RANKS_SHA256)}, which need no network."
        ) from fault


def _from_carried_ranks(name: str) -> tiktoken.Encoding:
    import tiktoken
    import tiktoken_ext.openai_public as public  # type: ignore[import-untyped]

    ranks = {}
    for line in carried_ranks(name).splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    original = public.load_tiktoken_bpe
    try:
        # Pattern and special tokens stay tiktoken's; only where the ranks come from is ours.
        public.load_tiktoken_bpe = lambda *_args, **_kwargs: ranks
        return tiktoken.Encoding(**public.ENCODING_CONSTRUCTORS[name]())
    finally:
        public.load_tiktoken_bpe = original
