"""The sensor that ends runs whose process is gone with the code server that watched it.

Dagster's default run launcher knows from its code server alone that the process of a run has died.
Where both die (a container, a machine), the run would count as started for ever: it would keep its
place in the queue of runs, and nobody would be alerted. Other launchers (Docker, Kubernetes) are
asked by Dagster's run monitoring.
"""

# No `from __future__ import annotations` here: Dagster does not resolve strings.

import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import dagster as dg

from contextcliff_dagster.defs.alerts.failed_runs import is_elsewhere
from contextcliff_dagster.defs.asset_specs import group
from contextcliff_dagster.defs.dagster_internals import GRPC_INFO_TAG
from contextcliff_dagster.studies import Study

_EVERY_S = 30
_CLOCK_S = 5.0
"""By how much two ways to read the time of a start may differ."""


def lost_runs_sensor(studies: Sequence[Study], *, alone: bool = False) -> dg.SensorDefinition:
    """`end_lost_runs`: a run whose process is gone fails; Dagster then tries it again, as any run
    that was killed.

    ``alone``: its name is that of the one study, whose runs it is for. Code server and processes of
    runs are on one machine. A process has to be missing in two ticks: one that has just died is the
    code server's to report. The cursor is the runs that were missing theirs.
    """
    names = {study.name for study in studies}

    @dg.sensor(
        name=f"end_lost_runs_{group(studies[0])}" if alone else "end_lost_runs",
        minimum_interval_seconds=_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Ends runs whose process died together with the code server.",
    )
    def end_lost_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        instance = context.instance
        if not isinstance(instance.run_launcher, dg.DefaultRunLauncher):
            return dg.SkipReason("Dagster's run monitoring watches the runs of this launcher.")
        before: list[str] = json.loads(context.cursor) if context.cursor else []
        missing, ended = [], 0
        begun = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
        for run in instance.get_runs(dg.RunsFilter(statuses=begun)):
            # Others have processes of their own, perhaps on another machine.
            if GRPC_INFO_TAG not in run.tags or is_elsewhere(context, run):
                continue
            if alone and run.tags.get("contextcliff/study") not in names:
                continue
            pid, since = _process_of(instance, run.run_id)
            if pid is None or is_alive(pid, since):
                continue
            missing.append(run.run_id)
            now = instance.get_run_by_id(run.run_id)
            if run.run_id in before and now is not None and not now.is_finished:
                # As a code server does: the sentence, then the failure.
                why = f"The process of this run (pid {pid}) ended together with its code server."
                instance.report_engine_event(why, now)
                instance.report_run_failed(now)
                ended += 1
        context.update_cursor(json.dumps(missing))
        return dg.SkipReason(f"{ended} lost {'run' if ended == 1 else 'runs'} ended.")

    return end_lost_runs


def _process_of(instance: dg.DagsterInstance, run_id: str) -> tuple[int | None, float]:
    """The process id that the run's own process has reported, and when (seconds since 1970)."""
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        event = entry.get_dagster_event()
        pid = event.engine_event_data.metadata.get("pid")
        if event.step_key is None and pid is not None:
            with suppress(TypeError, ValueError):
                return int(str(pid.value)), entry.timestamp
    return None, 0.0


def is_alive(pid: int, since: float) -> bool:
    """Whether the process runs that had this id at ``since`` (seconds since 1970).

    A later process of the same id is another one; it can be told where the system has ``/proc``.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with suppress(OSError, ValueError, IndexError):
        # After the name, which may hold anything: state, and as the 20th the start after the boot.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lines = Path("/proc/stat").read_text().splitlines()
        boots = (float(line.split()[1]) for line in lines if line.startswith("btime"))
        boot = next(boots, -math.inf)
        began = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return fields[0] != "Z" and began <= since + _CLOCK_S
    return True
