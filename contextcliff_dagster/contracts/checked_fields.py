"""Values of a dataclass that come from a file, held to its declaration."""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from dataclasses import fields
from typing import Any

_MOST = 1_000_000_000


def check_fields(instance: Any, shares: Collection[str] = ()) -> None:
    """Return if every field holds what it is declared as: a text that is not empty, or a number.

    Args:
        instance: a dataclass of ``str``, ``int`` and ``float``, each or None.
        shares: fields of 0 to 1; other numbers are above 0, counts called ``n`` may be 0.

    Raises:
        ValueError: naming the first field that does not.
    """
    for field in fields(instance):
        value, declared = getattr(instance, field.name), str(field.type)
        if value is None and "None" in declared:
            continue
        if "str" in declared:
            fine = isinstance(value, str) and value != ""
        else:
            kinds: tuple[type, ...] = (int, float) if "float" in declared else (int,)
            most = 1 if field.name in shares else _MOST
            count = field.name.startswith("n") and value == 0
            fine = type(value) in kinds and (0 < value <= most or count)
        if not fine:
            raise ValueError(f"{field.name} is {reprlib.repr(value)}")
