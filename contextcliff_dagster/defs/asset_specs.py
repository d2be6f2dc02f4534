"""Properties that all assets of a study have in common."""

from __future__ import annotations

import inspect
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError, StoreUnreachableError, Table
from contextcliff_dagster.defs.ui.rendering import column_schema
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.lookup import partitioned
from contextcliff_dagster.studies import Study, find_study

DATABASE = "database"
"""Name of the asset that all studies share."""
RETRY_TAG = "dagster/retry_on_asset_or_op_failure"
"""The tag of a run that decides whether Dagster retries it after a failed step."""
Compute = TypeVar("Compute", bound=Callable[..., Any])


def refusing(compute: Compute) -> Compute:
    """Wrap an asset's or op's ``compute`` to raise each `ContextCliffError` as a Dagster `Failure`.

    The error's sentence becomes the failure's description, and the error its cause. The run is not
    retried, nor is one with a `Failure` that forbids retries, because it would fail again.
    """
    if inspect.isgeneratorfunction(compute):

        @wraps(compute)
        def generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with _as_failure():
                yield from compute(*args, **kwargs)

        return generator  # type: ignore[return-value]

    @wraps(compute)
    def function(*args: Any, **kwargs: Any) -> Any:
        with _as_failure():
            return compute(*args, **kwargs)

    return function  # type: ignore[return-value]


def forbid_retry() -> None:
    """Keep Dagster from retrying the run of this step if it fails.

    Other failed runs are retried (`asset_specs.RETRY_FAILED`), since their process was killed, or
    a database or disk could not be reached.
    """
    # If the tag cannot be written either, the run is retried and refused again.
    with suppress(Exception):
        context = dg.OpExecutionContext.get()
        context.instance.add_run_tags(context.run_id, {RETRY_TAG: "false"})


@contextmanager
def _as_failure() -> Iterator[None]:
    try:
        yield
    except ContextCliffError as error:
        passing = isinstance(error, StoreUnreachableError)
        if not passing:
            forbid_retry()
        kind = {"error": type(error).__name__}
        raise dg.Failure(advised(str(error)), metadata=kind, allow_retries=passing) from error
    except dg.Failure as failure:
        if not failure.allow_retries:
            forbid_retry()
        raise


def advised(sentence: str) -> str:
    """Return the sentence, followed by what its commands are in Dagster."""
    named = r"([\w-]+)(?: --campaign ([^ `]+))?"
    pattern = rf"`contextcliff (prepare|profile|report|campaign new) {named}"
    steps = [_in_dagster(*found) for found in dict.fromkeys(re.findall(pattern, sentence))]
    return f"{sentence} In Dagster: {', or '.join(steps)}." if steps else sentence


def _in_dagster(command: str, name: str, campaign: str) -> str:
    """Return how to do what a command does to the study ``name``."""
    asking, listed = f"profile_{name.replace('-', '_')}", "manifest"
    with suppress(ContextCliffError):  # not a file: a component's study
        study = find_study(name)
        experiment = partitioned(study)[0]
        asking = job_name(study, experiment)
        listed = "manifest" if study.has_corpus else experiment.document_assets()[-1]
    of = f" for partitions of campaign {campaign}" if campaign else ""
    return {
        "prepare": f"materialize `{'/'.join([*key_prefix(), name, listed])}` and what is before it",
        "profile": f"launch the job `{asking}`{of}",
        "report": f"launch the job `report_{name.replace('-', '_')}`{of}",
        "campaign new": f"launch the job `begin_campaign_{name.replace('-', '_')}`",
    }[command]


@contextmanager
def refusals_raised() -> Iterator[None]:
    """Raise the original refusal of an in-process run instead of Dagster's failure."""
    refusal: ContextCliffError
    try:
        yield
        return
    except dg.Failure as failure:
        if not isinstance(failure.__cause__, ContextCliffError):
            raise
        refusal = failure.__cause__
    # Outside the handler: the failure must not become the context of its own cause.
    raise refusal


PREPARATION = ("raw_corpus", "length_map", "distribution_audit", "manifest")
"""The assets of a study's sample, which all campaigns share."""

Config = Mapping[str, Mapping[str, Any]]
"""Name of an op without the study's name -> config of the op."""

RETRY_FAILED = {"dagster/max_retries": "2", RETRY_TAG: "true"}
"""Job tags that make Dagster retry a run whose process was killed or could not reach its database.
The retry reuses the answers in the call ledger. Our own refusals (a budget, a changed model) would
recur, so they reset the second tag (`forbid_retry`).
"""


