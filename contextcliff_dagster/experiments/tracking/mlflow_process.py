"""Log runs to MLflow: a request as JSON on stdin, a line of JSON on stdout for each model.

Needs only Python and MLflow (`mlflow-skinny` suffices), not this package.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from typing import Any

_MOST = 100
"""Maximum parameters and tags per request; ten times as many metrics are allowed."""
_LONGEST = 500


def main() -> int:
    request = json.load(sys.stdin)
    try:
        from mlflow import MlflowClient
    except ImportError:
        extra = f"`{shlex.quote(sys.executable)} -m pip install mlflow`"
        other = "or name the Python that has it in CONTEXTCLIFF_TRACKER_PYTHON"
        sys.exit(f"MLflow is not installed here: {extra}, {other}.")
    try:
        client = MlflowClient(tracking_uri=request["tracking_uri"])
        known = client.get_experiment_by_name(request["experiment"])
        experiment = known.experiment_id if known else client.create_experiment(
            request["experiment"], artifact_location=request["artifacts"]
        )  # fmt: skip
        for model in request["models"]:
            _log(client, experiment, model)
    except Exception as error:  # of its own, and of what it sends with
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def _log(client: Any, experiment: str, model: dict[str, Any]) -> None:
    from mlflow.entities import Metric, Param, RunTag

    run = _existing(client, model["id"]) or client.create_run(experiment, run_name=model["name"])
    run_id = run.info.run_id
    # Immediately, so that the next report continues this run after any failure.
    print(json.dumps({"model": model["model"], "id": run_id}), flush=True)
    now = int(1_000 * time.time())
    metrics = [
        Metric(name, math.nan if value is None else value, now, 0)
        for name, value in model["metrics"].items()
    ]
    if model["log_curve"]:
        version = "" if model["curve_version"] == 1 else f"_v{model['curve_version']}"
        for tokens, *values in model["curve"]:
            for name, value in zip(("mean", "ci_low", "ci_high"), values, strict=True):
                metrics.append(Metric(f"curve{version}/{name}", value, now, tokens))
        for tokens, value in model["bins"]:
            metrics.append(Metric(f"bins{version}/mean", value, now, tokens))
    tags = {**model["tags"], "mlflow.runName": model["name"]}
    # A run's parameters never change; if the study's value changed, add it under a new name.
    logged, params = run.data.params, {n: v[:_LONGEST] for n, v in model["params"].items()}
    for name, value in params.items():
        if logged.get(name, value) != value:
            tags[f"contextcliff.now.{name}"] = value
    fresh = [Param(name, value) for name, value in params.items() if name not in logged]
    rows = [RunTag(name, str(value)[:5_000]) for name, value in tags.items()]
    for start in range(0, len(metrics), 800):
        client.log_batch(run_id, metrics=metrics[start : start + 800])
    for start in range(0, max(len(fresh), len(rows)), _MOST):
        stop = start + _MOST
        client.log_batch(run_id, params=fresh[start:stop], tags=rows[start:stop])
    for file in model["files"]:
        client.log_artifact(run_id, file)
    client.set_terminated(run_id)
    print(json.dumps({"model": model["model"], "id": run_id, "complete": True}), flush=True)


def _existing(client: Any, run_id: str | None) -> Any:
    """Return the run; None if it was deleted."""
    if run_id is None:
        return None
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    return run if run.info.lifecycle_stage == "active" else None


if __name__ == "__main__":
    sys.exit(main())
