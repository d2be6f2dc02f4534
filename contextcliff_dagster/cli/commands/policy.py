"""`policy` writes the cap down for a gateway, `guard` holds a call against it."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import common_options
from contextcliff_dagster.cli.output import print_json
from contextcliff_dagster.policy import (
    EXPIRES_AFTER_DAYS,
    AboveCapError,
    PolicyError,
    SafeContext,
    as_json,
)
from contextcliff_dagster.store import Store, write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study

ABOVE_CAP = 4
"""Exit code of `guard` for a call that is too long: not a fault, the answer."""


def _expires(_: click.Context, __: click.Parameter, value: str) -> int | date:
    try:
        days = int(value)
    except ValueError:
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise click.BadParameter("write days (90) or a date (2027-03-31)") from None
    if not 1 <= days <= 3_650:
        raise click.BadParameter("write 1 to 3650 days, or a date")
    return days


@click.command()
@click.argument("study")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Only it; repeatable.")
@click.option("--campaign", metavar="NAME", help="This campaign (default: the newest profiled).")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("safe-context.json"),
    show_default=True,
    metavar="FILE",
    help="Where to; - is stdout.",
)
@click.option(
    "--expires",
    callback=_expires,
    default=str(EXPIRES_AFTER_DAYS),
    show_default=True,
    metavar="DAYS|DATE",
    help="Days after the measurement, or the last day on which the policy holds.",
)
@common_options
def policy(
    study: str,
    models: tuple[str, ...],
    campaign: str | None,
    out: Path,
    expires: int | date,
    as_json: bool,
) -> None:
    """Write the safe cap of STUDY into a file that a gateway can enforce; makes no call.

    One model gives one object, several an array. A verdict without a cap gives no policy.
    """
    from contextcliff_dagster.cli.campaign_lookup import profiled_campaign
    from contextcliff_dagster.studies import find_study

    store = Store.default()
    chosen = find_study(study)
    name = profiled_campaign(store, chosen.name, campaign)
    found = _policies(chosen, store, name, models, expires)
    text = json.dumps(_file_form(found), indent=2, ensure_ascii=False) + "\n"
    if str(out) == "-":
        click.echo(text, nl=False)
        return
    write_atomic(out, text.encode())
    if as_json:
        print_json(_file_form(found))
        return
    for made in found:
        prompt = f", {made.cap_prompt_tokens:,} of the prompt" if made.cap_prompt_tokens else ""
        click.echo(
            f"{made.model}: at most {made.safe_cap_tokens:,} tokens of the document{prompt}; "
            f"measured {made.date}, campaign {made.campaign}, holds until {made.expiry}"
        )
    click.echo(f"Policy: {out}")


_file_form = as_json  # the option --json takes that name inside the command


def _policies(
    study: Study, store: Store, campaign: str, models: tuple[str, ...], expires: int | date
) -> list[SafeContext]:
    """One for each model that has a cap.

    Raises:
        PolicyError: none has one, or one that was named has none.
        StoreError: a model that was named is not profiled.
    """
    from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs

    cliffs = {result.model: result for result in read_cliffs(study, store, campaign)}
    for model in models:
        if model not in cliffs:
            raise PolicyError(
                f"Campaign {campaign} of study {study.name!r} has no profile of {model!r}; it has "
                f"{', '.join(cliffs)}."
            )
    digest = _tokenizer_sha256(study, store)
    made, without = [], []
    for model in models or tuple(cliffs):
        try:
            made.append(
                SafeContext.from_cliffs(cliffs[model], tokenizer_sha256=digest, expires=expires)
            )
        except PolicyError as fault:
            if models or len(cliffs) == 1:
                raise
            without.append(str(fault))
    if not made:
        raise PolicyError(without[0])
    for sentence in without:
        say(f"Note: {sentence}")
    return made


def _tokenizer_sha256(study: Study, store: Store) -> str | None:
    """Of the vocabulary that counted the sample; None where the manifest is gone."""
    try:
        path = store.manifest_dir(study.name) / "manifest.json"
        header: dict[str, Any] = json.loads(path.read_bytes())["header"]
        return str(header["lengths"]["tokenizer_fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@click.command()
@click.argument("policy_file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--tokens", type=click.IntRange(min=0), metavar="N", help="Tokens of the document.")
@click.option(
    "--file",
    "document",
    type=click.Path(path_type=Path),
    metavar="F",
    help="The document itself: counted with the policy's tokenizer.",
)
@click.option(
    "--prompt-tokens", type=click.IntRange(min=0), metavar="N", help="Of the whole prompt."
)
@click.option("--model", metavar="NAME", help="The model the call goes to.")
@click.option("--identity", metavar="HASH", help="Its serving identity.")
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="Where the policy's tokenizer lies here, e.g. file:tokenizer.json.",
)
@common_options
def guard(
    policy_file: Path,
    tokens: int | None,
    document: Path | None,
    prompt_tokens: int | None,
    model: str | None,
    identity: str | None,
    tokenizer: str | None,
    as_json: bool,
) -> None:
    """Check whether a call is within the policy FILE: exit code 0 within, 4 above the cap.

    An expired policy, or one for another model, identity or tokenizer, is a fault (2).
    """
    rule = SafeContext.load(policy_file, model)
    if document is not None:
        if tokens is not None:
            raise PolicyError("--tokens and --file both give the length; leave one out.")
        from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer

        tokens = rule.count(_text(document), tokenizer, open_any_tokenizer)
    above: str | None = None
    try:
        rule.check(tokens, prompt_tokens=prompt_tokens, identity=identity)
    except AboveCapError as fault:
        above = str(fault)
    if as_json:
        print_json(
            {
                "within": above is None,
                "model": rule.model,
                "tokens": tokens,
                "safe_cap_tokens": rule.safe_cap_tokens,
                "prompt_tokens": prompt_tokens,
                "cap_prompt_tokens": rule.cap_prompt_tokens,
                "expiry": rule.expiry,
            }
        )
    if above is not None:
        say(f"contextcliff: {above}")
        raise click.exceptions.Exit(ABOVE_CAP)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise PolicyError(
            f"Cannot read {path} as UTF-8 text ({fault}); name a text file."
        ) from fault
