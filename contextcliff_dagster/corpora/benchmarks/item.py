"""Checked access to one record of a published file: errors name the file and the line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from contextcliff_dagster.contracts import CorpusError


class Item:
    """An object of a benchmark's file; ``place`` is file and line (or row), for error messages."""

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            raise CorpusError(
                f"{place} is not an object with fields; check that the file is this benchmark's."
            )
        self.value, self.place = value, place

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def text(self, key: str) -> str:
        """The field's text.

        Raises:
            CorpusError: there is none, it is no text, or it is blank.
        """
        value = self._field(key)
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"{key!r} is not text with something in it")
        return value

    def label(self, key: str) -> str:
        """A short field that may be text or a whole number, as text; empty where there is none."""
        value = self.value.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int):
            return ""
        return str(value)

    def whole(self, key: str) -> int:
        value = self._field(key)
        # Parquet and pandas write whole numbers with a gap among them as 3.0.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{key!r} is not a whole number")
        return value

    def sequence(self, key: str) -> list[Any]:
        value = self._field(key)
        if not isinstance(value, list):
            raise self.error(f"{key!r} is not a list")
        return value

    def texts(self, key: str) -> list[str]:
        """The field's texts; it may be a single one. Blank ones are dropped."""
        value = self._field(key)
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.error(f"{key!r} is neither text nor a list of texts")
        return [one for one in value if one.strip()]

    def item(self, key: str) -> Item:
        return Item(self._field(key), f"{self.place}, {key}")

    def items(self, key: str) -> Iterator[Item]:
        for number, value in enumerate(self.sequence(key), start=1):
            yield Item(value, f"{self.place}, {key} {number}")

    def error(self, what: str) -> CorpusError:
        return CorpusError(f"{self.place}: {what}; fix it, or check that it is this benchmark's.")

    def _field(self, key: str) -> Any:
        value = self.value.get(key)
        if value is None:
            raise self.error(f"there is no {key!r}")
        return value
