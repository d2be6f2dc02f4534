"""Log runs to MLflow or Weights & Biases: JSON on stdin, a line of JSON on stdout for each model.

Needs only Python and the tracker (`mlflow-skinny` or `wandb`), not this package. Collection of the
machine, the command line, the git repository and system statistics by wandb is disabled.
"""

from __future__ import annotations

import importlib
import json
import math
import secrets
import shlex
import sys
import time
from pathlib import Path
from typing import Any

_MOST = 100
"""Maximum parameters and tags per request to MLflow; ten times as many metrics are allowed."""
_LONGEST = 500


def main(kind: str) -> int:
    request = json.load(sys.stdin)
    try:
        importlib.import_module(kind)
    except ImportError:
        extra = f"`{shlex.quote(sys.executable)} -m pip install {kind}`"
        other = "or name the Python that has it in CONTEXTCLIFF_TRACKER_PYTHON"
        name = {"mlflow": "MLflow"}.get(kind, kind)
        sys.exit(f"{name} is not installed here: {extra}, {other}.")
    try:
        (_log_to_mlflow if kind == "mlflow" else _log_to_wandb)(request)
    except Exception as error:  # of its own, and of what it sends with
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def _version(model: dict[str, Any]) -> str:
    return "" if model["curve_version"] == 1 else f"_v{model['curve_version']}"


def _log_to_mlflow(request: dict[str, Any]) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=request["tracking_uri"])
    known = client.get_experiment_by_name(request["experiment"])
    experiment = known.experiment_id if known else client.create_experiment(
        request["experiment"], artifact_location=request["artifacts"]
    )  # fmt: skip
    for model in request["models"]:
        _log_run(client, experiment, model)


def _log_run(client: Any, experiment: str, model: dict[str, Any]) -> None:
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
        version = _version(model)
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


def _log_to_wandb(request: dict[str, Any]) -> None:
    import wandb

    for model in request["models"]:
        settings = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, init_timeout=60,
            x_disable_meta=True, x_disable_stats=True, x_disable_machine_info=True,
        )  # fmt: skip
        run_id = model["id"] or secrets.token_hex(4)
        # Before anything is sent, so that the next report continues this run after any failure.
        print(json.dumps({"model": model["model"], "id": run_id}), flush=True)
        run = wandb.init(
            project=request["project"], entity=request["entity"], dir=request["folder"], id=run_id,
            resume="allow", name=model["name"], group=request["campaign"], settings=settings,
            config=model["params"], allow_val_change=True,
        )  # fmt: skip
        if model["log_curve"]:
            version = _version(model)
            run.define_metric("tokens")
            for name in ("curve", "bins"):
                run.define_metric(f"{name}{version}/*", step_metric="tokens")
            for tokens, *values in model["curve"]:
                named = zip(("mean", "ci_low", "ci_high"), values, strict=True)
                run.log({"tokens": tokens, **{f"curve{version}/{n}": value for n, value in named}})
            for tokens, value in model["bins"]:
                run.log({"tokens": tokens, f"bins{version}/mean": value})
        if model["picture"]:
            run.log({"report": wandb.Image(model["picture"])})
        run.summary.update({**model["metrics"], **model["tags"]})
        report = wandb.Artifact(f"report-{run_id}", type="report")
        for file in model["files"]:
            report.add_file(file, name=Path(file).name)
        run.log_artifact(report)
        url = run.url or f"{Path(run.dir).parent} (offline: wandb sync sends it)"
        run.finish()
        done = {"model": model["model"], "id": run_id, "url": url, "complete": True}
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
