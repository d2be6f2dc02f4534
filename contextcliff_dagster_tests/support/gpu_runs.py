"""A job of steps that say where they run and wait until they are let go; loaded by step processes.

``python -m contextcliff_dagster_tests.support.gpu_runs JOB NAME`` executes one of the jobs; its
steps write to the folder that GPU_RUNS names.
"""

# No `from __future__ import annotations` here: Dagster does not resolve strings.

import os
import sys
import time
from pathlib import Path

import dagster as dg

from contextcliff_dagster.defs.executors.gpu import gpu_executor


class Named(dg.Config):
    name: str


def _hold(context: dg.OpExecutionContext, name: str) -> None:
    """Write our pid and what CUDA would see; end when `NAME.go` is there."""
    folder = Path(os.environ["GPU_RUNS"])
    said = f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}"
    (folder / f"{name}.part").write_text(said)
    (folder / f"{name}.part").rename(folder / f"{name}.{context.op.name}")
    while not (folder / f"{name}.go").exists():
        time.sleep(0.02)


@dg.op(tags={"contextcliff/gpus": "1"})
def needs_one(context: dg.OpExecutionContext, config: Named) -> None:
    _hold(context, config.name)


@dg.op(tags={"contextcliff/gpus": "auto"})
def needs_any(context: dg.OpExecutionContext, config: Named) -> None:
    _hold(context, config.name)


@dg.op(tags={"contextcliff/gpus": "3"})
def needs_three(config: Named) -> None:
    raise AssertionError("no machine of these tests has three")


@dg.op
def needs_none(context: dg.OpExecutionContext, config: Named) -> None:
    _hold(context, config.name)


@dg.job(executor_def=gpu_executor)
def one() -> None:
    needs_one()


@dg.job(executor_def=gpu_executor)
def any_device() -> None:
    needs_any()


@dg.job(executor_def=gpu_executor)
def none_and_three() -> None:
    needs_none()
    needs_three()


@dg.job(executor_def=gpu_executor)
def none() -> None:
    needs_none()


if __name__ == "__main__":
    from contextcliff_dagster_tests.support import gpu_runs

    job, run_name = getattr(gpu_runs, sys.argv[1]), sys.argv[2]
    ops = {node.name: {"config": {"name": run_name}} for node in job.nodes}
    with dg.DagsterInstance.get() as instance:
        done = dg.execute_job(
            dg.reconstructable(job), instance, run_config={"ops": ops}, tags={"name": run_name}
        )
    sys.exit(0 if done.success else 1)
