"""Common properties of all assets of a study."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, TypeVar

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError, StoreUnreachableError, Table
from contextcliff_dagster.defs.ui.rendering import column_schema
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.studies import Study

RETRY_TAG = "dagster/retry_on_asset_or_op_failure"
"""The tag of a run that decides whether Dagster retries it after a failed step."""


Compute = TypeVar("Compute", bound=Callable[..., Any])


def refusing(compute: Compute) -> Compute:
    """Wrap ``compute`` of an asset or op: raise `ContextCliffError` as Dagster's `Failure`.

    The sentence is the description of the failure, the error its cause. The run of such a step is
    not tried again, nor that of a `Failure` that allows no retries: it would end so again.
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

    Without this a failed run is (`asset_specs.RETRY_FAILED`): what ended it is then a killed
    process, or a database or disk that could not be reached.
    """
    # Where the tag cannot be written either, the run is tried again and refused again.
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
        raise dg.Failure(str(error), metadata=kind, allow_retries=passing) from error
    except dg.Failure as failure:
        if not failure.allow_retries:
            forbid_retry()
        raise


@contextmanager
def refusals_raised() -> Iterator[None]:
    """Raise the original refusal of a run in this process, not Dagster's failure."""
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


OWNERS = ("team:evaluation",)

PREPARATION = ("raw_corpus", "length_map", "distribution_audit", "manifest")
"""The assets of a sample, which belongs to no campaign."""

Config = Mapping[str, Mapping[str, Any]]
"""Op, without the study's name -> its config."""

RETRY_FAILED = {"dagster/max_retries": "2", RETRY_TAG: "true"}
"""Tags of jobs: a run whose process was killed, or which could not reach its database, is tried
again, and takes from the call ledger what it has. A refusal of ours (a budget, a changed model)
would come again: it takes the second tag back (`refusals.forbid_retry`).
"""

FOLLOW_RECORDS = (
    dg.AutomationCondition.eager()
    # Predictions nearly always have gaps (a pilot, one model of three): plain eager() waits for
    # every partition for ever.
    .without(~dg.AutomationCondition.any_deps_missing())
    .with_label("follow_records")
)
"""For what is cheap and makes no call: follow whatever has been measured.

Assets that cost calls have no condition: they run only on request.
"""


def single_run(
    decorator: Callable[..., Any], **options: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """``dg.asset`` or ``dg.multi_asset`` that takes a range of partitions in one run.

    Unpartitioned assets want the policy too: `dg launch --partition-range` insists on it for all
    that it selects. What the function refuses fails the step with its sentence (`refusing`).
    """
    with warnings.catch_warnings():
        # Backfill policies are called beta; two lines per asset would bury what matters.
        warnings.filterwarnings("ignore", category=dg.BetaWarning)
        decorate = decorator(**options, backfill_policy=dg.BackfillPolicy.single_run())
    return lambda compute: decorate(refusing(compute))


def group(study: Study) -> str:
    """The study's asset group, also in op and job names, which allow no dash."""
    return study.name.replace("-", "_")


def job_name(study: Study, experiment: Experiment) -> str:
    """Return the name of the job that measures ``experiment`` and its guests."""
    kind = "profile" if experiment.name == "length_profile" else experiment.name.replace("-", "_")
    return f"{kind}_{group(study)}"


def documents_job_name(study: Study, experiment: Experiment) -> str:
    """Return the name of the job that makes the documents of ``experiment``."""
    return f"{experiment.name.replace('-', '_')}_documents_{group(study)}"


def pilot_job_name(study: Study) -> str:
    """Return the name of the job that asks a few examples of each bin."""
    return f"pilot_{group(study)}"


def report_job_name(study: Study) -> str:
    """Return the name of the job that scores and reports what is measured."""
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


def run_config(study: Study, campaign: str, ops: Iterable[str], more: Config) -> dict[str, Any]:
    """Return the run config that makes ``ops`` work on ``campaign``, with what ``more`` adds."""
    config: dict[str, dict[str, Any]] = {op: {"campaign": campaign} for op in ops}
    for op, values in more.items():
        config.setdefault(op, {}).update(values)
    return {"ops": {f"{group(study)}__{op}": {"config": values} for op, values in config.items()}}


def key_prefix() -> list[str]:
    """Return the prefix of all asset keys: ``CONTEXTCLIFF_ASSET_PREFIX``, split at ``/``.

    Two code locations on one Dagster instance keep their assets apart by it.
    """
    return [part for part in os.environ.get("CONTEXTCLIFF_ASSET_PREFIX", "").split("/") if part]


def asset_key(study: Study, name: str) -> dg.AssetKey:
    return dg.AssetKey([*study_prefix(study), name])


def study_prefix(study: Study) -> list[str]:
    """Return the prefix of the study's asset keys."""
    return [*key_prefix(), study.name]


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
    """Return arguments of ``dg.asset`` and ``dg.AssetSpec``: key, group, owner, column schema.

    Group, owners, tags and further kinds are those of the study's section `assets`, where it has
    some.
    """
    shown = study.assets
    return {
        "key": asset_key(study, name),
        "description": description,
        "deps": [asset_key(study, dep) for dep in deps],
        "group_name": shown.group or group(study),
        "owners": shown.owners or OWNERS,
        "kinds": kinds | {*shown.kinds},
        "tags": dict(shown.tags),
        "metadata": {"dagster/column_schema": column_schema(table)} if table else {},
        **more,
    }


def study_asset(
    study: Study, name: str, description: str, **options: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """``dg.asset`` of a study, `described`, for a single run."""
    return single_run(dg.asset, **described(study, name, description, **options))
