"""Options for questions and scoring, and options for the keys of an experiment's section."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from pydantic import BeforeValidator, ValidationError

from contextcliff_dagster.cli.options import Finite, as_share, gathered_as, share_option, together
from contextcliff_dagster.contracts import PrimaryScore, StudyError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from contextcliff_dagster.cli.options import Decorator
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
        problem = f"{value!r} is not between 0 and 1; use .1 or 10%."
        raise click.BadParameter(problem, ctx, param)
    return share


PRIMARY_SCORES: tuple[str, ...] = get_args(PrimaryScore)


def _score(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Parse ``f1``, ``numeric`` or ``numeric,f1``: a score, a scorer, or one of each."""
    if value is None:
        return ()
    names = tuple(name.strip() for name in value.split(","))
    scores = [name for name in names if name in PRIMARY_SCORES]
    scorers = [name for name in names if name not in PRIMARY_SCORES]
    for choices, what in ((scores, "scores"), (scorers, "scorers")):
        if len(choices) > 1:
            problem = f"{', '.join(choices)} are {len(choices)} {what}; choose one of them."
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
    """Parse ``no_context,oracle`` to the names of controls, without duplicates."""
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
    help="Repeat the questions without the document (no_context) or with only its evidence "
    "(oracle), to check whether length is the cause.",
)

attention_option = click.option(
    "--attention",
    is_flag=True,
    help="Also measure where the last token of each prompt attends (engines reference and "
    "transformers); repeats the questions with one output token each.",
)


def with_more(
    chosen: Study, controls: Sequence[str] | None, attention: bool, *, in_rounds: bool
) -> Study:
    """Return the study with additional controls or attention; its stored definition is unchanged.

    Raises:
        StudyError: the study has no length profile, or is to be measured in rounds.
    """
    for name, wanted in (("controls", controls), ("attention", attention)):
        if wanted and not chosen.has_corpus:
            raise StudyError(
                f"--{name} needs a length profile, but study {chosen.name!r} has none; "
                "leave it out, or name a study with a corpus."
            )
        if in_rounds and wanted:
            raise StudyError(
                f"--{name} goes with a whole measurement, not with its rounds; leave out "
                f"--pilot, --until and --round, or run --{name} afterwards."
            )
    study = chosen if controls is None else chosen.changed(controls=controls)
    return study.changed(attention_entropy=True) if attention else study


@dataclass(frozen=True)
class SectionOptions:
    """Command-line options for the keys of a section, with each key's type, limits and default.

    Attributes:
        section: the model of the section under the key ``experiment`` of a study file.
        command: the command as typed, for error messages.
        keys: the keys that become options, in the order of `--help`.
        names: key -> option name, if it differs from the key.
        help: key -> help text to use instead of the key's description and default.
        texts: keys whose value is a text; others that are strings take a name.
    """

    experiment: str
    section: type[Section]
    command: str
    keys: tuple[str, ...]
    names: Mapping[str, str]
    help: Mapping[str, str]
    texts: Sequence[str] = ()

    @property
    def decorator(self) -> Decorator:
        """Return a decorator that adds the options; their values arrive as the dict ``keys``."""
        return gathered_as("keys", _given, together(*map(self._option, self.keys)), self.keys)

    def study(self, given: Mapping[str, Any], **more: Any) -> Study:
        """Return the study with the ``given`` keys of the section, and ``more`` top-level keys.

        Raises:
            StudyError: the value of an option is invalid.
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
        more: dict[str, Any] = {"type": kind, "metavar": "TEXT" if key in self.texts else metavar}
        if kind is bool:
            shown, more = "", {"is_flag": True, "default": None}
        default = f" (default: {shown})" if shown else ""
        text = self.help.get(key) or f"{field.description}{default}."
        return click.option(self.name(key), key, help=text, **more)

    def _values(self, key: str, value: Any) -> Any:
        """Split ``a,b`` into values, if the key takes several."""
        field = self.section.model_fields.get(key)
        if field is None or get_origin(field.annotation) is not tuple or not isinstance(value, str):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not all(parts):
            raise StudyError(f"{self.name(key)} {value!r} lacks a value; add it or drop the comma.")
        return parts

    def _sentence(self, error: ValidationError) -> StudyError:
        first = error.errors(include_url=False)[0]
        what = str(first["msg"]).removeprefix("Value error, ")
        what = re.sub(r"^Input should be ", "should be ", what)
        value = first.get("input")
        shown = f" {value!r}" if isinstance(value, str) and value not in what else ""
        places = [str(place) for place in first["loc"]]
        # Errors about several keys name them only in the message.
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
    """Return click's type for a key, and the metavar of its value."""
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
    """Return the first six hex digits of a hash of a study's definition."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:6]


def named_study(study: Study, name: str, option: str, what: str) -> Study:
    """Return ``study`` renamed to ``name``, the value of ``option``; ``what`` is for messages.

    Raises:
        StudyError: the name is invalid, or a study with other options already has it.
    """
    from contextcliff_dagster.studies import known_study

    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,59}", name):
        raise StudyError(
            f"{option} {name!r} cannot name a {what}: write at most 60 lower-case letters, digits "
            "and hyphens, starting with a letter or a digit."
        )
    named = study.changed(name=name)
    known = known_study(name)
    if known is not None and known.model_dump() != named.model_dump():
        raise StudyError(
            f"{option} {name}: a study of this name with other options exists and is not changed; "
            "choose another name, or give the same options to continue it."
        )
    return named
