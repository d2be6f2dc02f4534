"""File formats as streams of (place, row): JSON Lines, JSON, CSV, TSV and Parquet.

Every reader holds one row (or one small batch) at a time, whatever the file's size.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from http.client import HTTPException
from json.decoder import JSONDecodeError
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from contextcliff_dagster.contracts import ContextCliffError, CorpusError
from contextcliff_dagster.store import atomic_path, slug, store_root
from contextcliff_dagster.user_files import open_file, require_file

_SECONDS = 60.0
_DOWNLOAD_CHUNK = 1 << 20


def is_url(path: str) -> bool:
    """Return whether ``path`` is a URL rather than a path."""
    return path.lower().startswith(("http://", "https://"))


def local_copy(url: str, folder: Path | None = None) -> Path:
    """Return the local copy of ``url`` below ``folder`` (the store's ``downloads``); download it
    only once, so that a measurement does not change with what a server returns tomorrow.

    Raises:
        CorpusError: it cannot be downloaded whole, or the address is a web page's. The message
            shows no password or token of the address.
    """
    from urllib.request import Request, urlopen

    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    shown = f"{parts.scheme}://{host}{parts.path}"
    if "@" in parts.netloc:
        raise CorpusError(
            f"The address of {shown} holds a user's name, which is not sent; download the file by "
            "other means and name it."
        )
    last = unquote(parts.path).rpartition("/")[2]
    stem, dot, ending = last.rpartition(".")
    name = f"{slug(stem)}.{slug(ending)}" if dot and stem else slug(last or "file")
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    target = (folder or store_root() / "downloads") / digest / name
    if target.is_file():
        return target
    try:
        request = Request(url, headers={"User-Agent": "contextcliff"})
        with urlopen(request, timeout=_SECONDS) as answer, atomic_path(target) as temporary:
            page = answer.headers.get_content_type() == "text/html"
            if page and not name.lower().endswith((".html", ".htm", ".xhtml")):
                raise CorpusError(
                    f"{shown} is a web page, not a file; give the file's own address, "
                    "usually the link of its download button."
                )
            expected_size = answer.headers.get("Content-Length")
            size = 0
            with temporary.open("wb") as file:
                while chunk := answer.read(_DOWNLOAD_CHUNK):
                    size += file.write(chunk)
            if expected_size is not None and int(expected_size) != size:
                raise CorpusError(
                    f"{shown} ended after {size:,} of {int(expected_size):,} bytes; try again."
                )
    except (OSError, HTTPException, ValueError) as error:
        # The messages of other errors may repeat the whole address.
        cause = f"{error.code} {error.reason}" if isinstance(error, HTTPError) else ""
        cause = cause or str(getattr(error, "reason", "") or type(error).__name__)
        raise CorpusError(
            f"{shown} cannot be downloaded ({cause}); download it by other means and name the file."
        ) from None
    return target


_CHUNK = 1 << 19
_LONGEST_LINE = 1 << 28
UTF16_OR_32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line with its line end) of a UTF-8 file, without a byte order mark.

    Raises:
        CorpusError: the file is binary or not UTF-8, with the line; or cannot be read.
    """
    try:
        with open_file(path) as file:
            if b"\x00" in (start := file.peek()) and not start.startswith(UTF16_OR_32):
                raise binary(path, 1 + start[: start.index(b"\x00")].count(b"\n"), CorpusError)
            for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
                if len(line) == _LONGEST_LINE:
                    raise _longer(path, number, line)
                if number == 1:
                    line = _without_mark(path, line, CorpusError)
                try:
                    if b"\x00" in line:
                        raise binary(path, number, CorpusError)
                    yield number, line.decode()
                except UnicodeDecodeError as error:
                    raise _not_utf8(path, number, error.start + 1, error, CorpusError) from error
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}.") from error


def text_chunks(path: Path, file: Any, error: type[ContextCliffError]) -> Iterator[str]:
    """Yield the text of the binary ``file`` in pieces, without a byte order mark.

    Pieces are needed because even large JSON files often have one line. Problems are raised as
    ``error``, in the cases where :func:`text_lines` raises CorpusError.
    """
    decode = (decoder := codecs.getincrementaldecoder("utf-8")()).decode
    line, n_before = 1, 0  # a chunk's first line, and the bytes of it in earlier chunks
    chunk = _without_mark(path, file.read(_CHUNK), error)
    while True:
        if (nul := chunk.find(b"\x00")) >= 0:
            raise binary(path, line + chunk.count(b"\n", 0, nul), error)
        n_pending = len(decoder.getstate()[0])
        try:
            yield decode(chunk, not chunk)
        except UnicodeDecodeError as bad:
            read = bad.object[: bad.start]
            if b"\n" in read:
                n_before, n_pending = 0, read.rfind(b"\n") + 1
            place = n_before - n_pending + bad.start + 1
            raise _not_utf8(path, line + read.count(b"\n"), place, bad, error) from bad
        if not chunk:
            return
        line += chunk.count(b"\n")
        end = chunk.rfind(b"\n") + 1
        n_before = len(chunk) - end if end else n_before + len(chunk)
        chunk = file.read(_CHUNK)


