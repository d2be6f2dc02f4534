"""Options for asking and judging, and the keys of an experiment's section as options."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from pydantic import BeforeValidator, ValidationError

from contextcliff_dagster.cli.options import (
    Decorator,
    Finite,
    as_share,
    gathered_as,
    share_option,
    together,
)
from contextcliff_dagster.contracts import PrimaryScore, StudyError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from contextcliff_dagster.studies import Study
    from contextcliff_dagster.studies.sections import Section

synthetic_option = click.option(
    "--allow-synthetic-length",
    is_flag=True,
    help="Use a benchmark whose documents were padded or cut to a length.",
)


def tolerance_share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    share = as_share(ctx, param, value)
    if share is not None and not 0 < share < 1:
        problem = f"{value!r} is not between 0 and 1; write .1 or 10%."
        raise click.BadParameter(problem, ctx, param)
    return share


PRIMARY_SCORES: tuple[str, ...] = get_args(PrimaryScore)


def _score(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """``f1``, ``numeric`` or ``numeric,f1``: a score, a scorer, or one of each."""
    if value is None:
        return ()
    names = tuple(name.strip() for name in value.split(","))
    scores = [name for name in names if name in PRIMARY_SCORES]
    scorers = [name for name in names if name not in PRIMARY_SCORES]
    for several, what in ((scores, "scores"), (scorers, "scorers")):
        if len(several) > 1:
            problem = f"{', '.join(several)} are {len(several)} {what}; choose one of them."
            raise click.BadParameter(problem, ctx, param)
    if scorers:
        from contextcliff_dagster.scoring.scorers import scorer_names

        if scorers[0] not in (known := scorer_names()):
            problem = (
                f"{scorers[0]!r} is neither a score ({', '.join(PRIMARY_SCORES)}) nor a scorer "
                f"({', '.join(known)})."
            )
            raise click.BadParameter(problem, ctx, param)
    return names


judging_options = together(
    share_option(
        "--tolerance",
        "Drop that still counts as safe, e.g. .1 or 10% (default: the study's, else 30%).",
        callback=tolerance_share,
    ),
    click.option(
        "--score",
        callback=_score,
        metavar="NAME",
        help="The score (em, f1, contained), the scorer (text, numeric, choice, structured, yours) "
        "or both, e.g. numeric,em.",
    ),
)


CONTROLS = ("no_context", "oracle")


def _controls(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """``no_context,oracle``: controls by name, each once."""
    if value is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
    for name in names:
        if name not in CONTROLS:
            known = ", ".join(CONTROLS)
            raise click.BadParameter(f"{name!r} is not a control; choose from {known}.", ctx, param)
    return names


controls_option = click.option(
    "--controls",
    callback=_controls,
    metavar="NAMES",
    help="Ask the same questions again without the document (no_context) or with its evidence "
    "alone (oracle): is it length at all?",
)

attention_option = click.option(
    "--attention",
    is_flag=True,
    help="Also measure where the last token of each prompt attends (engines reference and "
    "transformers): the same questions again, one output token each.",
)


def with_more(
    chosen: Study, controls: Sequence[str] | None, attention: bool, *, in_rounds: bool
) -> Study:
    """Return the study with the calls beside its curve; its kept definition stays.

    Raises:
        StudyError: it is to be measured in rounds, which ask the curve alone; it has no curve.
    """
    for name, given in (("controls", controls), ("attention", attention)):
        if given and not chosen.has_corpus:
            raise StudyError(
                f"--{name} goes with a length profile, which study {chosen.name!r} has none of; "
                "leave it out, or name a study with a corpus."
            )
        if in_rounds and given:
            raise StudyError(
                f"--{name} goes with a whole measurement, not with its rounds; leave out "
                f"--pilot, --until and --round, or run --{name} afterwards."
            )
    asked = chosen if controls is None else chosen.changed(controls=controls)
    return asked.changed(attention_entropy=True) if attention else asked


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
        """Give a command the options; the given ones arrive as ``keys``, checked by `study`."""
        return gathered_as("keys", _given, together(*map(self._option, self.keys)), self.keys)

    def study(self, given: Mapping[str, Any], **more: Any) -> Study:
        """Return the study with the ``given`` keys of the section, and ``more`` top-level keys.

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
        """Return the option's name for a key."""
        return self.names.get(key) or f"--{key.replace('_', '-')}"

    def _option(self, key: str) -> Callable[..., Any]:
        field = self.section.model_fields[key]
        kind, metavar = _kind(field)
        shown = field.get_default()
        values = shown if isinstance(shown, tuple) else (shown,)
        shown = ",".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
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
        for constraint in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if (value := getattr(constraint, name, None)) is not None
    }
    low, high = (limits.get(a, limits.get(b)) for a, b in (("ge", "gt"), ("le", "lt")))
    if get_origin(field.annotation) is tuple:
        return str, "VALUES"
    if any(isinstance(constraint, BeforeValidator) for constraint in field.metadata):
        return str, "TOKENS"
    if field.annotation is int:
        return click.IntRange(low, high), "N"
    if field.annotation is float:
        return Finite(low, high, min_open="gt" in limits, max_open="lt" in limits), "X"
    if get_origin(field.annotation) is Literal:
        return click.Choice(get_args(field.annotation)), None
    return (bool, None) if field.annotation is bool else (str, "NAME")


def digest(decides: Any) -> str:
    """Return six characters that tell studies apart, a hash of their definition."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:6]


def named_study(study: Study, name: str, option: str, what: str) -> Study:
    """Return ``study`` as ``name``, the value of ``option``, which names a ``what``.

    Raises:
        StudyError: that is no name, or one of a study with other options.
    """
    from contextcliff_dagster.studies import known_study

    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,59}", name):
        raise StudyError(
            f"{option} {name!r} cannot name a {what}: write small letters, digits and hyphens, at "
            "most 60, beginning with a letter or a digit."
        )
    named = study.changed(name=name)
    known = known_study(name)
    if known is not None and known.model_dump() != named.model_dump():
        raise StudyError(
            f"{option} {name}: there is a study of this name with other options, and it stays as "
            "it is; choose another name, or give the same options to go on with it."
        )
    return named
