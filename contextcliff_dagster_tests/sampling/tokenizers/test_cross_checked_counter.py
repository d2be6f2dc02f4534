"""The fast counter counts only where it was seen to agree, and is loaded only where that pays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.sampling.tokenizers import tokenizers
from contextcliff_dagster.sampling.tokenizers.server import CHECK_TEXTS
from contextcliff_dagster.sampling.tokenizers.tokenizers import (
    CheckedCounter,
    Count,
    CountMany,
    TokenizerJson,
    open_tokenizer,
    tiktoken_encoding,
)


class Libraries:
    """Both count words; what was loaded and asked is on record."""

    def __init__(self, fast: Count | None = None, fault: Exception | None = None) -> None:
        self.loaded: list[str] = []
        self.referred: list[str] = []
        self._fast, self._fault = fast, fault

    def reference(self) -> CountMany:
        self.loaded.append("reference")

        def count(texts: Sequence[str]) -> list[int]:
            self.referred += texts
            return [len(text.split()) for text in texts]

        return count

    def fast(self) -> Count | None:
        self.loaded.append("fast")
        if self._fault:
            raise self._fault
        return self._fast

    def counter(
        self, worth: int, alone: Callable[[str], bool] = lambda text: False
    ) -> CheckedCounter:
        names = ("careful 1.0", "hasty 2.0")
        return CheckedCounter(
            self.reference, self.fast, names, worth_characters=worth, by_reference=alone
        )


def words(text: str) -> int:
    return len(text.split())


def test_little_text_is_counted_by_the_reference_and_nothing_else_is_loaded() -> None:
    libraries = Libraries(words)
    counter = libraries.counter(worth=100)
    assert counter.count_many(["a b"] * 33) == [2] * 33
    assert libraries.loaded == ["reference"]
    assert counter.counted_by == "careful 1.0"


def test_where_much_text_is_expected_the_first_of_it_is_counted_by_the_fast_one() -> None:
    libraries = Libraries(words)
    counter = libraries.counter(worth=100)
    counter.expect(100)
    assert counter.count("a b") == 2
    assert libraries.loaded == ["reference"]
    counter.expect(101)
    assert counter.count("a b c") == 3
    assert libraries.loaded == ["reference", "fast"]


def test_more_text_is_counted_by_the_fast_one_after_both_agreed_on_the_check_texts() -> None:
    libraries = Libraries(words)
    counter = libraries.counter(worth=100)
    assert counter.count("own words " * 20) == 40
    assert set(CHECK_TEXTS) < set(libraries.referred)
    assert "own words " * 20 in libraries.referred  # the text at hand is a check text, too
    n = len(CHECK_TEXTS) + 1
    assert counter.counted_by == f"hasty 2.0, equal to careful 1.0 on {n} check texts"
    seen = len(libraries.referred)
    assert counter.count("c d e") == 3
    assert len(libraries.referred) == seen


@pytest.mark.parametrize("wrong", [text for text in CHECK_TEXTS if text.split()][::9])
def test_one_count_that_differs_leaves_all_to_the_reference(wrong: str) -> None:
    libraries = Libraries(lambda text: words(text) + (text == wrong))
    counter = libraries.counter(worth=0)
    assert counter.count_many(["a b", wrong]) == [2, words(wrong)]
    assert counter.counted_by.startswith("careful 1.0, because hasty 2.0 counted 1 of ")
    assert counter.counted_by.endswith(" check texts otherwise")
    assert libraries.loaded == ["reference", "fast", "reference"]


def test_a_fast_one_that_breaks_or_does_not_load_leaves_all_to_the_reference() -> None:
    def breaks(text: str) -> int:
        raise RuntimeError(text)

    for libraries, why in (
        (Libraries(breaks), f"counted {len(CHECK_TEXTS) + 1} of {len(CHECK_TEXTS) + 1}"),
        (Libraries(None), "does not read this kind of vocabulary"),
        (Libraries(fault=ImportError("no such module")), "does not load here (ImportError)"),
    ):
        counter = libraries.counter(worth=0)
        assert counter.count("a b") == 2
        assert f"careful 1.0, because hasty 2.0 {why}" in counter.counted_by


def test_texts_that_only_the_reference_counts_rightly_go_to_it() -> None:
    libraries = Libraries(lambda text: words(text) + ("odd" in text))
    counter = libraries.counter(worth=0, alone=lambda text: "odd" in text)
    assert counter.count_many(["a b", "an odd one", "c"]) == [2, 3, 1]
    assert libraries.referred[-1] == "an odd one"


def test_long_runs_are_not_for_the_reference() -> None:
    libraries = Libraries(words)
    counter = libraries.counter(worth=10**9)
    assert counter.count("x" * 5_000) == 1
    assert "x" * 5_000 not in libraries.referred
    assert counter.counted_by.startswith("hasty")


def test_where_the_reference_panics_and_is_all_there_is_the_sentence_says_so() -> None:
    class PanicException(BaseException):
        pass

    def panics(texts: Sequence[str]) -> list[int]:
        if any(len(text) > 9_999 for text in texts):
            raise PanicException("stack overflow")
        return [1] * len(texts)

    names = ("careful 1.0", "hasty 2.0")
    counter = CheckedCounter(lambda: panics, lambda: None, names, worth_characters=0)
    with pytest.raises(StudyError, match=r"careful 1\.0 cannot count a document of up to 10,000"):
        counter.count(" " * 10_000)


def test_threads_that_begin_together_load_each_library_once() -> None:
    libraries = Libraries(words)
    counter = libraries.counter(worth=0)
    together = threading.Barrier(8)

    def one(_: int) -> int:
        together.wait()
        return counter.count("a b c")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == [3] * 8
    assert libraries.loaded == ["reference", "fast"]


def test_a_fastokens_that_counts_otherwise_is_found_out_in_the_real_tokenizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = tokenizers.TiktokenTokenizer._fast_counter

    def off_by_one(self: tokenizers.TiktokenTokenizer) -> Count | None:
        count = honest(self)
        assert count is not None
        return lambda text: count(text) + ("\r\n" in text)

    monkeypatch.setattr(tokenizers.TiktokenTokenizer, "_fast_counter", off_by_one)
    ours = tokenizers.TiktokenTokenizer("cl100k_base")
    ours.compare()
    assert ours.counted_by.startswith("tiktoken ")
    assert "check texts otherwise" in ours.counted_by
    text = "a\r\nb" * 10
    assert ours.count(text) == len(tiktoken_encoding("cl100k_base").encode_ordinary(text))


def test_a_tokenizer_json_that_changes_under_way_is_refused(tmp_path: Path) -> None:
    from contextcliff_dagster.reference.card import weights_path

    path = tmp_path / "tokenizer.json"
    content = (weights_path("reference-short") / "tokenizer.json").read_text()
    path.write_text(content)
    ours = TokenizerJson("file:x", path)
    path.write_text(content + " ")
    with pytest.raises(StudyError, match="changed while it was in use; run the same command"):
        ours.compare()


def test_a_small_tokenizer_is_opened_without_loading_the_fast_one() -> None:
    assert open_tokenizer("reference").counted_by.startswith("tokenizers ")  # type: ignore[attr-defined]
