"""Bytes to characters: which encoding a text is in, the little else that is done to it, and the
notes on both."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress

_BOMS = (  # UTF-32 before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 1 << 16
_DETECTED_FROM = 1 << 20
"""Bytes used to guess an encoding: guessing reads some 8 MB a second."""
# What programs write into texts: tab, line ends, vertical tab, form feed, backspace, bell, escape
# and the end mark of DOS. The others are controls.
_CONTROLS = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 26, 27}) + b"\x7f"
_CONTROLS_MOST = 0.01
_BAD_MOST = 0.1
# Declared encoding -> the encoding in fact used: browsers, too, read the first as the second.
_MEANT = {"iso-8859-1": "cp1252", "ascii": "cp1252", "us-ascii": "cp1252", "latin-1": "cp1252"}
_MEANT |= {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc-kr": "cp949"}
_MEANT |= {"iso-8859-9": "cp1254", "iso-8859-8-i": "iso-8859-8", "tis-620": "cp874"}
_MULTIBYTE = re.compile("[^\x00-\x7f\ufffd]")
SURROGATE = re.compile("[\ud800-\udfff]")


def is_utf16(data: bytes) -> str | None:
    """Return ``utf-16-le`` or ``utf-16-be`` for UTF-16 without a byte order mark, else None.

    Recognised by the NUL that is every other byte of anything with spaces and line ends in it.
    """
    sample = data[:_SAMPLE]
    if len(sample) < 4:
        return None
    even, odd = sample[0::2], sample[1::2]
    for name, high, low in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if high.count(0) > 0.3 * len(high) and low.count(0) <= 0.01 * len(low):
            text = sample[: len(sample) // 2 * 2].decode(name, "replace")
            if not _controls(text.encode("utf-8", "replace")):
                return name
    return None


def looks_binary(data: bytes) -> bool:
    """Whether these bytes are not text in any known encoding."""
    if any(data.startswith(mark) for mark, _ in _BOMS) or is_utf16(data):
        return False
    # The start and the middle: some formats begin with a text.
    middle = len(data) // 2
    return _controls(data[:_SAMPLE]) or _controls(data[middle : middle + _SAMPLE])


def _controls(sample: bytes) -> bool:
    n = len(sample) - len(sample.translate(None, _CONTROLS))
    return n > _CONTROLS_MOST * len(sample)


def decoded(data: bytes, notes: list[str], declared: str | None = None) -> str:
    """Decode `data`, with a note unless it was plain UTF-8.

    declared: the encoding that the file itself names; used if the bytes fit it and are not UTF-8.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            notes.append("byte order mark removed")
            return _read_as(name, data[len(mark) :], notes)
    if utf16 := is_utf16(data):
        return _read_as(utf16, data, notes)
    with suppress(UnicodeDecodeError):
        return data.decode()
    text = data.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    if bad <= _BAD_MOST * len(_MULTIBYTE.findall(text)):
        notes.append(f"sequences that are no UTF-8 replaced by U+FFFD: {bad:,}")
        return text
    if declared and (known := _known(declared)):
        with suppress(ValueError):
            text = data.decode(known)
            notes.append(f"decoded as {known}, which it declares")
            return text
    return _read_as(_guessed(data), data, notes)


def _read_as(name: str, data: bytes, notes: list[str]) -> str:
    if name != "utf-8":
        notes.append(f"decoded as {name}")
    text = data.decode(name, "replace")
    if bad := text.count("\ufffd"):
        notes.append(f"sequences that are no {name.upper()} replaced by U+FFFD: {bad:,}")
    return text


def _guessed(data: bytes) -> str:
    from chardetng_py import EncodingDetector

    # From the first byte beyond ASCII: earlier bytes are the same in all encodings.
    start = re.search(rb"[\x80-\xff]", data)
    detector = EncodingDetector()
    first = max(start.start() - 1000, 0) if start else 0
    detector.feed(data[first : first + _DETECTED_FROM], last=True)
    return _known(detector.guess(tld=None, allow_utf8=False)) or "cp1252"


def _known(name: str) -> str | None:
    """Return Python's name of an encoding; None if it is unknown or does not decode to text."""
    name = name.strip().lower()
    try:
        codec = codecs.lookup(_MEANT.get(name, name))
    except (LookupError, ValueError):
        return None
    if not getattr(codec, "_is_text_encoding", True):
        return None
    return re.sub(r"^windows-(\d+)$", r"cp\1", codec.name)


def tidied(text: str, notes: list[str]) -> str:
    """Return `text` with ``\\n`` line ends, without NUL and lone surrogates, else unchanged."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        notes.append("line ends made \\n")
    if "\0" in text:
        notes.append(f"NUL characters removed: {text.count(chr(0)):,}")
        text = text.replace("\0", "")
    if not text.isascii() and (n := len(SURROGATE.findall(text))):
        notes.append(f"halves of surrogate pairs replaced by U+FFFD: {n:,}")
        text = SURROGATE.sub("\ufffd", text)
    return text
