"""Counts equal the reference libraries', need no network, and follow nothing but the text."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiktoken_ext.openai_public
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.sampling.tokenizers import tokenizers
from contextcliff_dagster.sampling.tokenizers.tokenizers import (
    RANKS_SHA256,
    TiktokenTokenizer,
    TokenizerJson,
    open_tokenizer,
    rank_file,
)
from contextcliff_dagster_tests.support.files.vocabularies import (
    BY_FASTOKENS,
    KINDS,
    opened,
    random_text,
    texts,
    train,
)

SOURCES = sorted(Path(os.__file__).parent.glob("*.py"))[:60]
OPENED: dict[str, tuple[Any, Any]] = {}


@pytest.fixture(scope="module")
def code() -> list[str]:
    """Real text: Python's own source files."""
    return [path.read_text(encoding="utf-8") for path in SOURCES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, code: list[str]) -> Iterator[Path]:
    """A trained tokenizer.json of every kind."""
    made = tmp_path_factory.mktemp("vocabularies")
    rng = random.Random(1)
    corpus = [text[:20_000] for text in code[:20]] + [random_text(rng, 40) for _ in range(100)]
    for kind in KINDS:
        reference = train(kind, made / f"{kind}.json", corpus)
        ours = TokenizerJson(kind, made / f"{kind}.json")
        ours.compare()
        OPENED[kind] = (ours, reference)
    yield made
    OPENED.clear()


@pytest.mark.parametrize("name", RANKS_SHA256)
def test_tiktoken_counts_of_code_and_of_noise_are_tiktokens(name: str, code: list[str]) -> None:
    ours, reference = opened(name)
    rng = random.Random(2)
    all_texts = [*code, *(random_text(rng, 200) for _ in range(200))]
    assert ours.count_many(all_texts) == [len(reference.encode_ordinary(t)) for t in all_texts]


def test_the_long_s_is_counted_by_tiktoken_itself() -> None:
    ours, reference = opened("o200k_base")
    text = "ſj'ſ'SR'𝒜"
    assert ours.count(text) == len(reference.encode_ordinary(text))


def test_texts_without_a_break_do_not_blow_up() -> None:
    ours, _ = opened("o200k_base")
    began = time.process_time()
    assert ours.count(" " * 1_000_000) == 7_813  # tiktoken 0.14 panics on this one
    assert ours.count("a" * 1_000_000) == 125_000
    assert time.process_time() - began < 20


@pytest.mark.parametrize("kind", KINDS)
@given(given_texts=st.lists(texts, min_size=1, max_size=4))
def test_tokenizer_json_counts_are_those_of_hugging_face(
    folder: Path, kind: str, given_texts: list[str]
) -> None:
    ours, reference = OPENED[kind]
    wanted = [len(reference.encode(t, add_special_tokens=False).ids) for t in given_texts]
    assert ours.count_many(given_texts) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizer_json_counts_of_code_and_noise_are_those_of_hugging_face(
    folder: Path, kind: str, code: list[str]
) -> None:
    ours, reference = OPENED[kind]
    rng = random.Random(3)
    all_texts = [*code[:20], *(random_text(rng, 150) for _ in range(150))]
    wanted = [len(one) for one in reference.encode_batch(all_texts, add_special_tokens=False)]
    assert ours.count_many(all_texts) == wanted
    assert ours.counted_by.startswith("fastokens" if kind in BY_FASTOKENS else "tokenizers")


def test_the_reference_tokenizer_counts_ledgers_as_they_were_made() -> None:
    from contextcliff_dagster.reference.warehouse_documents import iter_ledgers

    ours = open_tokenizer("reference")
    ledgers = list(iter_ledgers(0, 50))
    assert ours.count_many([x.text for x in ledgers]) == [x.length_tokens for x in ledgers]


@pytest.mark.parametrize("name", RANKS_SHA256)
def test_the_rank_files_are_those_that_tiktoken_pins(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: dict[str, str] = {}

    def asked(url: str, expected_hash: str) -> dict[bytes, int]:
        pinned[url] = expected_hash
        return {}

    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", asked)
    tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS[name]()
    assert list(pinned.values()) == [RANKS_SHA256[name]]
    assert len(rank_file(name)) > 1_000_000


def test_a_damaged_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tokenizers.RANKS_SHA256, "cl100k_base", "0" * 64)
    with pytest.raises(StudyError, match=r"'cl100k_base' is damaged; run .*bpe-openai`"):
        rank_file("cl100k_base")


def test_counting_needs_neither_network_nor_cache(tmp_path: Path) -> None:
    program = (
        "import socket\n"
        "def no(*a, **k): raise OSError('no network')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = no\n"
        "from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer\n"
        "for name in ('cl100k_base', 'o200k_harmony'):\n"
        "    t = open_tokenizer('tiktoken:' + name)\n"
        "    print(t.count('hello world'), t.count(\"'\\u017f\"))\n"
        "try:\n"
        "    open_tokenizer('tiktoken:p50k_base')\n"
        "except Exception as fault:\n"
        "    print(type(fault).__name__, fault)\n"
    )
    environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    *counts, last = done.stdout.splitlines()
    assert counts == ["2 3", "2 2"]
    assert last.startswith(
        "StudyError The vocabulary of tiktoken's 'p50k_base' is not on this machine"
    )
    assert not list(tmp_path.iterdir())


def test_fingerprints_tell_vocabularies_apart(folder: Path) -> None:
    prints = {OPENED[kind][0].fingerprint for kind in KINDS}
    prints |= {opened(name)[0].fingerprint for name in RANKS_SHA256}
    assert len(prints) == len(KINDS) + 2


def test_unknown_tokenizers_are_refused_in_a_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    (tmp_path / "model").mkdir()
    for name, words in {
        "gpt4": "no tokenizer 'gpt4'",
        "tiktoken:": "no tokenizer",
        "tiktoken:o900k": "tiktoken has no encoding 'o900k'",
        f"file:{tmp_path}/none.json": "there is no such file",
        f"file:{tmp_path}/model": "tokenizer.json",
        f"file:{broken}": "is not a Hugging Face tokenizer.json",
        f"file:{binary}": "is not a Hugging Face tokenizer.json",
    }.items():
        with pytest.raises(StudyError) as caught:
            open_tokenizer(name)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_folder_of_a_model_will_do(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "gpt2.json").read_bytes())
    assert open_tokenizer(f"file:{tmp_path}").fingerprint == OPENED["gpt2"][0].fingerprint


def test_a_vocabulary_of_tiktoken_is_read_once_until_it_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizers._from_rank_file.cache_clear()
    read: list[str] = []

    def counted(encoding: str) -> bytes:
        # Not the check that the file is there, nor the fast counter's own reading.
        if sys._getframe(1).f_code.co_name == "_from_rank_file":
            read.append(encoding)
        return rank_file(encoding)

    monkeypatch.setattr(tokenizers, "rank_file", counted)

    def count(*, but_reference: bool) -> None:
        ours = TiktokenTokenizer("cl100k_base")
        assert ours.count("a few words") == 3
        ours.rest(but_reference=but_reference)

    count(but_reference=True)
    count(but_reference=False)
    assert len(read) == 1
    count(but_reference=True)
    assert len(read) == 2
    ours = TiktokenTokenizer("cl100k_base")
    ours.compare()  # never both in memory
    assert tokenizers._from_rank_file.cache_info().currsize == 0
