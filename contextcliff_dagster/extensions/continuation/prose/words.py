"""Words, sentences and language of a text, and its verbatim overlap with another text.

Verbatim overlap is the part of a continuation that repeats the author's own next text.

A model that knows the text by heart recites it, so that its prose is the author's regardless of the
context. Passages also share phrases by chance; passages from different places in one text show how
many.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

ENGLISH_ARTICLES = frozenset(("a", "an", "the"))
_ENGLISH = """
a an the this that these those i me my mine myself you your yours yourself he him his himself she
her hers herself it its itself we us our ours ourselves they them their theirs themselves who whom
whose which what one ones some any each every either neither both all none no another such same
somebody someone something anybody anyone anything nobody nothing everybody everyone everything
of to in on at by for with from into onto upon about above across after against along among around
before behind below beneath beside between beyond down during except inside near off out outside
over past since through throughout till toward towards under until up within without
and or but nor so yet if because although though unless while whereas whether as than when where
how why not there here then
be am is are was were been being have has had having do does did done doing will would shall should
can could may might must ought
"""
_OTHER_LANGUAGES = {
    "French": """le la les un une des du de et est dans que qui il elle nous vous ils elles je ne
        pas au aux ce cette ces son sa ses mais pour sur avec par était sont ou où se leur plus
        l d qu c j n s m à en y on ne si sans sous dans entre chez vers dont tout tous toute toutes
        même comme lorsque quand parce afin cela ceci ils lui leurs notre votre nos vos mon ma mes
        être avoir a ai ont avait peut doit fait aussi très ainsi donc alors car chaque aucun""",
    "German": """der die das den dem des ein eine einen einem einer und ist in zu nicht er sie es
        wir ihr ich sich mit auf für von war sind auch als an aus bei nach wie aber dass hatte
        im am zum zur vom durch um über unter vor bis gegen ohne zwischen während oder wenn weil
        ob denn doch noch nur so sehr kein keine keinen dies diese dieser dieses diesen jede jeder
        man mich mir dich uns ihm ihn ihnen ihre ihren seine seinen mein was wer wo hier dort da
        wird werden wurde wurden kann können muss soll sein haben hat hatten eines alle""",
    "Spanish": """el la los las un una unos unas y es en que de del no se su sus lo le les por con
        para como más pero al fue era son este esta muy ya cuando había
        a o u e ni si sin sobre entre hasta desde hacia también porque aunque donde quien cual cuyo
        esto estos estas ese esa eso esos aquel aquella él ella ellos ellas yo me mi mis tu te nos
        nuestro cada todo todos toda todas otro otra otros ser es está están ha han
        puede debe hay""",
    "Italian": """il lo la gli le un una uno e è in che di del della dei non si con per come ma al
        alla da dal sono era più nel nella questo questa anche quando
        i l d un gli delle degli dello dell dall dalla dalle all agli alle ai nell nei nelle negli
        sul sulla sui su tra fra per o se perché dove chi cui quale quali ciò si ci ne mi ti vi lui
        lei loro io noi voi suo sua suoi sue ogni tutto tutti tutte altro altri essere ha hanno
        può deve stato quello quella quelli così già ancora""",
    "Portuguese": """o a os as um uma e é em que de do da dos das não se com por para como mas ao
        no na foi era são mais seu sua ele ela quando muito
        à às aos nos nas num numa pelo pela pelos pelas sem sobre entre até desde também porque ou
        nem onde quem qual cujo isso isto este esta estes estas esse essa esses essas aquele aquela
        eles elas eu me mim nós lhe seus suas meu minha cada todo todos toda todas outro outra ser
        está estão há pode deve ter tem já""",
    "Dutch": """de het een en is in van dat niet te zijn hij zij ze wij ik je met op voor aan er
        maar om was ook als bij naar uit nog had hun
        of dan dus want omdat wanneer hoewel toen door over onder tussen tegen tot tijdens zonder
        voor vanaf deze dit die daar hier wat wie waar welke hem haar ons u jij jullie men mij mijn
        zich zijn heeft hebben had worden wordt werd kan kunnen moet zal zou geen wel zo al alle
        elk elke andere meer zeer alleen""",
}
FUNCTION_WORDS = {
    "English": frozenset(_ENGLISH.split()),
    **{language: frozenset(words.split()) for language, words in _OTHER_LANGUAGES.items()},
}

_LEAST_SHARE = 0.2
_LANGUAGES = tuple(FUNCTION_WORDS)


def function_words(words: Sequence[str], language: str = "English") -> NDArray[np.bool_]:
    """Return which lower-case ``words`` are function words, contractions by their first part."""
    return _memberships(words)[:, _LANGUAGES.index(language)]


def language_of(words: Sequence[str]) -> str | None:
    """Return the language with the most function words in ``words``, or None below a fifth."""
    return languages_of(words, len(words), 1)[0] if words else None


def languages_of(words: Sequence[str], width: int, step: int) -> list[str | None]:
    """Return the language of each stretch of ``width`` words, taken every ``step`` words."""
    total = np.concatenate((np.zeros((1, len(_LANGUAGES))), _memberships(words).cumsum(axis=0)))
    starts = np.arange(0, len(words) - width + 1, step)
    counts = total[starts + width] - total[starts]
    codes = counts.argmax(axis=1)
    wins = counts.max(axis=1, initial=0) >= _LEAST_SHARE * width
    return [_LANGUAGES[best] if clear else None for best, clear in zip(codes, wins, strict=True)]


def script_shares(text: str) -> dict[str, float]:
    """Return the fraction of letters in each script, named by the first word of Unicode names."""
    counts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if character.isalpha():
            counts[_script(character)] += count
    letters = counts.total()
    return {script: count / letters for script, count in counts.items()}


def _memberships(words: Sequence[str]) -> NDArray[np.bool_]:
    return np.array([_listed(word) for word in words], np.bool_).reshape(-1, len(_LANGUAGES))


@lru_cache(maxsize=1 << 16)
def _listed(word: str) -> tuple[bool, ...]:
    first = word.split("'")[0]
    return tuple(first in function_words for function_words in FUNCTION_WORDS.values())


@lru_cache(maxsize=4096)
def _script(character: str) -> str:
    return unicodedata.name(character, "UNNAMED").split()[0].split("-")[0]


_QUOTES = "'\"‘’‚‛“”„‟`´′″‹›«»「」『』"
_DASHES = "–—―‒−⸺⸻﹘─"
_HYPHENS = "‐‑⁃"
_INVISIBLE = "\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e\u200f"
_CANONICAL = str.maketrans(
    {
        **dict.fromkeys(_QUOTES, "'"),
        **dict.fromkeys(_DASHES, "—"),
        **dict.fromkeys(_HYPHENS, "-"),
        **dict.fromkeys(_INVISIBLE, None),
    }
)
_WRAPPED_COMPOUND = re.compile(r"(?<=\w)-[^\S\n]*\n\s*(?=\w)")
_NUMBER_RANGE = re.compile(r"(?<=\d)—(?=\d)")
_DASH = re.compile(r"\s*(?:—(?:\s*—)*|--+|(?<=\s)-(?=\s)|^-(?=\s)|(?<=\s)-$)\s*")
_QUOTE_RUN = re.compile(r"''+")
_EMPHASIS = re.compile(
    r"(?<![^\W_])[_*]{1,3}(?=[^\W_])|(?<=[^\W_])[_*]{1,3}(?![^\W_])|(?<=[.!?,;'])[_*]{1,3}(?=\s|$)"
)
_ELLIPSIS = re.compile(r"\.(?:\s?\.)+")
_BLANKS = re.compile(r"\s+")

WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Letters of scripts that do not separate words, as ranges of a regular expression."""
_END = re.compile(r"([.!?]+)[')\]]*(?:\[\d{1,3}\][')\]]*)*(?=\s|$)|([。！？।۔؟]+)'?")
_AHEAD = re.compile(r"[^\W_]")
_LETTERS = re.compile(r"[^\W\d_]+")
_INITIALISM = re.compile(r"(?:[A-Z]\.)+[A-Z]")
_BEFORE = re.compile(r"[^\s'(\[]+$")

