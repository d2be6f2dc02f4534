"""The keys of an experiment's section as options of its command, and the study that they make."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from pydantic import BeforeValidator, ValidationError

from contextcliff_dagster.cli.options import Decorator, Finite, gathered_as, together
from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from contextcliff_dagster.studies import Study
    from contextcliff_dagster.studies.section import Section


@dataclass(frozen=True)
class SectionOptions:
    """Options for keys of a section: type, limits, help and default are those of the key.

    Attributes:
        section: of a study's file, under the key ``experiment``.
        command: as it is typed, for errors.
        keys: that are options, in the order of `--help`.
        names: key -> option, where that has another name.
        help: key -> what `--help` says instead of the key's description and default.
    """

    experiment: str
    section: type[Section]
    command: str
    keys: tuple[str, ...]
    names: Mapping[str, str]
    help: Mapping[str, str]

    @property
    def decorator(self) -> Decorator:
        """Gives a command the options, those that are given as ``keys``, checked by `study`."""
        return gathered_as("keys", _given, together(*map(self._option, self.keys)), self.keys)

    def study(self, given: Mapping[str, Any], **more: Any) -> Study:
        """The study with the ``given`` keys of the section, and ``more`` keys of its own.

        Raises:
            StudyError: an option has no such value.
        """
        from contextcliff_dagster.studies import Study

        keys = {key: self._values(key, value) for key, value in given.items()}
        try:
            return Study.model_validate({"name": self.experiment, **more, self.experiment: keys})
        except ValidationError as error:
            raise self._sentence(error) from None

    def name(self, key: str) -> str:
        """The option of a key."""
        return self.names.get(key) or f"--{key.replace('_', '-')}"

    def _option(self, key: str) -> Callable[..., Any]:
        field = self.section.model_fields[key]
        kind, metavar = _kind(field)
        shown = field.get_default()
        values = shown if isinstance(shown, tuple) else (shown,)
        shown = ",".join(f"{one:g}" if isinstance(one, float) else str(one) for one in values)
        more: dict[str, Any] = {"type": kind, "metavar": metavar}
        if kind is bool:
            shown, more = "", {"is_flag": True, "default": None}
        default = f" (default: {shown})" if shown else ""
        told = self.help.get(key) or f"{field.description}{default}."
        return click.option(self.name(key), key, help=told, **more)

    def _values(self, key: str, value: Any) -> Any:
        """``a,b`` as two values of a key that takes several."""
        field = self.section.model_fields.get(key)
        if field is None or get_origin(field.annotation) is not tuple or not isinstance(value, str):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not all(parts):
            raise StudyError(f"{self.name(key)} {value!r} lacks a value; write one, or leave it.")
        return parts

    def _sentence(self, error: ValidationError) -> StudyError:
        first = error.errors(include_url=False)[0]
        what = str(first["msg"]).removeprefix("Value error, ")
        what = re.sub(r"^Input should be ", "should be ", what)
        given = first.get("input")
        shown = f" {given!r}" if isinstance(given, str) and given not in what else ""
        places = [str(place) for place in first["loc"]]
        # Of several keys: in the sentence.
        named = [*places, *re.findall(r"'(\w+)'", what)]
        keys = self.section.model_fields.keys()
        key = next((place for place in named if place in keys), "")
        what = re.sub(r"'(\w+)'", lambda k: self.name(k[1]) if k[1] in keys else k[0], what)
        before = f"{self.name(key)}{shown}: " if key else ""
        what = what if before else f"{what[:1].upper()}{what[1:]}"
        return StudyError(f"{before}{what}; see `{self.command} -h`.")


def _given(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not None}


def _kind(field: FieldInfo) -> tuple[Any, str | None]:
    """Click's type of a key, and what `--help` calls its value."""
    limits = {
        name: value
        for one in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if (value := getattr(one, name, None)) is not None
    }
    low, high = (limits.get(a, limits.get(b)) for a, b in (("ge", "gt"), ("le", "lt")))
    if get_origin(field.annotation) is tuple:
        return str, "VALUES"
    if any(isinstance(one, BeforeValidator) for one in field.metadata):
        return str, "TOKENS"
    if field.annotation is int:
        return click.IntRange(low, high), "N"
    if field.annotation is float:
        return Finite(low, high, min_open="gt" in limits, max_open="lt" in limits), "X"
    if get_origin(field.annotation) is Literal:
        return click.Choice(get_args(field.annotation)), None
    return (bool, None) if field.annotation is bool else (str, "NAME")


def digest(decides: Any) -> str:
    """Six characters that tell studies apart, of what decides them."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:6]


def named_study(study: Study, name: str, option: str, what: str) -> Study:
    """Return ``study`` under ``name``, the value of ``option``, which names a ``what``.

    Raises:
        StudyError: that is no name, or one of a study with other options.
    """
    from contextcliff_dagster.studies import load_studies

    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,59}", name):
        raise StudyError(
            f"{option} {name!r} cannot name a {what}: write small letters, digits and hyphens, at "
            "most 60, beginning with a letter or a digit."
        )
    named = study.changed(name=name)
    known = load_studies().get(name)
    if known is not None and known.model_dump() != named.model_dump():
        raise StudyError(
            f"{option} {name}: there is a study of this name with other options, and it stays as "
            "it is; choose another name, or give the same options to go on with it."
        )
    return named
