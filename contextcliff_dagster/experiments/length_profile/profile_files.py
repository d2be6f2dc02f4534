"""Profiles of a campaign: current profiles, outdated profiles, and models without a profile.

A profile is valid for one sample and one request. If either changed (another tokenizer, bins,
prompt or output limit), earlier profiles are not comparable.
"""

from __future__ import annotations

import json
import math
import platform
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from contextcliff_dagster.analysis import METHOD_VERSION
from contextcliff_dagster.contracts import (
    SCHEMA_VERSION,
    ContextCliffError,
    StoreError,
    package_version,
)
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.experiments.common.study_run import StudyRun, in_order
from contextcliff_dagster.scoring import SCORER_VERSION
from contextcliff_dagster.store import Store, read_result
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.study import refuse_without_leave

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.results.cliffs import Look
    from contextcliff_dagster.sampling.manifest import Manifest

_VERSIONS = {"method": METHOD_VERSION, "scorers": SCORER_VERSION}


def method_of(cliffs: Cliffs) -> str:
    """Return the version of the method that computed the cap."""
    return cliffs.method_version or "1"


def scorers_of(cliffs: Cliffs) -> str:
    """Return the version of the scorers that computed the scores."""
    return cliffs.scorer_version or "1"


def replaced(path: Path, hashes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance entry for an earlier profile in ``path``: the versions of method and
    scorers that made it from the same answers (``hashes``), and its cap."""
    try:
        earlier = read_result(path / "cliffs.json", Cliffs)
    except StoreError:  # none, or a damaged one
        return {}
    return earlier_cap(earlier) if earlier.provenance["hashes"] == hashes else {}


def earlier_cap(cliffs: Cliffs) -> dict[str, Any]:
    """Return the provenance entry ``replaces``: about ``cliffs`` if other versions made it, else
    its own entry, if any."""
    versions = {"method": method_of(cliffs), "scorers": scorers_of(cliffs)}
    if versions == _VERSIONS:
        known = cliffs.provenance.get("replaces")
        return {"replaces": known} if known else {}
    return {"replaces": {**versions, "safe_cap_tokens": cliffs.safe_cap_tokens}}


def replaced_note(cliffs: Cliffs) -> str | None:
    """Return a sentence on an earlier cap of the same answers, by another method or scorers."""
    if not (known := cliffs.provenance.get("replaces")):
        return None
    earlier = cast("dict[str, Any]", known)
    changed = [
        f"version {earlier[what]} of the {what} (now {version})"
        for what, version in _VERSIONS.items()
        if earlier[what] != version
    ]
    cap = earlier["safe_cap_tokens"]
    return (
        f"An earlier report on the same answers of {cliffs.model}, by "
        f"{' and '.join(changed) or 'other versions'}, gave "
        f"{'no cap' if cap is None else f'a cap of {cap:,} tokens'}: the two are not comparable."
    )


_NO_PREFIX_CACHE = (
    "Measured with `prefix_cache: off`: questions about one document were not sent in a row, and "
    "engines that support it reused nothing of earlier calls, so times are those of whole prompts."
)

_PACKAGES = ("contextcliff-dagster", "numpy", "scipy", "pandas")


def hashes_of(study: Study, manifest_sha256: str | None) -> dict[str, str | None]:
    """Return the provenance hashes of a profile: sample, its specification, and request."""
    return {
        "manifest": manifest_sha256,
        "manifest_spec": study.manifest_spec_hash(),
        "recipe": study.recipe().hash,
    }


_REQUEST = ("temperature", "max_output_tokens", "replicates")


def provenance(
    study: Study, manifest: Manifest, records: pd.DataFrame, identity: Mapping[str, Any]
) -> dict[str, Any]:
    """Return hashes, versions, seeds and times to repeat the measurement."""
    finished, recipe = records["finished_at"].dropna(), study.recipe()
    made = manifest.header["corpus"].get("account", {}).get("manufactured", {})
    return {
        "hashes": hashes_of(study, manifest.sha256),
        "identity": dict(identity),
        "request": {
            **{name: getattr(recipe, name) for name in _REQUEST},
            **({"manufactured_lengths": ", ".join(made)} if made else {}),
        },
        "seeds": {"sampling": study.sampling.seed},
        "versions": {
            **{name: package_version(name) for name in _PACKAGES},
            "python": platform.python_version(),
            "schema": SCHEMA_VERSION,
        },
        "times": {
            "measured_from": finished.min().isoformat() if len(finished) else None,
            "measured_to": finished.max().isoformat() if len(finished) else None,
        },
    }


def read_cliffs(study: Study, store: Store, campaign: str) -> list[Cliffs]:
    """Return ``cliffs.json`` of all models with current sample and request, in order.

    Raises:
        StoreError: no file exists, one is damaged, or a newer version wrote it.
    """
    hashes = hashes_of(study, _manifest_hash(study, store))
    every = [read_result(path, Cliffs) for path in _files(study, store, campaign)]
    current = {cliffs.model: cliffs for cliffs in every if _is_made_of(cliffs.provenance, hashes)}
    if not current:
        raise StoreError(
            f"Study {study.name!r} has no profile of its current sample and request in campaign "
            f"{campaign} yet; run `contextcliff report {study.name}`."
        )
    return [current[model] for model in in_order(study, current)]


def looks_before(run: StudyRun, model: str, scored: int) -> list[Look]:
    """Return earlier looks at the cap of ``model``, on fewer than ``scored`` examples.

    Looks count if the newest profile lists them with the same request, tolerance, confidence and
    score; a larger sample contains the smaller one.
    """
    study, path = run.study, run.store.profile_dir(run.study.name, run.campaign, model)
    settings = study.analysis_settings()
    try:
        before = read_result(path / "cliffs.json", Cliffs)
    except StoreError:  # none, or a damaged one
        return []
    promise = (settings.tolerance, settings.confidence, study.scoring.primary)
    same = promise == (before.tolerance, before.confidence, before.score.name)
    if (
        not same
        or method_of(before) != METHOD_VERSION
        or scorers_of(before) != SCORER_VERSION
        or before.provenance["hashes"].get("recipe") != study.recipe().hash
    ):
        return []
    return [look for look in before.looks if look.n < scored]


def by_this_method(
    study: Study, manifest: Manifest, records: pd.DataFrame, cliffs: Cliffs
) -> Cliffs:
    """Return ``cliffs``, recomputed from ``records`` if by another method or other scorers.

    Nothing is written. Its provenance names the earlier versions as ``earlier_method`` and
    ``earlier_scorers``, and their cap as ``replaces``.
    """
    from contextcliff_dagster.analysis.bin_statistics import ProfileContext
    from contextcliff_dagster.analysis.profile import profile_model

    earlier = {
        **({"earlier_method": of} if (of := method_of(cliffs)) != METHOD_VERSION else {}),
        **({"earlier_scorers": of} if (of := scorers_of(cliffs)) != SCORER_VERSION else {}),
    }
    if not earlier:
        return cliffs
    rows = with_prompt_overhead(study, manifest, records[records["model"] == cliffs.model])
    names = ("model", "study", "campaign", "task", "tokenizer", "identity", "window_tokens")
    context = ProfileContext(
        **{name: getattr(cliffs, name) for name in names},
        score_name=cliffs.score.name,
        primary=cliffs.score.name,
        scorer_version=SCORER_VERSION,
        provenance={**cliffs.provenance, **earlier, **earlier_cap(cliffs)},
    )
    settings = replace(study.analysis_settings(), second_opinions=False)
    return profile_model(rows, manifest.bins, settings, context).cliffs


def with_prompt_overhead(study: Study, manifest: Manifest, records: pd.DataFrame) -> pd.DataFrame:
    """Add a column ``scaffold_tokens`` to ``records``: tokens of the request around the document.

    They are missing if no server reported prompt tokens, or the tokenizer is unavailable, because
    a report must not need a server or its tokenizer file.
    """
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer
    from contextcliff_dagster.sampling.tokenizers.tokenizers import CheckedCounter

    if study.tokenizer.startswith("server:") or not records["prompt_tokens"].notna().any():
        return records
    try:
        refuse_without_leave(study, "tokenizer")
        tokenizer = open_any_tokenizer(study.tokenizer_name)
    except ContextCliffError:
        return records
    recipe = study.recipe()
    columns = (manifest.examples[name].to_pylist() for name in ("example_id", "question"))
    questions = dict(zip(*columns, strict=True))
    asked = list(zip(records["example_id"], records["replicate"], strict=True))
    counts: dict[tuple[str, int], float] = {}
    for example, replicate in dict.fromkeys(asked):
        if example in questions and 0 <= replicate < recipe.replicates:
            texts = recipe.render("", questions[example], int(replicate)).contents()
            counts[example, replicate] = sum(tokenizer.count_many([t for t in texts if t]))
    if isinstance(tokenizer, CheckedCounter):
        tokenizer.rest()  # free memory for the analysis
    return records.assign(scaffold_tokens=[counts.get(call, math.nan) for call in asked])


def outdated(run: StudyRun) -> dict[Path, str]:
    """Return folder -> model ("" if unreadable) for profiles of another sample or request."""
    hashes = hashes_of(run.study, run.manifest.sha256)
    folders: dict[Path, str] = {}
    for path in _files(run.study, run.store, run.campaign):
        try:
            cliffs = read_result(path, Cliffs)
        except StoreError:
            folders[path.parent] = ""
            continue
        if not _is_made_of(cliffs.provenance, hashes):
            folders[path.parent] = cliffs.model
    return folders


def models_outdated(run: StudyRun) -> set[str]:
    """Return models with profiles of another sample or request, without full parsing."""
    hashes = hashes_of(run.study, run.manifest.sha256)
    models: set[str] = set()
    for path in _files(run.study, run.store, run.campaign):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            profile = json.loads(path.read_bytes())
            if not _is_made_of(profile["provenance"], hashes):
                models.add(str(profile["model"]))
    return models


def left_out(run: StudyRun, profiled: Sequence[str]) -> list[str]:
    """Return the campaign's models with answers only to another sample or request, in order."""
    from contextcliff_dagster.inference.ledger.campaigns import recorded_identity
    from contextcliff_dagster.inference.requests.call_plan import plan_calls

    study, everything = run.study, run.manifest.examples.num_rows
    recipe, bins = study.recipe(), study.bin_keys
    models = []
    for model in run.measured_models():
        identity = recorded_identity(run.ledger, study.name, run.campaign, model)
        if model in profiled or identity is None:
            continue
        planned = plan_calls(run.manifest, identity.hash, recipe, run.campaign, bins, everything)
        # A model with an unfinished first bin is being measured, not left out.
        if not run.ledger.answered((call.call_key for call in planned), study.name):
            models.append(model)
    return models


def notes_on(run: StudyRun, profiled: Sequence[str]) -> list[str]:
    """Return notes on the request, and on models that are missing from the report, with the
    command that measures them; one sentence each."""
    campaign = run.campaign
    notes = [] if run.study.prompt.prefix_cache else [_NO_PREFIX_CACHE]
    if outdated := left_out(run, profiled):
        those, again = ("which was", "it") if len(outdated) == 1 else ("which were", "them")
        notes.append(
            f"Left out: {', '.join(outdated)}, {those} measured in campaign {campaign} with "
            f"another sample or request than the study's now; `{_measuring(run, outdated)}` "
            f"measures {again} again."
        )
    if unmeasured := [model for model in run.study.models if model not in {*profiled, *outdated}]:
        notes.append(
            f"Not measured: {', '.join(unmeasured)}. Campaign {campaign} has no scored answers of "
            f"{'it' if len(unmeasured) == 1 else 'them'} yet; `{_measuring(run, unmeasured)}` asks."
        )
    return notes


def _measuring(run: StudyRun, models: Sequence[str]) -> str:
    """Return the command that measures these models in the run's campaign."""
    from contextcliff_dagster.inference.ledger.campaigns import current_campaign

    command = ["contextcliff", "profile", run.study.name]
    for model in models:
        command += ["--model", model]
    if run.campaign != current_campaign(run.ledger, run.study.name):
        command += ["--campaign", run.campaign]
    return shlex.join(command)


def read_notes(report: Path) -> tuple[str, ...]:
    """Return the notes of a ``report.json``; empty if it is missing or damaged."""
    try:
        return tuple(map(str, json.loads(report.read_bytes())["notes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _files(study: Study, store: Store, campaign: str) -> list[Path]:
    return sorted(store.profiles_dir(study.name, campaign).glob("*/cliffs.json"))


def _is_made_of(provenance: Mapping[str, Any], hashes: Mapping[str, str | None]) -> bool:
    made_of = provenance["hashes"]
    return all(made_of.get(name) == known for name, known in hashes.items() if known is not None)


def _manifest_hash(study: Study, store: Store) -> str | None:
    """Return the hash in the manifest file; None if the sample was pruned."""
    try:
        path = store.manifest_dir(study.name) / "manifest.json"
        return str(json.loads(path.read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
