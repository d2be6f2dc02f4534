"""Result files as JSON: their common head, units and limits, reading, and JSON Schemas.

A field is declared once: ``ci_low: Annotated[Score | None, "lower limit of the mean"]``. The string
is its description; the alias gives its unit and limits. The JSON Schemas are made from them.

A declaration is a frozen dataclass (or `TypedDict`) whose fields are strings, numbers, booleans,
enumerations, ``Literal``, other declarations, ``Sequence`` or ``Mapping[str, ...]`` of these, or
``... | None``. Numbers keep their type: an integer is read back as an integer.
"""

from __future__ import annotations

import enum
import math
import types
import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, TypeVar, cast

from contextcliff_dagster.contracts.values import RESULT_VERSION, UNSCORED_TAGS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


def nulls(model: type[R], **given: Any) -> R:
    """Return a ``model`` whose fields are None, except those in ``given``."""
    return model(**(dict.fromkeys(field.name for field in fields(model)) | given))


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit and limits of a number, or format of a text; ``None`` if not declared."""

    name: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    format: str | None = None


Count = Annotated[int, Unit("count", 0)]
Tokens = Annotated[int, Unit("tokens", 0)]
Score = Annotated[float, Unit("score", 0, 1)]
Share = Annotated[float, Unit("share", 0, 1)]
Probability = Annotated[float, Unit("probability", 0, 1)]
Relative = Annotated[float, Unit("share")]
Ratio = Annotated[float, Unit("ratio")]
Spread = Annotated[float, Unit("share", 0)]
Milliseconds = Annotated[float, Unit("ms", 0)]
Delay = Annotated[float, Unit("ms")]
"""Difference of two times; negative if the first is shorter."""
Dollars = Annotated[float, Unit("USD", 0)]
Moment = Annotated[str, Unit("UTC", format="date-time")]

Identified = Literal["yes", "no", "not_assessed"]


class Provenance(TypedDict):
    """What it takes to measure the same again; open, so that callers can add to it."""

    hashes: Annotated[Mapping[str, str | None], "SHA-256 of manifest, recipe, files"]
    file: NotRequired[Annotated[str, "names of the files that the scores come from"]]
    identity: NotRequired[Annotated[Mapping[str, Any], "fields of the serving identity"]]
    seeds: Annotated[Mapping[str, Any], "seeds of sampling and analysis"]
    versions: Annotated[Mapping[str, str | None], "versions of the programs and libraries"]
    origins: NotRequired[Annotated[Mapping[str, int], "archive -> answers that come from it"]]
    times: Annotated[Mapping[str, str | None], "when the first and the last call were answered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Planned calls without an answer, outside every mean."""

    context_overflow: Annotated[Count, "longer than the model accepts: never sent"]
    invalid_truncated: Annotated[Count, "the server saw fewer tokens than were sent"]
    transport_error: Annotated[Count, "no answer after all attempts"]
    content_filter: Annotated[Count, "withheld by the serving's content filter"] = 0

    @classmethod
    def of(cls, tags: Iterable[Any]) -> Missing:
        """Count the calls without an answer by their failure tags; other tags do not count."""
        counts = Counter(tags)
        return cls(**{tag.value: counts[tag.value] for tag in UNSCORED_TAGS})

    @property
    def total(self) -> int:
        """Return the number of calls without an answer."""
        return sum(getattr(self, tag.value) for tag in UNSCORED_TAGS)


