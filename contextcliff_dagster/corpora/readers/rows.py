"""File formats as streams of (place, row): JSON Lines, JSON, CSV, TSV, Parquet and Arrow.

Every reader holds one row (or one small batch) at a time, whatever the file's size.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from http.client import HTTPException
from importlib import import_module
from json.decoder import JSONDecodeError
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from contextcliff_dagster.contracts import ContextCliffError, CorpusError, pip_install
from contextcliff_dagster.corpora.readers.tables import csv_table, saved_files
from contextcliff_dagster.store import atomic_path, slug, store_root
from contextcliff_dagster.user_files import open_file, require_file

_SECONDS = 60.0
_DOWNLOAD_CHUNK = 1 << 20
_HUB = re.compile(
    r"hf://(?:datasets/(?=[^/]+/))?(?P<name>[\w.-]+/[\w.-]+)"
    r"(?:@(?P<revision>refs/\w+/\w+|[\w.-]+))?(?:/(?P<rest>[^?#]+))?"
)
"""Address of a data set on the Hugging Face hub; the rest is a file, or ``config:split``."""


def is_url(path: str) -> bool:
    """Return whether ``path`` is a URL rather than a path."""
    return path.lower().startswith(("http://", "https://", "hf://"))


def local_copy(url: str, folder: Path | None = None) -> Path:
    """Return the local copy of ``url`` below ``folder`` (the store's ``downloads``); download it
    only once, so that a measurement does not change with what a server returns tomorrow.

    Raises:
        CorpusError: it cannot be downloaded whole, or the address is a web page's. The message
            shows no password or token of the address.
    """
    from urllib.request import Request, urlopen

    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
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
    of_hub = parts.scheme == "hf"
    target = target.with_suffix(".parquet") if of_hub else target
    if target.is_file():
        return target
    if of_hub:
        if (address := _HUB.fullmatch(url)) is None:
            raise CorpusError(f"{shown} is not hf://OWNER/NAME[@REVISION][/FILE or /CONFIG:SPLIT].")
        with atomic_path(target) as temporary:
            _load_from_hub(url, address, temporary)
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


def _load_from_hub(url: str, address: re.Match[str], target: Path) -> None:
    """Write a data set of the hub as Parquet; `datasets` knows the user's token."""
    try:
        load_dataset = import_module("datasets").load_dataset
    except ImportError as error:
        hint = f"install it with {pip_install('datasets')}"
        raise CorpusError(f"{url} needs the package datasets: {hint}.") from error
    rest = address["rest"] or ""
    is_file = Path(rest).suffix.lower() in ENDINGS
    config, _, split = ("", "", "") if is_file else rest.partition(":")
    part = {"data_files": rest if is_file else None, "split": split or None}
    try:
        loaded = load_dataset(address["name"], config or None, revision=address["revision"], **part)
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise CorpusError(f"{url} cannot be loaded: {reason}") from error
    splits = loaded if isinstance(loaded, dict) else {split: loaded}
    first = next(iter(splits))
    if len(splits) > 1:
        named = f"{url}{'' if config else '/'}:{first}"
        raise CorpusError(f"{url} has the splits {', '.join(splits)}; name one of them: {named}.")
    splits[first].to_parquet(target)


_CHUNK = 1 << 19
_LONGEST_LINE = 1 << 28


def is_utf16(start: bytes) -> bool:
    """Return whether ``start`` has a byte order mark of UTF-16."""
    return start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _open_as_utf8(path: Path) -> io.BufferedReader:
    file = open_file(path)
    if not is_utf16(file.peek(2)):
        return file
    import pyarrow as pa

    return io.BufferedReader(pa.transcoding_input_stream(pa.PythonFile(file), "utf-16", "utf-8"))


def text_lines(
    path: Path, file: io.BufferedReader | None = None, error: type[ContextCliffError] = CorpusError
) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line with its line end) of a text file, without a byte order mark.

    Without ``file``, the opened content in UTF-8, the mark may be that of UTF-16.

    Raises:
        error: the file is binary or not text in its encoding, with the line; or cannot be read.
    """
    try:
        with file or _open_as_utf8(path) as lines:
            if b"\x00" in (start := lines.peek()):
                raise binary(path, 1 + start[: start.index(b"\x00")].count(b"\n"), error)
            for number, line in enumerate(iter(partial(lines.readline, _LONGEST_LINE), b""), 1):
                if b"\x00" in line:
                    raise binary(path, number, error)
                if len(line) == _LONGEST_LINE:
                    raise error(
                        f"{path}, line {number} is longer than {_LONGEST_LINE >> 20} MB, which no "
                        "example is; write one example a line."
                    )
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                try:
                    yield number, line.decode()
                except UnicodeDecodeError as bad:
                    raise _not_utf8(path, number, bad.start + 1, bad, error) from bad
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"{path} cannot be read: {reason}.") from problem


def text_chunks(path: Path, file: Any, error: type[ContextCliffError]) -> Iterator[str]:
    """Yield the text of the binary ``file`` in pieces, without a byte order mark.

    Pieces are needed because even large JSON files often have one line. Problems are raised as
    ``error``, in the cases where :func:`text_lines` raises CorpusError.
    """
    decode = (decoder := codecs.getincrementaldecoder("utf-8")()).decode
    line, n_before = 1, 0  # a chunk's first line, and the bytes of it in earlier chunks
    chunk = file.read(_CHUNK).removeprefix(codecs.BOM_UTF8)
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


def binary(path: Path, line: int, error: type[ContextCliffError]) -> ContextCliffError:
    """Return the error for a ``line`` that contains a NUL byte."""
    return error(
        f"{path}, line {line} holds NUL bytes: this is a binary file; "
        "give JSON Lines, JSON, CSV, TSV or Parquet."
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
            with _open_as_utf8(self._path) as opened:
                yield from text_chunks(self._path, opened, self._error)
        except (OSError, UnicodeError) as error:
            self._fail(f" cannot be read: {getattr(error, 'strerror', None) or error}.", error)

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


def delimited(path: Path) -> Rows:
    """Read lines with a header row and RFC 4180 quoting, as `csv_table`."""
    table = csv_table(path, text_lines(path), CorpusError)
    counts = Counter(filter(None, table.header))
    if duplicate := next((name for name, count in counts.items() if count > 1), None):
        raise CorpusError(f"{path}: the header names column {duplicate!r} twice.")
    for line, fields in table.rows:
        yield f"{path}, line {line}", dict(zip(table.header, fields, strict=True))


def _of_batches(read: Callable[[Path], Iterator[Any]], kind: str, path: Path) -> Rows:
    """Yield the rows of the Arrow record batches that ``read`` yields, a few at a time."""
    import pyarrow as pa

    number = 0
    try:
        for batch in read(path):
            for start in range(0, len(batch), 32):
                for row in batch.slice(start, 32).to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}, after row {number}: a text column is not UTF-8.") from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise CorpusError(
            f"{path} is not readable {kind} (after row {number}): {reason}"
        ) from error


def _parquet(path: Path) -> Iterator[Any]:
    import pyarrow.parquet as pq

    require_file(path)
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        if len(set(file.schema_arrow.names)) < len(file.schema_arrow.names):
            raise CorpusError(f"{path} names a column twice.")
        yield from file.iter_batches(batch_size=32, use_threads=False)


def _arrow(path: Path) -> Iterator[Any]:
    """Yield the batches of an Arrow file (IPC), or of a folder that `datasets` saved."""
    import pyarrow as pa

    for file in saved_files(path, CorpusError) or [path]:
        require_file(file)
        with pa.memory_map(str(file)) as source:
            try:
                batches = pa.ipc.open_stream(source)
            except pa.ArrowInvalid:
                batches = pa.ipc.open_file(source).read_all().to_batches()
            for batch in batches:
                batch.validate(full=True)  # damaged offsets would end the process
                yield batch


READERS: dict[str, Callable[[Path], Rows]] = {
    "jsonl": json_lines,
    "json": lambda path: JsonStream(path).values(),
    "csv": delimited,
    "tsv": delimited,
    "parquet": partial(_of_batches, _parquet, "Parquet"),
    "arrow": partial(_of_batches, _arrow, "Arrow"),
}
ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
}
"""File ending -> format."""
