"""Figures and claims after an hour of crashes: ticks and runs, calls, alerts, memory."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from contextcliff_dagster.defs.alerts import ALERTED_TAG
from contextcliff_dagster.defs.automation import campaign_at
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import load_study
from contextcliff_dagster_tests.support.servers.planned_server import WRONG
from contextcliff_dagster_tests.support.supervisor import Supervisor, memory_of, own_ends

CALLS = 36
"""Number of calls of one model in one campaign."""
SETTLES_WITHIN_S = 1_500
Kills = Sequence[tuple[float, str, int]]
Plan = Mapping[str, tuple[Sequence[str], int]]
Span = tuple[float, float]


def figures_of(
    folder: Path,
    supervisor: Supervisor,
    kills: Kills,
    alerts: list[dict[str, object]],
    acknowledged: Mapping[str, str],
    studies: Plan,
    span: Span,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Wait until the runs of all ticks are reported; return the figures, with ``claims``.

    Args:
        kills: time, victim, and number of run workers that died with it.
        alerts: payloads received by the webhook.
        acknowledged: call -> answer, for all answers seen in the ledger.
        studies: study -> its models, and its interval in minutes.
        span: times at which the schedules were switched on and off.
    """
    with dg.DagsterInstance.get() as instance, open_ledger(Store.default()) as ledger:
        settled = _settle(instance, say)
        memory = {name: one.memory for name, one in supervisor.services.items()}
        noted = {"span": span, "kills": kills, "alerts": alerts, "memory": memory}
        (folder / "noted.json").write_text(json.dumps(noted))
        ticks, runs = _ticks(instance, studies, span), _runs(instance)
        done = _measured(instance)
        calls = _calls(folder, ledger, acknowledged, done)
        alarms = _alerts(folder, instance, ledger, alerts, done)
        logged = _event_rows(instance)
    claims = {"every run has ended": settled}
    for part in (ticks, runs, calls, alarms):
        claims |= part.pop("claims")
    return {
        "kills": dict(Counter(victim for _, victim, _ in kills)),
        "runs_hit": sum(hit for *_, hit in kills),
        "ended_by_themselves": {
            name: own_ends(one, kills) for name, one in supervisor.services.items()
        },
        **ticks,
        **runs,
        **calls,
        **alarms,
        **logged,
        "memory_mib": {name: memory_of(one) for name, one in supervisor.services.items()},
        "claims": claims,
    }


def _settle(instance: dg.DagsterInstance, say: Callable[[str], None]) -> bool:
    """Return whether all runs end and two more sensor evaluations start none."""
    until, calm_since, seen = time.monotonic() + SETTLES_WITHIN_S, 0.0, -1
    while time.monotonic() < until:
        runs = instance.get_runs()
        open_runs = [run for run in runs if not run.is_finished]
        if open_runs or len(runs) != seen:
            calm_since, seen = time.monotonic(), len(runs)
        elif time.monotonic() - calm_since > 150:
            return True
        time.sleep(5)
    for run in open_runs:
        say(f"not ended: {run.job_name} {run.run_id} {run.status} {run.tags}")
    return False