_TITLES = frozenset(
    "mr mrs ms messrs mme mlle dr prof rev hon st sr jr capt col gen lt sgt maj adm gov sen rep "
    "mt ft esq vs viz cf dept approx".split()
)
"""Abbreviations after which a capital or a digit continues the sentence."""
_OTHERS = frozenset("etc al e.g i.e eg ie ca op a.m p.m inc ltd co bros".split())
"""Abbreviations that may end a sentence: a capital after them begins another. After an initialism
("U.S."), only a capitalised function word does: not "the U.S. Army"."""
_OPENING = FUNCTION_WORDS["English"]
_BEFORE_FIGURES = frozenset("no nos vol vols p pp ch chap fig figs art sec".split())


@dataclass(frozen=True, slots=True)
class Prose:
    """Text in canonical form, split into words and sentences.

    Attributes:
        text: canonical text: NFKC, with one kind of quotation mark, dash and blank.
        words: lower-case words in order.
        starts: start of each word in ``text``, in characters.
        sentence_ends: number of words before the end of each sentence, increasing; a last
        sentence without an end mark is omitted.
        marks_end: character position after the end mark of each of these sentences.
    """

    text: str
    words: tuple[str, ...]
    starts: NDArray[np.int64]
    sentence_ends: NDArray[np.int64]
    marks_end: NDArray[np.int64]

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        """Return the number of words in each sentence that has an end mark."""
        return np.diff(self.sentence_ends, prepend=0)

    def sentences(self) -> list[str]:
        """Return the sentences of the canonical text that have an end mark."""
        return [self.text[a:b].strip() for a, b in pairwise([0, *map(int, self.marks_end)])]

    def first(self, words: int) -> Prose:
        """Return the first ``words`` words, and the sentences that end within them."""
        if words >= len(self.words):
            return self
        return Prose(
            self.text[: int(self.starts[words])].rstrip(),
            self.words[:words],
            self.starts[:words],
            self.sentence_ends[self.sentence_ends <= words],
            self.marks_end[self.sentence_ends <= words],
        )


