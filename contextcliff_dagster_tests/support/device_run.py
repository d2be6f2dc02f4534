"""A run of the tiny study in a process of its own, whose calls wait for those of other runs.

``python -m contextcliff_dagster_tests.support.device_run FOLDER NAMES REQUEST``: executes the run
that REQUEST (a JSON object: run config, tags, selected assets) asks for, on the study of
CONTEXTCLIFF_STUDIES. Before its first call is answered it writes the device that it has to
FOLDER/MODEL, and waits until all of NAMES (a JSON list of models) have done so.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import dagster as dg

from contextcliff_dagster.defs.partitions import add_campaign
from contextcliff_dagster.defs.resources import run_resources
from contextcliff_dagster.defs.studies import study_assets, study_jobs
from contextcliff_dagster.inference.engines.base import Decoding, Delta
from contextcliff_dagster.inference.engines.reference import ReferenceEngine
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.studies import find_study
from contextcliff_dagster_tests.support.held_calls import PATIENCE_S


def answer_together(folder: Path, names: list[str]) -> None:
    """Answer no call before each of ``names`` is being asked."""
    stream = ReferenceEngine.stream

    async def held(
        self: ReferenceEngine, prompt: Prompt, decoding: Decoding
    ) -> AsyncIterator[Delta]:
        (folder / self._entry.name).write_text(os.environ["CUDA_VISIBLE_DEVICES"])
        deadline = time.monotonic() + PATIENCE_S
        while not all((folder / name).exists() for name in names):
            assert time.monotonic() < deadline, f"{names} are not asked at once"
            await asyncio.sleep(0.01)
        async for delta in stream(self, prompt, decoding):
            yield delta

    ReferenceEngine.stream = held  # type: ignore[method-assign]


def main() -> int:
    folder, names, request = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
    answer_together(folder, names)
    study = find_study("tiny")
    definitions = dg.Definitions(
        study_assets(study),
        jobs=study_jobs(study),
        resources=run_resources(),
    )
    instance = dg.DagsterInstance.ephemeral()
    add_campaign(instance, study, request["tags"]["contextcliff/campaign"])
    done = definitions.resolve_job_def("profile_tiny").execute_in_process(
        run_config=request["run_config"],
        tags=request["tags"],
        asset_selection=[dg.AssetKey(path) for path in request["assets"]],
        instance=instance,
        raise_on_error=False,
    )
    return 0 if done.success else 1


if __name__ == "__main__":
    sys.exit(main())
