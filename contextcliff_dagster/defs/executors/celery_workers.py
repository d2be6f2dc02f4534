"""Celery executor that gives the step of a dead worker to another worker, in the same run.

`dagster_celery` waits indefinitely for a step's result. Celery acknowledges a task when its work
begins, so a worker that dies takes the task with it, and the run would wait forever. Here the run
asks the workers whether one of them still has the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
from celery.exceptions import OperationalError, WorkerLostError
from dagster_celery.executor import CELERY_CONFIG, CeleryExecutor

from contextcliff_dagster.defs.dagster_internals import (
    RetryMode,
    SerializableErrorInfo,
    StepFailureData,
    StepRetryData,
    submit_celery_step,
)

LOOK_EVERY_S = 10.0
ANSWER_WITHIN_S = 5.0
LOST_AFTER_S = 45.0
"""Seconds after which a task unknown to all workers is lost; busy workers may miss queries."""
MOST_TRIES = 3
"""Maximum attempts per step, so that a step that kills its workers eventually fails."""


@dg.executor(
    name="celery",
    config_schema=CELERY_CONFIG,
    requirements=dg.multiple_process_executor_requirements(),
)
def celery_executor(init: dg.InitExecutorContext) -> CeleryExecutor:
    """Run steps as tasks of Celery workers, with the settings of `dagster_celery.celery_executor`.

    A step that lost its worker starts again if ``retries`` are enabled, at most `MOST_TRIES` times
    in all; otherwise it fails.
    """
    config: Any = init.executor_config
    return CeleryWorkersExecutor(
        broker=config.get("broker"),
        backend=config.get("backend"),
        config_source=config.get("config_source"),
        include=config.get("include"),
        retries=RetryMode.from_config(config["retries"]),
    )


class CeleryWorkersExecutor(CeleryExecutor):
    """Dagster's Celery executor, with a `WatchedTask` as the result of each step."""

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[dg.DagsterEvent]:
        from dagster_celery.core_execution_loop import core_celery_execution_loop

        yield from core_celery_execution_loop(plan_context, execution_plan, self._submit)

    def _submit(
        self, app: Any, plan_context: Any, step: Any, queue: str, priority: int, known_state: Any
    ) -> WatchedTask:
        def after_loss(why: str) -> dg.DagsterEvent:
            context, error = plan_context.for_step(step), SerializableErrorInfo(why, [], None)
            tries = 1 + known_state.get_retry_state().get_attempt_count(step.key)
            if self.retries.disabled or tries >= MOST_TRIES:
                return dg.DagsterEvent.step_failure_event(context, StepFailureData(error, None))
            return dg.DagsterEvent.step_retry_event(context, StepRetryData(error))

        result = submit_celery_step(app, plan_context, step, queue, priority, known_state)
        return WatchedTask(result, queue, f"step {step.key}", after_loss)


class WatchedTask:
    """A `celery.result.AsyncResult` of a task on ``queue``, for the loop of `dagster_celery`.

    It is also ready when the task is lost; its event then comes from ``after_loss``, which gets a
    sentence on the loss. A task is lost if its process has died, or if for `LOST_AFTER_S` no worker
    knows it and it is not in its queue.
    """

    def __init__(
        self, result: Any, queue: str, name: str, after_loss: Callable[[str], dg.DagsterEvent]
    ) -> None:
        self._result, self._queue, self._name, self._after_loss = result, queue, name, after_loss
        self._worker: str | None = None
        self._next_look = time.monotonic() + LOOK_EVERY_S
        self._unknown_since: float | None = None

    def ready(self) -> bool:
        """Return whether `get` would return or raise at once."""
        if self._result.ready():
            return True
        if time.monotonic() >= self._next_look:
            began = time.monotonic()
            if self._is_known():
                self._unknown_since = None
            elif self._unknown_since is None:
                self._unknown_since = began
            self._next_look = time.monotonic() + LOOK_EVERY_S
        since = self._unknown_since
        return since is not None and time.monotonic() - since >= LOST_AFTER_S

    def get(self) -> list[str]:
        """Return the step's serialized events, or raise the task's exception."""
        if self._result.ready():
            if not isinstance(self._result.result, WorkerLostError):
                events: list[str] = self._result.get()
                return events
            how = f"the process that worked on it ended: {self._result.result}"
        else:
            # Revoke it, so that it cannot begin after all if the broker still has it.
            self._result.revoke()
            how = f"worker {self._worker} is gone" if self._worker else "no worker knows of it"
        return [dg.serialize_value(self._after_loss(f"The {self._name} is lost: {how}."))]

    def revoke(self) -> None:
        """Revoke the task, and end the process that runs it."""
        self._result.revoke(terminate=True)

    def _is_known(self) -> bool:
        """Return whether the task is at a worker or queued; True if that cannot be determined."""
        with self._result.app.connection_for_read() as connection:
            try:
                return self._is_at_a_worker() or self._may_wait(connection)
            except (OperationalError, *connection.recoverable_connection_errors):
                return True  # an unreachable broker is no evidence about the workers

    def _is_at_a_worker(self) -> bool:
        # A query to a named worker returns as soon as it has answered.
        targets = [[self._worker], None] if self._worker else [None]
        task = self._result.id
        for workers in targets:
            inspect = self._result.app.control.inspect(workers, timeout=ANSWER_WITHIN_S)
            for worker, known in (inspect.query_task([task]) or {}).items():
                if task in known:
                    # Taken from the queue, a task may return there until work on it begins.
                    self._worker = worker if known[task][0] == "active" else None
                    return True
        return False

    def _may_wait(self, connection: Any) -> bool:
        if self._worker:
            return False  # acknowledged when its work began
        try:
            declared = connection.default_channel.queue_declare(self._queue, passive=True)
        except connection.channel_errors:  # in Redis, an empty queue does not exist
            return False
        return bool(declared.message_count)