@lru_cache(maxsize=16)  # metrics, collapse and overlap read the same text
def read_prose(text: str) -> Prose:
    """Split ``text`` into words and sentences. Callers must not modify the arrays."""
    canonical = canonical_text(text)
    words, starts = [], []
    for match in _word_pattern(canonical).finditer(canonical):
        words.append(match.group().lower())
        starts.append(match.start())
    at = np.array(starts, np.int64)
    ends = np.fromiter(_sentence_ends(canonical), np.int64)
    # A mark without a word since the last mark ends no sentence.
    counts, first = np.unique(np.searchsorted(at, ends), return_index=True)
    valid = counts > 0
    return Prose(canonical, tuple(words), at, counts[valid].astype(np.int64), ends[first][valid])


def canonical_text(text: str) -> str:
    """Return ``text`` in NFKC, with ``'`` for quotes, ``—`` for dashes and single blanks."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_CANONICAL))
    text = _WRAPPED_COMPOUND.sub("-", text.translate(_CANONICAL))
    text = _EMPHASIS.sub("", text)
    text = _NUMBER_RANGE.sub("-", _BLANKS.sub(" ", text).strip())
    text = _QUOTE_RUN.sub("'", _ELLIPSIS.sub("...", text))
    return _BLANKS.sub(" ", _DASH.sub(" — ", text)).strip()


def _word_pattern(text: str) -> re.Pattern[str]:
    # Vowel signs of Indic scripts are marks, and no part of `\w`.
    marks = "" if text.isascii() else "".join(sorted(c for c in set(text) if _is_mark(c)))
    return _compiled_word(marks)


@lru_cache(maxsize=64)
def _compiled_word(marks: str) -> re.Pattern[str]:
    letter = rf"(?:[^\W\d_{WIDE}]{f'|[{marks}]' if marks else ''})"
    return re.compile(rf"[{WIDE}]|{letter}+(?:'{letter}+)*|\d+(?:[.,:]\d+)*")


@lru_cache(maxsize=4096)
def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


_STRAIGHT = str.maketrans(dict.fromkeys(_QUOTES, "'"))


def sentence_ends(text: str) -> tuple[int, ...]:
    """Return the character position of each sentence end in the unchanged ``text``."""
    return tuple(_sentence_ends(text.translate(_STRAIGHT)))


def _sentence_ends(text: str) -> Iterator[int]:
    for mark in _END.finditer(text):
        ahead = _AHEAD.search(text, mark.end(), mark.end() + 12)
        if ahead is None or _ends_sentence(text, mark, ahead.start()):
            yield mark.end()


def _ends_sentence(text: str, mark: re.Match[str], ahead: int) -> bool:
    """Return whether ``mark`` ends a sentence; ``ahead`` is the start of the next word."""
    dots, following = mark[1] or mark[2], text[ahead]
    if dots != ".":
        return not following.islower()
    before = _BEFORE.search(text, max(mark.start() - 16, 0), mark.start())
    word = before.group() if before else ""
    if len(word) == 1 and word.isupper() and word != "I":
        return False
    if _INITIALISM.fullmatch(word):
        opening = _LETTERS.match(text, ahead) if following.isupper() else None
        return opening is not None and opening[0].lower() in _OPENING
    word = word.lower()
    if word in _TITLES or (word in _BEFORE_FIGURES and following.isdigit()):
        return False
    return word not in _OTHERS or following.isupper()


RUN_WORDS = 8
"""Length, in words, of the runs compared, as in the contamination check in Chowdhery et al. 2022,
"PaLM: scaling language modeling with pathways"."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Words that a continuation shares with its author's next text, ignoring typography.

    Attributes:
        longest_run: words in the longest stretch that both have.
        shared_runs: fraction of the continuation's eight-word runs that the author also has;
        None for fewer than eight words.
    """

    longest_run: int
    shared_runs: float | None


@dataclass(frozen=True, slots=True)
class ChanceOverlap:
    """Overlap between human passages from different places in one text.

    Attributes:
        longest_run, shared_runs: largest value over all pairs.
        pairs: number of pairs compared.
    """

    longest_run: int
    shared_runs: float
    pairs: int

    def is_recited(self, overlap: Overlap) -> bool:
        """Return whether a continuation overlaps more than any two human passages do."""
        return overlap.longest_run > max(self.longest_run, RUN_WORDS) or (
            (overlap.shared_runs or 0.0) > self.shared_runs and overlap.longest_run > RUN_WORDS
        )


def verbatim_overlap(continuation: str, author: str) -> Overlap:
    """Return the overlap of ``continuation`` with ``author``, the text that really follows."""
    return _overlap(read_prose(continuation), read_prose(author))


def chance_overlap(texts: Iterable[Sequence[str]]) -> ChanceOverlap:
    """Return the overlap due to chance, measured on consecutive human passages of each text.

    Each passage is compared with the next but one, so that they share no sentence, and with one
    from the other half of its text. Without any pair the values are 0.
    """
    overlaps = []
    for passages in texts:
        proses = [read_prose(passage) for passage in passages]
        n = len(proses)
        pairs = [(i, i + 2) for i in range(n - 2)]
        pairs += [(i, i + n // 2) for i in range((n + 1) // 2) if 2 < n // 2 < n - i]
        overlaps += [_overlap(proses[a], proses[b]) for a, b in pairs]
    return ChanceOverlap(
        max((overlap.longest_run for overlap in overlaps), default=0),
        max((overlap.shared_runs or 0.0 for overlap in overlaps), default=0.0),
        len(overlaps),
    )


def _overlap(continuation: Prose, author: Prose) -> Overlap:
    runs = _runs(continuation)
    shared = None
    if runs:
        author_runs = set(_runs(author))
        shared = sum(run in author_runs for run in runs) / len(runs)
    matcher = SequenceMatcher(None, continuation.words, author.words, autojunk=False)
    return Overlap(matcher.find_longest_match().size, shared)


def _runs(prose: Prose) -> list[tuple[str, ...]]:
    return [prose.words[at : at + RUN_WORDS] for at in range(len(prose.words) - RUN_WORDS + 1)]