def _without_mark(path: Path, first: bytes, error: type[ContextCliffError]) -> bytes:
    if first.startswith(UTF16_OR_32):
        raise error(f"{path} is UTF-16 or UTF-32; save it as UTF-8.")
    return first.removeprefix(codecs.BOM_UTF8)


def binary(path: Path, line: int, error: type[ContextCliffError]) -> ContextCliffError:
    """Return the error for a ``line`` that contains a NUL byte."""
    return error(
        f"{path}, line {line} holds NUL bytes: this is a binary file; "
        "give JSON Lines, JSON, CSV, TSV or Parquet."
    )


def _longer(path: Path, line: int, start: bytes) -> ContextCliffError:
    if b"\x00" in start:
        return binary(path, line, CorpusError)
    return CorpusError(
        f"{path}, line {line} is longer than {_LONGEST_LINE >> 20} MB, which no example is; write "
        "one example a line."
    )


def _not_utf8(
    path: Path, line: int, place: int, bad: UnicodeDecodeError, error: type[ContextCliffError]
) -> ContextCliffError:
    return error(
        f"{path}, line {line} is not UTF-8 (byte {place} of the line "
        f"is 0x{bad.object[bad.start]:02x}); save the file as UTF-8."
    )


_SPACE = " \t\r\n"
_READ_AHEAD = 1 << 19
_NUMBER_GOES_ON = 4
"""A number this close to the end of the buffer may be incomplete, such as 1 from 1.5 or 1e-9."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a value; fill it or drop the row")


DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""JSON decoder that refuses NaN and Infinity, which Python would accept."""


class JsonStream:
    """Incremental JSON parser: the buffer holds the current value and some text ahead of it.

    Args:
        file: the opened file, read from its position; ``path`` is opened when None.
        error: class of the errors raised, always with the path and, if possible, the line.
        longest: maximum length of a value in characters.
    """

    def __init__(
        self,
        path: Path,
        file: Any = None,
        *,
        error: type[ContextCliffError] = CorpusError,
        decoder: json.JSONDecoder = DECODER,
        longest: int | None = None,
    ) -> None:
        self._path, self._error, self._decoder, self._longest = path, error, decoder, longest
        self._pieces = self._text(file)
        self._buffer = ""
        self._at = 0
        self._line = 1

    def begins_with(self, character: str) -> bool:
        """Return whether this is the first character after white space, consuming nothing."""
        return self._skip(_SPACE) == character

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield (place, value) for every item of an array, or for every value in a sequence.

        Raises:
            ContextCliffError: the text is not JSON, holds NaN, or ends too early; with the line.
        """
        if self.begins_with("["):
            yield from self._items("its JSON array", "item")
            self._end("the JSON array's end")
            return
        count = 0
        while self._skip(_SPACE + "," if count else _SPACE):
            count += 1
            yield f"{self._path}, line {self._line} (item {count})", self._value(count)

    def members(self, spread: Collection[str] = ()) -> Iterator[tuple[str, str, Any]]:
        """Yield (place, name, value) for every member of one top-level object, one at a time.

        If a member in ``spread`` is an array, its items are yielded one by one under its name.

        Raises:
            ContextCliffError: see :meth:`values`; or the text is not an object.
        """
        if not self.begins_with("{"):
            self._fail(f", line {self._line} does not begin a JSON object.")
        self._at += 1
        count = 0
        while self._goes_on("}", count, "its JSON object", "member"):
            count += 1
            place = f"{self._path}, line {self._line} (member {count})"
            name = self._value(count)
            if not isinstance(name, str) or not self.begins_with(":"):
                raise self._error(f"{place} is not JSON: a quoted name and a colon belong there.")
            self._at += 1
            if self.begins_with("[") and name in spread:
                for item_place, value in self._items(repr(name), f"{name}, item"):
                    yield item_place, name, value
            else:
                yield place, name, self._value(count)
        self._end("the object's end")

    def _items(self, what: str, label: str) -> Iterator[tuple[str, Any]]:
        """Yield (place, value) for the array that begins here, and move past its end."""
        self._at += 1
        count = 0
        while self._goes_on("]", count, what, "item"):
            count += 1
            yield f"{self._path}, line {self._line} ({label} {count})", self._value(count)

    def _goes_on(self, end: str, count: int, what: str, unit: str) -> bool:
        """Skip the comma after ``count`` values; return whether there is a value before ``end``."""
        first = self._skip(_SPACE)
        if count and first == ",":
            self._at += 1
            first = self._skip(_SPACE)
        elif count and first not in (end, ""):
            self._fail(f", line {self._line} is not JSON: {first!r} in place of a comma.")
        if not first:
            self._fail(f" ends inside {what}, after {unit} {count}: it was cut off.")
        self._at += first == end
        return first != end

    def _end(self, what: str) -> None:
        if self._skip(_SPACE):
            self._fail(f", line {self._line} goes on after {what}.")

    def _skip(self, characters: str) -> str:
        """Skip these characters; return the character after them, or "" at the end."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in characters:
                self._line += self._buffer[self._at] == "\n"
                self._at += 1
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._read_on():
                return ""

    def _text(self, file: Any) -> Iterator[str]:
        if file is not None:
            yield from text_chunks(self._path, file, self._error)
            return
        try:
            with open_file(self._path) as opened:
                yield from text_chunks(self._path, opened, self._error)
        except OSError as error:
            self._fail(f" cannot be read: {error.strerror or error}.", error)

    def _read_on(self) -> bool:
        """Drop the consumed text and at least double the rest; return False at the file's end."""
        pieces, size = [self._buffer[self._at :]], 0
        if self._longest is not None and len(pieces[0]) > self._longest:
            self._fail(f" holds a value of more than {self._longest >> 20} MB, which no answer is.")
        least = max(_READ_AHEAD, len(pieces[0]))
        for text in self._pieces:
            pieces.append(text)
            size += len(text)
            if size >= least:
                break
        self._buffer, self._at = "".join(pieces), 0
        return size > 0

    def _value(self, count: int) -> Any:
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except JSONDecodeError as error:
                # Unfinished text is reported where it starts or where the buffer ends.
                unfinished = error.msg.startswith("Unterminated")
                if (unfinished or error.pos >= len(self._buffer) - 12) and self._read_on():
                    continue
                line = self._line + self._buffer.count("\n", self._at, error.pos)
                is_cut = unfinished or error.pos >= len(self._buffer)
                where = f"item {count}): it was cut off" if is_cut else f"item {count})"
                self._fail(f", line {line} is not JSON: {error.msg} ({where}.", error)
            except ValueError as error:
                self._fail(f", item {count}: {error}.", error)
            except RecursionError as error:
                self._fail(f", item {count} is nested too deeply to be an example.", error)
            length = end - self._at
            if len(self._buffer) - end < _NUMBER_GOES_ON and self._read_on():
                continue
            self._line += self._buffer.count("\n", self._at, self._at + length)
            self._at += length
            return value

    def _fail(self, what: str, cause: Exception | None = None) -> NoReturn:
        raise self._error(f"{self._path}{what}") from cause


