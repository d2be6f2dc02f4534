"""Small tokenizer.json files of the kinds that models have, and texts that are hard to split."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import strategies as st
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

from contextcliff_dagster.sampling.tokenizers.tokenizers import TiktokenTokenizer, tiktoken_encoding

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KINDS = ("gpt2", "llama2", "llama3", "qwen2", "bert", "t5")
BY_FASTOKENS = ("gpt2", "llama2", "llama3", "qwen2")

PIECES = (
    "the ",
    "tokens ",
    " Don't",
    "'S",
    "'ſ",
    "'LL",
    "ſ",
    "  ",
    "\t",
    "\n\n",
    "\r\n",
    " \n ",
    "\u00a0",
    "\u2003",
    "\u200b",
    "\ufeff",
    "\x00",
    "\x85",
    "\u2028",
    "12345",
    "²½",
    "٣",
    "().,;!?",
    "==>",
    "//",
    "Ünï",
    "e\u0301",
    "ǅ",
    "漢字",
    "カナ",
    "한국어",
    "مرحبا",
    "ไทย",
    "देव",
    "🙂",
    "👨‍👩‍👧",
    "𝒜𐐀",
    "<|endoftext|>",
    "<|im_start|>",
    "<s>",
    "def f(x):\n    return x",
    "a" * 70,
    " " * 90,
    "\n" * 40,
)
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=12), max_size=60).map("".join)


def random_text(rng: random.Random, pieces: int) -> str:
    """Pieces at random, one in ten replaced by any character at all."""
    parts = []
    for _ in range(pieces):
        any_character = chr(
            rng.choice([rng.randrange(0x80, 0xD800), rng.randrange(0xE000, 0x30000)])
        )
        parts.append(any_character if rng.random() < 0.1 else rng.choice(PIECES))
    return "".join(parts)


def train(kind: str, path: Path, corpus: Sequence[str]) -> tokenizers.Tokenizer:
    """A tokenizer of this kind, saved to ``path`` with truncation and padding switched on.

    They must not disturb a count.
    """
    specials = ["<|endoftext|>", "<|im_start|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer: trainers.Trainer
    if kind == "gpt2":
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif kind in ("llama3", "qwen2"):
        made = tokenizers.Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
        pattern = LLAMA_3 if kind == "llama3" else LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        made.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
        if kind == "qwen2":
            made.normalizer = normalizers.NFC()
    elif kind == "llama2":
        made = tokenizers.Tokenizer(
            models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
        )
        made.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        made.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
        specials = ["<unk>", "<s>", *(f"<0x{n:02X}>" for n in range(256))]
        alphabet = []
    elif kind == "bert":
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        specials = ["[UNK]", "[PAD]"]
    else:
        made = tokenizers.Tokenizer(models.Unigram())
        made.normalizer = normalizers.NFKC()
        made.pre_tokenizer = pre_tokenizers.Metaspace()
    if kind == "bert":
        trainer = trainers.WordPieceTrainer(
            vocab_size=2_000, special_tokens=specials, show_progress=False
        )
    elif kind == "t5":
        trainer = trainers.UnigramTrainer(
            vocab_size=1_000, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
        )
    else:
        trainer = trainers.BpeTrainer(
            vocab_size=3_000,
            initial_alphabet=alphabet,
            special_tokens=specials,
            show_progress=False,
        )
    # Unigram wants a place for every character: it gets fewer of them.
    made.train_from_iterator(corpus[:20] if kind == "t5" else corpus, trainer)
    if kind == "llama2":
        made.pre_tokenizer = None  # type: ignore[assignment]
    made.enable_truncation(16)
    made.enable_padding(length=32)
    made.save(str(path))
    made.no_truncation()
    made.no_padding()
    return made


_OPENED: dict[str, tuple[Any, Any]] = {}


def opened(name: str) -> tuple[Any, Any]:
    """A vocabulary of tiktoken's: as the product counts with it, and as tiktoken does."""
    if name not in _OPENED:
        _close()
        ours = TiktokenTokenizer(name)
        ours.compare()
        assert ours.counted_by.startswith("fastokens")
        _OPENED[name] = (ours, tiktoken_encoding(name))
    return _OPENED[name]


@pytest.fixture(scope="module", autouse=True)
def none_stays_open() -> Iterator[None]:
    """With its last test, a module lets its vocabulary go."""
    yield
    _close()


def _close() -> None:
    while _OPENED:
        _, (ours, _) = _OPENED.popitem()
        ours.rest()  # it refers to itself: two hundred megabytes would wait for the collector