def decorated(
    decorator: Callable[..., Any],
    study: Study | None = None,
    *,
    partitions_per_run: int | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return ``dg.asset`` or ``dg.multi_asset`` set up to process so many partitions in one run.

    None means all: `dg launch --partition-range` requires it also of assets without partitions. A
    refusal fails the step with its sentence (`refusing`). The UI links the code and the file of
    ``study``.
    """

    def link(file: Path | str, line: int, label: str) -> dg.LocalFileCodeReference:
        return dg.LocalFileCodeReference(file_path=str(file), line_number=line, label=label)

    def definition(compute: Callable[..., Any]) -> dg.AssetsDefinition:
        policy, code = dg.BackfillPolicy, compute.__code__
        with warnings.catch_warnings():
            # Policies and links are called beta; lines for each asset would bury what matters.
            warnings.filterwarnings("ignore", category=dg.BetaWarning)
            many = partitions_per_run
            chosen = policy.multi_run(many) if many else policy.single_run()
            # Not by `dg.with_source_code_references`, which would link `refusing`.
            links = [link(code.co_filename, code.co_firstlineno, "asset")]
            if study is not None and (file := study.folder / f"{study.name}.yaml").is_file():
                links.insert(0, link(file, 1, "study"))
            shown = dg.CodeReferencesMetadataValue(code_references=[*links])
            linked = {"dagster/code_references": shown}
            specs = [spec.merge_attributes(metadata=linked) for spec in options.get("specs", ())]
            more = {"specs": specs} if specs else {"metadata": options.get("metadata", {}) | linked}
            decorate = decorator(**{**options, **more}, backfill_policy=chosen)
        return cast("dg.AssetsDefinition", decorate(refusing(compute)))

    return definition


def group(study: Study) -> str:
    """Return the study's asset group, also used in op and job names, which allow no dashes."""
    return study.name.replace("-", "_")


def job_name(study: Study, experiment: Experiment) -> str:
    """Return the name of the job that measures ``experiment`` and its guest experiments."""
    kind = "profile" if experiment.name == "length_profile" else experiment.name.replace("-", "_")
    return f"{kind}_{group(study)}"


def measure_job_name(study: Study, experiment: Experiment) -> str:
    """Return the name of the job by which schedules and sensors measure, which also prepares."""
    return f"measure_{job_name(study, experiment).removeprefix('profile_')}"


def documents_job_name(study: Study, experiment: Experiment) -> str:
    return f"{experiment.name.replace('-', '_')}_documents_{group(study)}"


def report_job_name(study: Study) -> str:
    """Return the name of the job that scores and reports the measured answers."""
    return f"report_{group(study)}"


def run_tags(study: Study, campaign: str, cause: str) -> dict[str, str]:
    """Return the tags that describe a run's purpose.

    ``cause``: what started it (command line, schedule, sensor, ...).
    """
    return {
        "contextcliff/study": study.name,
        "contextcliff/models": ", ".join(study.models),
        "contextcliff/campaign": campaign,
        "contextcliff/cause": cause,
    }


def run_config(study: Study, config: Config) -> dict[str, Any]:
    """Return the run config that gives each op its ``config``."""
    return {"ops": {f"{group(study)}__{op}": {"config": {**of}} for op, of in config.items()}}


def key_prefix() -> list[str]:
    """Return the prefix of all asset keys: ``CONTEXTCLIFF_ASSET_PREFIX``, split at ``/``.

    It separates the assets of two code locations on one Dagster instance.
    """
    return [part for part in os.environ.get("CONTEXTCLIFF_ASSET_PREFIX", "").split("/") if part]


def asset_key(study: Study, name: str) -> dg.AssetKey:
    return dg.AssetKey([*key_prefix(), study.name, name])


def described(
    study: Study,
    name: str,
    description: str,
    *,
    deps: Sequence[str] = (),
    kinds: set[str],
    table: Table | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return arguments for ``dg.asset`` and ``dg.AssetSpec``: key, group, owner, column schema.

    Group, owners, tags and further kinds come from the study's `assets` section, if it sets them.
    """
    shown = study.assets
    return {
        "key": asset_key(study, name),
        "description": description,
        "deps": [asset_key(study, dep) for dep in deps],
        "group_name": shown.group or group(study),
        "owners": shown.owners,
        "kinds": kinds | {*shown.kinds},
        "tags": dict(shown.tags),
        "metadata": {"dagster/column_schema": column_schema(table)} if table else {},
        **more,
    }


def study_asset(
    study: Study, name: str, description: str, **options: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return `decorated` for a study's asset with the properties of `described`."""
    return decorated(dg.asset, study, **described(study, name, description, **options))