LengthUnit = Literal["document", "prompt", "words", "characters", "as given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultHead:
    """What the results of a model begin with."""

    schema_version: Annotated[Literal["1.0", "1.1"], "of this file's format"]
    created_at: Annotated[Moment, "time of the analysis"]
    study: Annotated[str | None, "study"]
    model: Annotated[str, "serving configuration"]
    campaign: Annotated[str | None, "dated measurement of the study"]
    task: Annotated[str | None, "kind of question"]
    tokenizer: Annotated[str | None, "counts length_tokens"]
    identity: Annotated[str | None, "hash of the serving identity"]
    window_tokens: Annotated[Tokens | None, "technical window of the model, its own tokens"]
    length_unit: Annotated[LengthUnit, "what the lengths count; prompt: tokens of the whole prompt"]
    n: Annotated[Count, "examples with an answer; replicates averaged"]
    n_documents: Annotated[Count | None, "documents of these examples"]
    missing: Annotated[Missing, "planned calls without an answer: outside every mean"]
    missing_share: Annotated[Share, "of the planned calls"]
    provenance: Provenance
    method_version: Annotated[str | None, "of verdict and cap; null in older files: 1"] = None
    scorer_version: Annotated[
        str | None, "of the scorers; null: scored elsewhere, or 1 in older files"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentHead:
    """What the result of an experiment begins with, one a model."""

    schema_version: Annotated[Literal["1.0"], "of this file's format"]
    created_at: Annotated[Moment | None, "time of the analysis; null: not given"]
    study: Annotated[str | None, "study"]
    campaign: Annotated[str | None, "dated measurement of the study"]
    model: Annotated[str, "serving configuration"]
    confidence: Annotated[Share, "of tests and intervals"]
    seed: Annotated[Count, "of every resampling"]
    headline: Annotated[Sequence[str], "the result in a few sentences"]
    warnings: Annotated[Sequence[str], "sentences"]


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a bin's calls."""

    p50: Annotated[Milliseconds, "median"]
    p95: Annotated[Milliseconds, "95th percentile"]
    sd: Annotated[Milliseconds, "standard deviation (population)"]


@dataclass(frozen=True, slots=True)
class MeanScore:
    """Mean score of some examples, its interval over documents; null without any."""

    n: Annotated[Count, "examples"]
    mean: Annotated[Score | None, "mean score"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]


@dataclass(frozen=True, slots=True)
class BinMean:
    """The same in one length bin."""

    bin: Annotated[str, "length bin"]
    n: Annotated[Count, "examples"]
    mean: Annotated[Score | None, "mean score"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BinResult:
    """One length bin: its scores, failures and times; null below the examples that each needs."""

    bin: Annotated[str, "length bin"]
    n: Annotated[Count, "examples with an answer; replicates averaged"]
    n_documents: Annotated[Count | None, "documents of these examples"]
    edge_low: Annotated[Tokens, "first length of the bin"]
    edge_high: Annotated[Tokens, "first length after the bin; the last bin is closed"]
    min_tokens: Annotated[Tokens | None, "shortest length scored"]
    median_tokens: Annotated[Tokens | None, "median length scored"]
    max_tokens: Annotated[Tokens | None, "longest length scored"]
    mean: Annotated[Score | None, "mean score of the examples"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]
    sd: Annotated[Score | None, "standard deviation of the examples' scores (population)"]
    variance: Annotated[Share | None, "variance of the examples' scores (population)"]
    failure_rate: Annotated[Share | None, "of the examples"]
    failures: Annotated[Mapping[str, Count] | None, "answered calls by failure tag"]
    missing: Annotated[Count, "planned calls without an answer"]
    ci_width: Annotated[Score | None, "width of the mean's interval"]
    rolling_variance: Annotated[Share | None, "variance over neighbouring bins"]
    bimodality: Annotated[Spread | None, "Sarle's coefficient; above 5/9 suggests two modes"]
    instability: Annotated[Score | None, "mean SD between the replicates of an example"]
    ttft_excess: Annotated[Relative | None, "median share of the TTFT that length does not explain"]
    ttft_ms: Annotated[Times | None, "time to the first token"]
    duration_ms: Annotated[Times | None, "time to the last token"]
    delivered_mean: Annotated[
        Score | None, "mean score if each missing answer scores 0; null: none is, or older files"
    ] = None


T = TypeVar("T")
_NOT_REQUIRED = typing.NotRequired


class ResultError(ValueError):
    """The data are not a result of the declared kind; the message names the place and the error."""


class NewerResultError(ResultError):
    """A result that a newer version of this program wrote."""


def to_json(value: Any) -> Any:
    """Return plain JSON values, keys in order of declaration; non-finite numbers become null."""
    if is_dataclass(value):
        return {member.name: to_json(getattr(value, member.name)) for member in fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json(item) for item in value]
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_json(model: type[T], data: Any) -> T:
    """Return ``data`` as a value of type ``model``: the inverse of `to_json`.

    Fields with a default may be absent, because older versions did not write them.

    Raises:
        NewerResultError: a newer version wrote it.
        ResultError: a field is missing, unknown, or of another type.
    """
    if not isinstance(data, Mapping):
        raise ResultError("it is not a JSON object")
    if _version(data) > _version({"schema_version": RESULT_VERSION}):
        raise NewerResultError(
            f"it has schema version {data['schema_version']}{_writer(data)}, and this version of "
            f"contextcliff-dagster reads up to {RESULT_VERSION}"
        )
    try:
        return cast(T, _read(model, data, ""))
    except ResultError as error:
        raise ResultError(f"{error}{_writer(data)}") from None


def json_schema(model: Any, name: str, title: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of ``model``, with descriptions and units."""
    definitions: dict[str, Any] = {}
    whole = _object_schema(model, definitions)
    declared = whole["properties"]["schema_version"]
    version = declared.get("const") or declared["enum"][-1]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:contextcliff:{name}:{version}",
        "title": title,
        **whole,
        "$defs": dict(sorted(definitions.items())),
    }


def _version(data: Mapping[str, Any]) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in str(data["schema_version"]).split("."))
    except (KeyError, ValueError):
        return ()


def _writer(data: Mapping[str, Any]) -> str:
    """Return a clause naming the program that wrote the file; empty if the file names none."""
    try:
        version = data["provenance"]["versions"]["contextcliff-dagster"]
    except (KeyError, TypeError):
        return ""
    return f" (written by contextcliff-dagster {version})" if isinstance(version, str) else ""


@cache
def _hints(model: Any) -> dict[str, Any]:
    return typing.get_type_hints(model, include_extras=True)


@cache
def _optional(model: Any) -> frozenset[str]:
    """Return the names of the fields that may be absent."""
    if typing.is_typeddict(model):
        hints = _hints(model).items()
        return frozenset(name for name, hint in hints if typing.get_origin(hint) is _NOT_REQUIRED)
    return frozenset(
        item.name
        for item in fields(model)
        if item.default is not MISSING or item.default_factory is not MISSING
    )


@cache
def _unwrap(hint: Any) -> tuple[Any, Unit, str]:
    """Return the bare type, its unit and its description."""
    unit, description = Unit(), ""
    while (origin := typing.get_origin(hint)) in (typing.Annotated, _NOT_REQUIRED):
        hint, *notes = typing.get_args(hint)
        for note in notes if origin is typing.Annotated else ():
            if isinstance(note, Unit):
                unit = note
            elif not description:
                description = note
    return hint, unit, description


def _is_declaration(kind: Any) -> bool:
    return is_dataclass(kind) or typing.is_typeddict(kind)


def _read(hint: Any, value: Any, where: str) -> Any:
    kind, unit, _ = _unwrap(hint)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (kind_of_value,) = (argument for argument in arguments if argument is not type(None))
        return _read(kind_of_value, value, where)
    if kind is Any:
        return value
    if origin is typing.Literal:
        if value in arguments and not isinstance(value, bool):
            return value
        raise ResultError(f"{where} is {value!r}, none of {', '.join(map(repr, arguments))}")
    if _is_declaration(kind) and isinstance(value, Mapping):
        return _read_object(kind, value, where)
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {key: _read(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is not None and issubclass(origin, Sequence) and isinstance(value, list | tuple):
        return [_read(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            raise ResultError(f"{where} is {value!r}, none of {', '.join(kind)}") from None
    accepted = (int, float) if kind is float else kind
    if kind in _TYPES and isinstance(value, accepted) and isinstance(value, bool) is (kind is bool):
        if kind in (int, float):
            low = -math.inf if unit.minimum is None else unit.minimum - _ROUNDING
            high = math.inf if unit.maximum is None else unit.maximum + _ROUNDING
            if not (math.isfinite(value) and low <= value <= high):
                what = unit.name or "number"
                raise ResultError(f"{where} is {value}, beyond what a {what} can be")
        return value
    raise ResultError(f"{where} is {value!r:.40}, not {_KINDS.get(kind, 'what belongs there')}")


_ROUNDING = 1e-9
_KINDS = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


def _read_object(model: Any, data: Mapping[str, Any], where: str) -> Any:
    hints = _hints(model)
    path = f"{where}." if where else ""
    if absent := [name for name in hints if name not in data and name not in _optional(model)]:
        raise ResultError(f"{path}{absent[0]} is missing")
    if typing.is_typeddict(model):  # open, and in its own order
        return {
            name: _read(hints[name], item, f"{path}{name}") if name in hints else item
            for name, item in data.items()
        }
    if unknown := [name for name in data if name not in hints]:
        raise ResultError(f"{path}{unknown[0]} is not known to this version")
    return model(**{name: _read(hints[name], item, f"{path}{name}") for name, item in data.items()})


def _object_schema(model: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = _hints(model)
    schema: dict[str, Any] = {
        "description": " ".join((model.__doc__ or "").split()),
        "type": "object",
        "properties": {name: _schema(hint, definitions) for name, hint in hints.items()},
        "required": [name for name in hints if name not in _optional(model)],
    }
    return schema if typing.is_typeddict(model) else {**schema, "additionalProperties": False}


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    kind, unit, description = _unwrap(hint)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        schema = _schema(inner, definitions)
        if "type" in schema:
            schema["type"] = [schema["type"], "null"]
        elif "enum" in schema:
            schema["enum"].append(None)
        else:
            schema = {"anyOf": [schema, {"type": "null"}]}
    elif origin is typing.Literal:
        schema = {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    elif _is_declaration(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = _object_schema(kind, definitions)
        schema = {"$ref": f"#/$defs/{kind.__name__}"}
    elif kind is Any:
        schema = {}
    elif origin is not None and issubclass(origin, Mapping):
        schema = {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    elif origin is not None:
        schema = {"type": "array", "items": _schema(arguments[0], definitions)}
    elif issubclass(kind, enum.Enum):
        schema = {"enum": [member.value for member in kind]}
    else:
        schema = {"type": _TYPES[kind]}
    details = {
        "description": description or None,
        "unit": unit.name,
        "format": unit.format,
        "minimum": unit.minimum,
        "maximum": unit.maximum,
    }
    return schema | {key: value for key, value in details.items() if value is not None}


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
