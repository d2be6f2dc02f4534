"""A fast counter in place of a reference library, as soon as it pays and only where they agree.

Loading the fast one takes seconds, so the reference library counts the first megabytes by itself.
Before the fast one counts anything, both count `CHECK_TEXTS` and the beginning of the text at
hand; where one count differs, the reference library goes on, and `CheckedCounter.counted_by` says
so.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.freed_memory import return_freed_memory

Count = Callable[[str], int]
CountMany = Callable[[Sequence[str]], list[int]]

_OWN_CHARACTERS = 100_000
_TIDY_CHARACTERS = 25_000_000
_LONG_RUN = re.compile(r"(?<!\s)\s{5000}|(?<!\S)\S{5000}")
"""Runs on which the reference libraries' regular expressions take quadratic time, or panic
(tiktoken 0.14: a million spaces). The pattern is linear: it is tried at the start of a run only."""


class CheckedCounter:
    """Counts of one vocabulary by two libraries that must agree.

    Args:
        reference: loads the library whose counts are authoritative.
        fast: loads the fast library; None if it cannot read this vocabulary.
        names: names of the two, with their versions.
        worth_characters: length of text from which loading the fast library pays.
        by_reference: whether only the reference library counts a text correctly.

    Thread-safe.
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
        """Announce how much text follows; the counter is chosen on the first call."""
        if characters > self._left:
            self._left = 0

    def refer(self, texts: Sequence[str]) -> list[int]:
        """Return one count per text, all by the reference library; the fast one is unloaded first,
        and loaded again when it is needed."""
        with self._lock:
            self._fast = None
        return_freed_memory()
        return self._refer([whole(text) for text in texts])

    def rest(self, *, but_reference: bool = False) -> None:
        """Unload both libraries' vocabularies; they are loaded again when needed.

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
                "breaks on very long runs of spaces, or without any); leave such a document out."
            ) from error

    def compare(self, text: str = "") -> None:
        """Choose a library, once, by the check texts and the beginning of ``text``."""
        with self._lock:
            if self._verdict:
                return
            texts = list(CHECK_TEXTS)
            if not _LONG_RUN.search(text):
                texts.append(text[:_OWN_CHARACTERS])
            wanted = self._refer(texts)
            # Never both in memory: the vocabulary of a large model takes 60 to 200 MB in each.
            self._forget_reference()
            return_freed_memory()
            fast, error = self._loaded()
            return_freed_memory()
            if fast is None:
                self._verdict = f"because {self._names[1]} {error}"
                return
            wrong = sum(
                _count_or_none(fast, sample) != n for sample, n in zip(texts, wanted, strict=True)
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


def whole(text: str) -> str:
    """Return ``text`` as valid Unicode, like tiktoken: surrogate pairs joined, halves replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


_PROSE = (
    "The lighthouse keeper's log for 3 March 1887 records 14,250 waves, two brigs and no wind. ",
    "It's what they'd've said, I'm sure: we'll see, you're late, she doesn't mind. ",
    "IT'S THEY'LL DON'T You'Re We'vE camelCaseWord HTTPServerError snake_case_name kebab-case ",
    "Der Flußübergang bei Öhringen ist für Fußgänger gesperrt; l'été, où ça? ¿Qué más, señor? ",
    "Žluťoučký kůň úpěl; Zażółć gęślą jaźń; Ελληνικά και πάλι; Съешь ещё этих булок. ",
    "السلام عليكم ورحمة الله، كيف الحال؟ ١٢٣٤٥ — עברית עם נִקּוּד, שלום עולם. ",
    "สวัสดีครับ วันนี้อากาศดีมาก ๆ ขอบคุณ — ភាសាខ្មែរ — ລາວ — မြန်မာ ",
    "हिन्दी में लिखा हुआ वाक्य, संख्या १२३४; தமிழ் எழுத்து; বাংলা ভাষা; ਪੰਜਾਬੀ ",
    "東京は今日も晴れです。カタカナとひらがな、漢字。你好,世界!汉语没有空格。한국어 문장입니다. ",
)
_CODE = (
    "def f(x: int = 0x1F, *args, **kw) -> dict[str, list[int]]:\n    return {'a': [x, -1.5e-3]}\n",
    "\tif (a&&b||!c) { return a->b[i++] ^ ~0xFFu; }  // ok\r\n\t}\r\n\r\n",
    "SELECT COUNT(*) FROM t WHERE a<>'b' AND c>=1_000;--\n<div class=\"x\">&nbsp;</div>\n",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\path\\file.txt $HOME/.config/*~\n",
    "$$\\frac{\\partial^2 f}{\\partial x^2} = \\sum_{i=0}^{\\infty} \\alpha_i$$ ∀x∈ℝ: ⌈x⌉ ≥ x\n",
)
_SIGNS = (
    "🙂😀👍🏽👩‍👩‍👧‍👦🏳️‍🌈🇩🇪🇫🇷❤️‍🔥✈︎☎️ 1️⃣ #️⃣",
    "e\u0301 é a\u030a\u0323 ﬁ ﬀ Ǆ ǅ ǆ ß ẞ İ ı ſ K Å ²½Ⅷ①٣৪〇",
    "'ſ it'ſ IT'ſ 'S 's ’s ‘quoted’ “double” «guillemets» „unten“",
    "zero\u200bwidth\u200cnon\u200djoin\u2060word\ufeffbom\u00adsoft\u00a0hard\u202frtl\u202e.",
    "a\x00b\x01c\x07d\x08e\x0bf\x0cg\x1bh\x1fi\x7fj\x80k\x85l\u2028m\u2029n",
    "\ufffd\ufffe\uffff\U0001f600\U000e0041\U0010ffff𝒜𐐀𠀀",
    "<|endoftext|><|im_start|>user<|im_end|><|fim_prefix|><s></s>[INST][/INST]<unk><pad>[CLS]",
)
_RUNS = (
    *(f"x{' ' * n}y" for n in (1, 2, 3, 7, 16, 81, 300)),
    *(f"{sign * n}" for sign in "\n\t0a=-_." for n in (2, 9, 70, 400)),
    *(f"{'9' * n} {'1' * n}." for n in (1, 2, 3, 4, 7, 20)),
    " \n \n\n  \n\t\n \t x\n\n\n  y  \n",
    "\r\n\r\n \r\n\n\r \r\r\n",
    "  leading and trailing  ",
    "a b  c   d    e     f",
    "word" * 60,
    "AbCdE" * 60,
    "ab1" * 60,
    "ก" * 120,
    "中" * 120,
    "🙂" * 60,
    "\u0301" * 40,
    "'s" * 40,
    "\u00a0" * 40,
)

CHECK_TEXTS: tuple[str, ...] = (
    "",
    " ",
    "a",
    *_PROSE,
    *_CODE,
    *_SIGNS,
    *_RUNS,
    "".join(_PROSE),
    "".join(_CODE),
    " ".join((*_PROSE, *_SIGNS, *_CODE)),
)
"""Texts on which equivalent tokenizers have differed: scripts, spaces, digits, joints.

Small on purpose: a fast counter is compared with its reference library on them whenever it is
loaded. All were written for this purpose.
"""
