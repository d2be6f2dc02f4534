"""Options of `profile` and its relatives about how is asked, and how the answers are judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from contextcliff_dagster.cli.options import as_share, share_option, together
from contextcliff_dagster.contracts import PrimaryScore, StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study

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
    """Return the study with what is to be asked next to its curve; its kept definition stays.

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
