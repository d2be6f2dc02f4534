"""`--kv_policy` and `--kv_budget`: KV-cache variants of models, compared with their baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.options import together
from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Comparison
    from contextcliff_dagster.reporting.comparison import ComparisonFiles
    from contextcliff_dagster.run.study import Profiled
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


def _names(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:
    names = [name.strip() for text in value for name in text.split(",")]
    if not all(names):  # an unset variable in a script must not mean "no policy"
        raise click.BadParameter("A name is empty; write a policy, or leave it out.", ctx, param)
    return tuple(dict.fromkeys(names))


def _budgets(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> Any:
    budgets = []
    for text in (part.strip() for item in value for part in item.split(",")):
        try:
            budget = float(text)
        except ValueError:
            budget = float("nan")
        if not 0.1 <= budget <= 1:
            problem = f"{text!r} is not a share of the KV cache from 0.1 to 1."
            raise click.BadParameter(problem, ctx, param)
        budgets.append(budget)
    return tuple(dict.fromkeys(budgets))


kv_options = together(
    click.option(
        "--kv_policy",
        "--kv-policy",
        "kv_policies",
        multiple=True,
        callback=_names,
        metavar="POLICY",
        help="Also measure the models with a KV cache kept by this policy (snapkv, h2o, "
        "streaming_llm, knorm, tova, expected_attention, random) or in this precision (f16, q8_0, "
        "q5_1, q4_0, fp8), and compare; separate several by commas.",
    ),
    click.option(
        "--kv_budget",
        "--kv-budget",
        "kv_budgets",
        multiple=True,
        callback=_budgets,
        metavar="SHARE",
        help="Share of the KV cache to keep, 0.1 to 1; separate several by commas.",
    ),
)


@dataclass(frozen=True)
class KvPair:
    """A model variant and the baseline model it is compared with."""

    baseline: str
    variant: str


def kv_pairs(
    models: Sequence[str], policies: Sequence[str], budgets: Sequence[float]
) -> list[KvPair]:
    """Return the pairs to compare, for each model, policy and budget; policy ``none`` adds none.

    Invalid variants are refused here, before anything is measured.

    Raises:
        StudyError: a policy is unknown, a budget is missing or does not apply, or a model's engine
            does not support the policy.
    """
    from contextcliff_dagster.inference.models.kv_variants import (
        POLICIES,
        kv_baseline,
        kv_entry,
        kv_policy,
    )
    from contextcliff_dagster.inference.models.models_file import get_model, load_models

    named = {name: kv_policy(name) for name in policies}
    chosen = [policy or name for name, policy in named.items() if name.lower() != "none"]
    if not chosen:
        if any(budget != 1 for budget in budgets):
            shares = " and ".join(f"{budget:g}" for budget in budgets)
            raise StudyError(
                f"--kv_budget {shares} needs a policy that chooses what is kept: name one with "
                "--kv_policy, or leave the budget out."
            )
        return []
    types = [name for name in chosen if name not in POLICIES and named.get(name) is not None]
    if types and budgets:
        raise StudyError(
            f"--kv_policy {types[0]} stores the whole KV cache in another precision, so it has no "
            "budget; leave --kv_budget out."
        )
    if not budgets and len(types) < len(chosen) and (name := _first(chosen, POLICIES)):
        raise StudyError(
            f"--kv_policy {name} needs --kv_budget: the share of the KV cache to keep, 0.1 to 1."
        )
    entries = load_models()
    pairs = []
    for model in models:
        base = get_model(model, entries)
        for policy in chosen:
            for budget in budgets if policy in POLICIES else (1.0,):
                variant = kv_entry(base, policy, budget)
                pairs.append(KvPair(kv_baseline(base, policy), variant.name))
    return pairs


def _first(names: Sequence[str], known: Sequence[str]) -> str | None:
    return next((name for name in names if name in known), None)


def require_engines(study: Study) -> None:
    """Refuse models and policies that cannot run here, before anything is prepared.

    Raises:
        StudyError: attention is requested but no model exposes it, or a model compresses the
            document before the question but the prompt has the question first.
        EngineError: a model needs kvpress, which is not installed.
    """
    from contextcliff_dagster.experiments.attention import ATTENTION
    from contextcliff_dagster.inference.models.models_file import get_model

    ATTENTION.require_models(study)
    on_kvpress = [entry for name in study.models if (entry := get_model(name)).engine == "kvpress"]
    chosen = [entry.name for entry in on_kvpress if entry.kv and entry.kv.policy != "none"]
    if chosen and study.has_corpus and study.recipe().question_first:
        from contextcliff_dagster.inference.engines.kvpress.engine import question_first

        raise StudyError(question_first(chosen[0]))
    if on_kvpress:
        from contextcliff_dagster.inference.engines.kvpress.worker_process import kv_versions

        kv_versions(on_kvpress[0].name)


def measured_models(pairs: Sequence[KvPair], *, whole: bool) -> tuple[str, ...]:
    """Return the models of ``pairs``, each once, baselines first.

    Raises:
        StudyError: ``whole`` is False, that is, only part of the sample is to be measured.
    """
    if not whole:
        raise StudyError(
            "--kv_policy compares two caches on the same whole sample, so --sentinel, --pilot, "
            "--until and --round do not apply; leave them out."
        )
    return tuple(dict.fromkeys([*(p.baseline for p in pairs), *(p.variant for p in pairs)]))


def compare_pairs(
    pairs: Sequence[KvPair], study: Study, store: Store, campaign: str
) -> list[tuple[Comparison, ComparisonFiles]]:
    """Compare both models of each pair in the campaign, and write the files of `compare`."""
    from contextcliff_dagster.analysis.comparison import compare
    from contextcliff_dagster.cli.commands.compare import Ref, notes_on
    from contextcliff_dagster.reporting.comparison import write_comparison

    done = []
    for pair in pairs:
        refs = [Ref(study, name, campaign) for name in (pair.baseline, pair.variant)]
        baseline, variant = (ref.measured(store, ref.model) for ref in refs)
        notes = notes_on(baseline, variant, same=False)
        first = refs[0]
        result = compare(baseline, variant, first.bins(store), first.settings(), notes=notes)
        folder = first.folder(store, [ref.model for ref in refs])
        done.append((result, write_comparison(result, folder, (baseline.cliffs, variant.cliffs))))
    return done


def print_with_comparisons(
    done: Profiled, pairs: Sequence[KvPair], store: Store, *, as_json: bool
) -> None:
    """Print the comparison of each pair, then the report."""
    from contextcliff_dagster.cli.commands.report import print_profiled
    from contextcliff_dagster.contracts.results import to_json
    from contextcliff_dagster.reporting.kv import kv_sentences

    compared = compare_pairs(pairs, done.study, store, done.campaign)
    written = [
        {**to_json(result), "files": {kind: str(path) for kind, path in files._asdict().items()}}
        for result, files in compared
    ]
    # What a policy keeps of the whole cache's score comes before what it keeps of its own.
    for result, files in () if as_json else compared:
        click.echo(result.sentence)
        for sentence in (*kv_sentences(result), *result.warnings):
            click.echo(sentence)
        click.echo(f"Comparison: {files.html}\n")
    sections = done.sections if as_json else [s for s in done.sections if not s.first or not pairs]
    shown = replace(done, sections=sections)
    print_profiled(shown, as_json=as_json, more={"comparisons": written} if pairs else None)