LONGEST_FIELD = 2**31 - 1
"""Maximum length of a CSV field; the csv module's own limit is too low for a whole book."""
Rows = Iterator[tuple[str, Any]]
"""(place, row), such as ``qa.jsonl, line 7`` and the row's fields."""


def json_lines(path: Path) -> Rows:
    """Read one JSON object per line; blank lines are skipped."""
    for number, line in text_lines(path):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            yield place, DECODER.decode(line.strip())
        except JSONDecodeError as error:
            raise CorpusError(
                f"{place} is not one JSON object: {error.msg} at column {error.colno}."
            ) from error
        except ValueError as error:
            raise CorpusError(f"{place}: {error}.") from error
        except RecursionError as error:
            raise CorpusError(f"{place} is nested too deeply to be an example.") from error


def delimited(path: Path, delimiter: str = ",") -> Rows:
    """Read lines with a header row and RFC 4180 quoting, separated by ``delimiter``."""
    csv.field_size_limit(LONGEST_FIELD)
    numbered = text_lines(path)
    reader = csv.reader((text for _, text in numbered), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    start = 1
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise CorpusError(f"{path}, line {start}: {error}.") from error
        if fields is None:
            return
        place = f"{path}, line {start}"
        start = reader.line_num + 1
        if not any(fields):
            continue
        if header is None:
            header = [name.strip() for name in fields]
            counts = Counter(filter(None, header))
            if duplicate := next((name for name in header if counts[name] > 1), None):
                raise CorpusError(f"{place}: the header names column {duplicate!r} twice.")
            continue
        if len(fields) != len(header):
            raise CorpusError(
                f"{place} has {len(fields)} fields, the header has {len(header)}; "
                "quote fields that contain the delimiter or a line break."
            )
        yield place, dict(zip(header, fields, strict=True))


def parquet(path: Path) -> Rows:
    """Read the rows of a Parquet file, a small batch at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        require_file(path)
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            if len(set(file.schema_arrow.names)) < len(file.schema_arrow.names):
                raise CorpusError(f"{path} names a column twice.")
            for batch in file.iter_batches(batch_size=32, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}, after row {number}: a text column is not UTF-8.") from error
    except (pa.ArrowException, OSError) as error:
        message = str(error).splitlines()[0]
        raise CorpusError(
            f"{path} is not readable Parquet (after row {number}): {message}"
        ) from error


READERS: dict[str, Callable[[Path], Rows]] = {
    "jsonl": json_lines,
    "json": lambda path: JsonStream(path).values(),
    "csv": delimited,
    "tsv": partial(delimited, delimiter="\t"),
    "parquet": parquet,
}
ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
"""File ending -> format."""
