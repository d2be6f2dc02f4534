"""XML by its events: no tree, so depth costs nothing, and no entities of the file's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from xml.parsers import expat

from contextcliff_dagster.corpora.extraction.results import RefusedError

_SEPARATOR = " "


def parse_xml(
    data: bytes | str,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None],
    text: Callable[[str], None],
    name: str,
    entities: Mapping[str, str] | None = None,
) -> None:
    """Call `start(tag, attributes)`, `end(tag)` and `text(characters)` as they come.

    Tags and attributes are without their namespaces. Nothing outside the data is ever read.

    entities: characters of entities that the file uses and a DTD elsewhere would declare.
    name: what is parsed, for the message.

    Raises:
        RefusedError: it is not well formed, or declares entities, which may unfold without end.
    """
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.buffer_text = True

    def started(tag: str, attributes: dict[str, str]) -> None:
        start(_local(tag), {_local(key): value for key, value in attributes.items()})

    def refuse(*_: object) -> None:
        raise RefusedError(f"declares XML entities in {name}, which may unfold without end")

    def skipped(entity: str, is_parameter: bool) -> None:
        if not is_parameter:
            text((entities or {}).get(entity, f"&{entity};"))

    parser.StartElementHandler = started
    parser.EndElementHandler = lambda tag: end(_local(tag))
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = refuse
    parser.SkippedEntityHandler = skipped
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise RefusedError(f"is damaged: {name} is not well-formed XML") from error


def _local(name: str) -> str:
    return name.rpartition(_SEPARATOR)[2]
