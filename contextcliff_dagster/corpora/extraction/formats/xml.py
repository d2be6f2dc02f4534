"""XML by its events: no tree, so depth costs nothing, and of the file's own entities only short
texts; and ZIP archives of it, of which no more is unpacked than may be."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from xml.parsers import expat

from contextcliff_dagster.corpora.extraction.kinds_and_limits import Limits, RefusedError

_SEPARATOR = " "
_LONGEST_ENTITY = 100
"""Characters: addresses of namespaces, names and signs, as drawing programs declare them."""


def _ignore(_: str) -> None:
    """What is done with events that are not asked for."""


def parse_xml(
    data: bytes | str,
    name: str,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None] = _ignore,
    text: Callable[[str], None] = _ignore,
    entities: Mapping[str, str] | None = None,
) -> None:
    """Call `start(tag, attributes)`, `end(tag)` and `text(characters)` as they come.

    Tags and attributes are without their namespaces. Nothing outside the data is ever read.

    name: what is parsed, for the message.
    entities: characters of entities that the file uses and a DTD elsewhere would declare.

    Raises:
        RefusedError: it is not well formed, or declares entities that are elsewhere, long, or made
            of others, which may unfold without end.
    """
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.buffer_text = True

    def started(tag: str, attributes: dict[str, str]) -> None:
        start(_local(tag), {_local(key): value for key, value in attributes.items()})

    def declared(_: str, is_parameter: bool, value: str | None, *__: object) -> None:
        short = value is not None and len(value) <= _LONGEST_ENTITY and not set("&<") & set(value)
        if short and not is_parameter:
            return
        raise RefusedError(f"declares XML entities in {name}, which may unfold without end")

    def skipped(entity: str, is_parameter: bool) -> None:
        if not is_parameter:
            text((entities or {}).get(entity, f"&{entity};"))

    parser.StartElementHandler = started
    parser.EndElementHandler = lambda tag: end(_local(tag))
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = declared
    parser.SkippedEntityHandler = skipped
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise RefusedError(f"is damaged: {name} is not well-formed XML") from error


def _local(name: str) -> str:
    return name.rpartition(_SEPARATOR)[2]


class Packed:
    """A ZIP archive in memory. Only what is asked for is unpacked, and only up to the limit.

    Raises:
        RefusedError: it is no readable archive.
    """

    def __init__(self, data: bytes, limits: Limits) -> None:
        try:
            self._archive = zipfile.ZipFile(BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as error:
            raise RefusedError("is a broken ZIP archive") from error
        self._left = self._most = int(limits.unpacked_mb * 1e6)
        self.names = set(self._archive.namelist())

    def member(self, name: str) -> bytes:
        """All bytes of a member.

        Raises:
            RefusedError: it is not there, is damaged or encrypted, or unpacks to too much.
        """
        try:
            with self._archive.open(name) as member:
                data = member.read(self._left + 1)
        except KeyError as error:
            raise RefusedError(f"is incomplete: {name} is missing in it") from error
        except RuntimeError as error:  # zipfile's way to say that it wants a password
            raise RefusedError("is encrypted") from error
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as error:
            raise RefusedError(f"is damaged: {name} in it cannot be unpacked") from error
        if len(data) > self._left:
            raise RefusedError(f"unpacks to more than the {self._most / 1e6:,g} MB allowed")
        self._left -= len(data)
        return data

    def attributes(self, name: str, tag: str, *wanted: str) -> list[list[str]]:
        """The ``wanted`` attributes of each ``tag`` in an XML member, in order; "" where missing.

        Raises:
            RefusedError: as :meth:`member` and :func:`parse_xml`.
        """
        values: list[list[str]] = []

        def start(element: str, attributes: dict[str, str]) -> None:
            if element == tag:
                values.append([attributes.get(one, "") for one in wanted])

        parse_xml(self.member(name), name, start)
        return values
