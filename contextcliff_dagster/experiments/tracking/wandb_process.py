"""Log runs to Weights & Biases: a request as JSON on stdin, a line of JSON for each model.

Needs only Python and wandb, not this package. Collection of the machine, the command line, the git
repository and system statistics by wandb is disabled.
"""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    request = json.load(sys.stdin)
    try:
        import wandb
    except ImportError:
        extra = f"`{shlex.quote(sys.executable)} -m pip install wandb`"
        other = "or name the Python that has it in CONTEXTCLIFF_TRACKER_PYTHON"
        sys.exit(f"wandb is not installed here: {extra}, {other}.")
    try:
        for model in request["models"]:
            _log(wandb, request, model)
    except Exception as error:  # of its own, and of what it sends with
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def _log(wandb: Any, request: dict[str, Any], model: dict[str, Any]) -> None:
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
        version = "" if model["curve_version"] == 1 else f"_v{model['curve_version']}"
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
    sys.exit(main())