def _ticks(instance: dg.DagsterInstance, studies: Plan, span: Span) -> dict[str, Any]:
    """Return the ticks within ``span``, each with the runs it requested.

    Dagster catches up on the newest missed tick only.
    """
    asked = _asked(instance)
    states = {one.instigator_name: one for one in instance.all_instigator_state()}
    found: dict[str, Any] = {}
    short, longest_gap = [], 0
    for study, (models, every) in studies.items():
        state = states[f"measure_{study}"]
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id)
        good = {int(t.timestamp // 60) for t in ticks if t.status.value == "SUCCESS"}
        first, last = int(span[0] // 60) + 1, int(span[1] // 60)
        due = [minute for minute in range(first, last + 1) if minute % every == 0]
        gap = 0
        for minute in due:
            gap = 0 if minute in good else gap + 1
            longest_gap = max(longest_gap, gap)
        for minute in good:
            campaign = campaign_at(datetime.fromtimestamp(minute * 60, UTC))
            runs = [asked[f"measure_{study}", campaign, model] for model in models]
            if set(runs) != {1}:
                short.append((study, campaign, runs))
        found[study] = {"due": len(due), "ticked": len(good & set(due))}
    return {
        "ticks": found,
        "ticks_overtaken_by_a_newer_one_in_a_row": longest_gap,
        "claims": {
            "each tick has asked for its runs, each once": not short,
            "no run was asked for twice": max(asked.values()) == 1,
            "no schedule stopped: at most three ticks in a row were overtaken": longest_gap <= 3,
        },
    }


def _asked(instance: dg.DagsterInstance) -> Counter[tuple[str, str, str]]:
    """Return the runs that schedules requested, by job, campaign and models, without retries."""
    return Counter(
        (run.job_name, run.tags["contextcliff/campaign"], run.tags["contextcliff/models"])
        for run in instance.get_runs()
        if run.parent_run_id is None and "dagster/schedule_name" in run.tags
    )


def _runs(instance: dg.DagsterInstance) -> dict[str, Any]:
    """Return chains of runs: a requested run and its retries."""
    records = [r for r in instance.get_run_records() if r.dagster_run.remote_job_origin is not None]
    runs = [record.dagster_run for record in records]
    roots = [run for run in runs if run.parent_run_id is None]
    last: dict[str, dg.DagsterRun] = {}
    for run in sorted(runs, key=lambda r: int(r.tags.get("dagster/retry_number", 0))):
        last[run.root_run_id or run.run_id] = run
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    reported, measured = Counter[tuple[str, str]](), set[tuple[str, str]]()
    for root in roots:
        kind, _, study = root.job_name.partition("_")
        of = study, root.tags["contextcliff/campaign"]
        end = last[root.run_id].status.value
        ends[root.job_name][end] += 1
        reported[of] += kind == "report"
        if kind == "measure" and end == "SUCCESS":
            measured.add(of)
    waits = [r.start_time - r.create_timestamp.timestamp() for r in records if r.start_time]
    return {
        "runs": len(runs),
        "runs_tried_again": len(runs) - len(roots),
        "campaigns_reported_more_than_once": sum(n > 1 for n in reported.values()),
        "ends_after_the_last_try": {name: dict(of) for name, of in sorted(ends.items())},
        "wait_in_the_queue_s": {
            "median": round(statistics.median(waits)),
            "most": round(max(waits)),
        },
        "claims": {
            "each measured campaign was reported, that of two runs once": all(
                reported[of] == 1 or (reported[of] and of[0] != "pair") for of in measured
            ),
        },
    }


def _measured(instance: dg.DagsterInstance) -> set[tuple[str, ...]]:
    """Return study, campaign and model of each successful scheduled run."""
    of = dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS])
    names = [f"contextcliff/{name}" for name in ("study", "campaign", "models")]
    return {
        tuple(run.tags[name] for name in names)
        for run in instance.get_runs(of)
        if "dagster/schedule_name" in run.tags
    }


def _calls(
    folder: Path,
    ledger: Ledger,
    acknowledged: Mapping[str, str],
    done: set[tuple[str, ...]],
) -> dict[str, Any]:
    requests = Counter(
        line["prompt"]
        for file in folder.glob("*.jsonl")
        for line in map(json.loads, file.read_text().splitlines())
    )
    answers = dict(ledger.read("SELECT call_key, raw_output FROM results"))
    rows = ledger.read(
        "SELECT c.study, c.campaign, c.model, count(*), count(r.call_key) FROM calls c"
        " LEFT JOIN results r USING (call_key) GROUP BY c.study, c.campaign, c.model"
    )
    counts = {tuple(row[:3]): tuple(row[3:]) for row in rows}
    orphans, faults = len(ledger.orphans()), verify(ledger).faults
    unkept = requests.total() - len(answers)
    return {
        "campaigns_measured": len(done),
        "requests": requests.total(),
        "answers": len(answers),
        "answers_acknowledged": len(acknowledged),
        "requests_in_flight_at_a_kill": unkept,
        "orphans_shown": orphans,
        "claims": {
            "every acknowledged answer is there": len(acknowledged) > 0
            and all(answers.get(key) == text for key, text in acknowledged.items()),
            "each campaign that was measured has all its answers": all(
                counts.get(one) == (CALLS, CALLS) for one in done
            ),
            "paid in vain only what was in flight, and it is shown": 0 <= unkept <= orphans,
            "the ledger is sound": faults == (),
        },
    }


def _alerts(
    folder: Path,
    instance: dg.DagsterInstance,
    ledger: Ledger,
    got: list[dict[str, object]],
    done: set[tuple[str, ...]],
) -> dict[str, Any]:
    failed = {
        run.run_id
        for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        if run.tags.get("dagster/will_retry") != "true"
        and run.remote_job_origin is not None
        and ALERTED_TAG not in run.tags
    }
    of_runs = Counter(str(one["run_id"]) for one in got if one["event"] == "run_failed")
    rows = ledger.read(
        "SELECT c.campaign, r.raw_output FROM calls c JOIN results r USING (call_key)"
        " WHERE c.study = 'watched'"
    )
    wrong: dict[str, list[bool]] = defaultdict(list)
    for campaign, text in rows:
        wrong[campaign].append(text == WRONG)
    # Neither all right nor all wrong: the model changed while it was measured.
    mixed = {c for c, of in wrong.items() if 0 < sum(of) < CALLS}
    worse = {c for c, of in wrong.items() if sum(of) == CALLS}
    analysed = {c for c in wrong if ("watched", c, "steady") in done}
    worse |= {c for c in mixed & analysed if _is_shrunk(folder, c)}
    due = worse & analysed  # one whose run died after its analysis may be alerted of, too
    of_model = Counter(str(one["campaign"]) for one in got if one["event"] == "no_shrink_failed")
    sentences = Counter(str(one["text"]).partition(" Run ")[0] for one in got)
    return {
        "alerts_of_failed_runs": {"due": len(failed), "received": of_runs.total()},
        "alerts_of_the_model": {
            "due": len(due),
            "received": of_model.total(),
            "changed_meanwhile": len(mixed),
        },
        "sentences": {text[:160]: n for text, n in sentences.most_common(12)},
        "claims": {
            "each failed run was alerted of once": of_runs == Counter(failed) and bool(failed),
            "each worse campaign was alerted of once": bool(due)
            and due <= of_model.keys() <= worse
            and of_model.total() == len(of_model),
        },
    }


def _is_shrunk(folder: Path, campaign: str) -> bool:
    from contextcliff_dagster.experiments.common.preparation import load_frozen
    from contextcliff_dagster.experiments.length_profile.regression import judge_regression

    study, store = load_study(folder / "studies" / "watched.yaml"), Store.default()
    return bool(judge_regression(study, store, load_frozen(study, store), campaign).shrunk)


def _event_rows(instance: dg.DagsterInstance) -> dict[str, Any]:
    ended = [run for run in instance.get_runs(limit=60) if run.is_finished]
    rows = [len(instance.all_logs(run.run_id)) for run in ended]
    return {"event_rows_a_run": {"median": statistics.median(rows), "most": max(rows)}}
