"""`policy`: write the cap to a file for a gateway; `guard`: check a call against it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.cli.display.output import print_json
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import (
    MOST_TOKENS,
    common_options,
    count_option,
    file_option,
    only_models_option,
    profiled_campaign_option,
)
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.policy import (
    EXPIRES_AFTER_DAYS,
    AboveCapError,
    PolicyError,
    SafeContext,
    load_policies,
)
from contextcliff_dagster.policy import as_json as policy_json
from contextcliff_dagster.store import Store, write_atomic
from contextcliff_dagster.user_files import read_file

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study

_LONGEST_DOCUMENT = 256 << 20
ABOVE_CAP = 4
"""Exit code of `guard` for a call that is too long, which is a result, not an error."""


def _expires(_: click.Context, __: click.Parameter, value: str) -> int | date:
    try:
        expires = date.fromisoformat(value) if "-" in value[1:] else int(value)
    except ValueError:
        raise click.BadParameter("write days (90) or a date (2027-03-31)") from None
    if isinstance(expires, int) and not 1 <= expires <= 3_650:
        raise click.BadParameter("write 1 to 3650 days, or a date")
    return expires


@click.command()
@click.argument("study")
@only_models_option
@profiled_campaign_option
@file_option(
    "--out", "File to write; - is stdout.", default=Path("safe-context.json"), show_default=True
)
@click.option(
    "--expires",
    callback=_expires,
    default=str(EXPIRES_AFTER_DAYS),
    show_default=True,
    metavar="DAYS|DATE",
    help="Days after the measurement, or the last day of the policy.",
)
@click.option("--confirm", is_flag=True, help="Replace caps found by an earlier method or scorer.")
@click.option(
    "--allow-baseline-cap",
    is_flag=True,
    help="If no longer length is certified, use the end of the baseline region as the cap.",
)
@common_options
def policy(
    study: str,
    models: tuple[str, ...],
    campaign: str | None,
    out: Path,
    expires: int | date,
    confirm: bool,
    allow_baseline_cap: bool,
    as_json: bool,
) -> None:
    """Write the safe cap of STUDY to a file that a gateway can enforce; makes no call.

    One model gives an object, several an array; a verdict without a cap gives no policy. A cap in
    FILE that an earlier method or earlier scorers found is kept unless --confirm is given.
    """
    from contextcliff_dagster.cli.study_selection import profiled_campaign
    from contextcliff_dagster.studies import find_study

    store = Store.default()
    chosen = find_study(study)
    name = profiled_campaign(store, chosen.name, campaign)
    policies = _policies(chosen, store, name, models, expires, allow_baseline_cap)
    content = policy_json(policies)
    if str(out) == "-":
        print_json(content)
        return
    if not confirm:
        policies = _kept(policies, out, chosen.name)
        content = policy_json(policies)
    text = json.dumps(content, indent=2, ensure_ascii=False)
    write_atomic(out, f"{text}\n".encode(), private=False)  # a gateway reads it
    if as_json:
        print_json(content)
        return
    for entry in policies:
        prompt = f", {entry.cap_prompt_tokens:,} of the prompt" if entry.cap_prompt_tokens else ""
        click.echo(
            f"{entry.model}: at most {entry.safe_cap_tokens:,} tokens of the document{prompt}; "
            f"measured {entry.date}, campaign {entry.campaign}, holds until {entry.expiry}"
        )
        if entry.note:
            click.echo(f"Note: {entry.note}")
    click.echo(f"Policy: {out}")


def _kept(policies: list[SafeContext], out: Path, study: str) -> list[SafeContext]:
    """Return ``policies``, but keep caps in ``out`` that another method or scorer version found."""
    try:
        old = {entry.model: entry for entry in load_policies(out) if entry.study == study}
    except PolicyError:  # none yet
        return policies
    kept = []
    for new in policies:
        prior = old.get(new.model, new)
        before, now = ((of.method_version or "1", of.scorer_version or "1") for of in (prior, new))
        changed = [
            f"the {what} (version {a} to {b})"
            for what, a, b in zip(("method", "scorers"), before, now, strict=True)
            if a != b
        ]
        note = (
            f"This version changed {' and '.join(changed)}: for campaign {new.campaign} it finds a "
            f"cap of {new.safe_cap_tokens:,} tokens. This policy "
            f"keeps the cap of {prior.safe_cap_tokens:,}, which is not comparable, until "
            f"`contextcliff policy {study} --confirm`."
        )
        kept.append(new if before == now else replace(prior, note=note))
    return kept


def _policies(
    study: Study,
    store: Store,
    campaign: str,
    models: tuple[str, ...],
    expires: int | date,
    allow_baseline: bool,
) -> list[SafeContext]:
    """Return one policy for each model that has a cap."""
    from contextcliff_dagster.experiments.common.preparation import load_frozen
    from contextcliff_dagster.experiments.common.records import read_records
    from contextcliff_dagster.experiments.length_profile.profile_files import (
        by_this_method,
        read_cliffs,
        replaced_note,
    )

    cliffs = {result.model: result for result in read_cliffs(study, store, campaign)}
    with suppress(ContextCliffError):  # sample or records are gone: keep the reported result
        manifest, records = load_frozen(study, store), read_records(study, store, campaign)
        cliffs = {m: by_this_method(study, manifest, records, c) for m, c in cliffs.items()}
    for model in models:
        if model not in cliffs:
            raise PolicyError(
                f"Campaign {campaign} of study {study.name!r} has no profile of {model!r}; it has "
                f"{', '.join(cliffs)}."
            )
    digest = None  # of the vocabulary that counted the sample; None if the manifest was deleted
    with suppress(OSError, ValueError, KeyError, TypeError):
        header = json.loads((store.manifest_dir(study.name) / "manifest.json").read_bytes())
        digest = str(header["header"]["lengths"]["tokenizer_fingerprint"])
    policies, without = [], []
    for model in models or tuple(cliffs):
        try:
            entry = SafeContext.from_cliffs(
                cliffs[model],
                tokenizer_sha256=digest,
                expires=expires,
                allow_baseline=allow_baseline,
            )
            policies.append(replace(entry, note=replaced_note(cliffs[model]) or entry.note))
        except PolicyError as error:
            if models or len(cliffs) == 1:
                raise
            without.append(str(error))
    if not policies:
        raise PolicyError(without[0])
    for sentence in without:
        say(f"Note: {sentence}")
    return policies


@click.command()
@click.argument("policy_file", metavar="FILE", type=click.Path(path_type=Path))
@count_option("--tokens", 0, MOST_TOKENS, "Tokens of the document.")
@click.option(
    "--file",
    "document",
    type=click.Path(path_type=Path),
    metavar="F",
    help="The document itself, counted with the policy's tokenizer.",
)
@count_option("--prompt-tokens", 0, MOST_TOKENS, "Tokens of the whole prompt.")
@click.option("--model", metavar="NAME", help="Model that receives the call.")
@click.option("--identity", metavar="HASH", help="Serving identity of the model.")
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="The policy's tokenizer on this machine, e.g. file:tokenizer.json.",
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
    """Check a call against the policy FILE: exit code 0 within the cap, 4 above it.

    An expired policy, or one for another model, identity or tokenizer, is an error (2).
    """
    rule = SafeContext.load(policy_file, model)
    if document is not None:
        if tokens is not None:
            raise PolicyError("--tokens and --file both give the length; use only one of them.")
        from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer

        try:
            text = read_file(document, _LONGEST_DOCUMENT).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(
                f"Cannot read {document} as UTF-8 text ({error}); choose a text file."
            ) from error
        tokens = rule.count(text, tokenizer, open_any_tokenizer)
    above: str | None = None
    try:
        rule.check(tokens, prompt_tokens=prompt_tokens, identity=identity)
    except AboveCapError as error:
        above = str(error)
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
