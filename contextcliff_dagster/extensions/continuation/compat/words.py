"""Words, sentences and syllables as Context-Tester counts them, and the list of familiar words."""

from __future__ import annotations

import re
from functools import lru_cache
from html.entities import html5
from html.parser import HTMLParser
from pathlib import Path

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.user_files import read_file

_SENTENCE = re.compile(r"\b[^.!?]+[.!?]*")
_VOWELS = re.compile("[aeiouy]+")
_STRIPPED = ".(),\"'"
_WITHOUT_TEXT = frozenset({"script", "style", "template", "rt", "rp"})

FUNCTION_WORDS = frozenset(
    """
    the to of and a in that have i it for not on with he as you do at this but his by from they or
    an will my one all would there their what so up out if about who get which go me when make can
    like time no just him know take people into year your good some could them see other than then
    now look only come its over think also back after use two how our work first well way even new
    want because any these give day most us she
    """.split()
)
"""The 100 most frequent lemmas of the Oxford English Corpus without be, we, say and her."""


def without_tags(text: str) -> str:
    """Return the text of ``text`` read as HTML: tags, comments and scripts dropped."""
    if "<" not in text and "&" not in text:
        return text
    reader = _TextOfHtml()
    reader.feed(text)
    reader.close()
    return "".join(reader.parts)


def words_of(text: str) -> list[str]:
    """Pieces between white space in lower case, without ``.(),"'`` at both ends; some are empty."""
    return [piece.strip(_STRIPPED) for piece in without_tags(text).lower().split()]


def sentences_of(text: str) -> list[str]:
    """Runs of characters up to and with ``.``, ``!`` or ``?``; line breaks count as spaces."""
    return _SENTENCE.findall(text.replace("\n", " ").strip())


@lru_cache(maxsize=65_536)
def syllables(word: str) -> int:
    """Groups of vowels, one less for a final e, at least one; one for up to three letters."""
    if len(word) <= 3:
        return 1
    return max(1, len(_VOWELS.findall(word)) - word.endswith("e"))


def familiar_words(content: str) -> frozenset[str]:
    """The words of a list with one on each line, in lower case."""
    return frozenset(word for line in content.splitlines() if (word := line.strip().lower()))


def read_word_list(path: Path) -> frozenset[str]:
    """Return the familiar words, one on each line of a file of the user, in lower case.

    Raises:
        StudyError: it cannot be read, or holds no words.
    """
    try:
        words = familiar_words(read_file(path).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise StudyError(f"Word list {path} cannot be read: {reason}.") from error
    if not words:
        raise StudyError(f"Word list {path} is empty; give a file with one word on each line.")
    return words


def is_familiar(word: str, familiar: frozenset[str]) -> bool:
    """Whether ``word`` is a number or, without ``'s`` and ``s'``, exactly in the list."""
    bare = word.replace("'s", "").replace("s'", "")
    return bare.isdigit() or bare in familiar


class _TextOfHtml(HTMLParser):
    """Collects text; an unknown entity stays as it is, and a script's content is no text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _WITHOUT_TEXT:
            self._hidden.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """No content follows."""

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(html5.get(f"{name};", f"&{name}"))

    def handle_charref(self, name: str) -> None:
        number = re.match("[xX]([0-9a-fA-F]+)|([0-9]+)", name)
        if number is None:
            self.handle_data(name)
            return
        code = int(number[1], 16) if number[1] else int(number[2])
        self.handle_data(_character(code) + name[number.end() :])

    def unknown_decl(self, data: str) -> None:
        if data.upper().startswith("CDATA["):
            self.handle_data(data[len("CDATA[") :])


def _character(code: int) -> str:
    """The character; pages in windows-1252 number theirs as bytes."""
    if 0x80 <= code <= 0x9F:
        return bytes([code]).decode("cp1252", "replace")
    return chr(code) if 0 < code < 0x110000 else "\ufffd"
