"""Asking the open calls of a model through its provider's batch interface, at a discount.

A batch goes through these steps, each recorded before the next begins. Its calls are claimed and
their cost is reserved (`ledger.batches`). Its file is uploaded. It is created at the provider, with
our id in its metadata. It is looked at until it has ended. Its answers are stored, whatever their
order, and calls without an answer are set free to be asked again. A run that finds an open batch
goes on where another was killed; it asks the provider for a batch with our id before it creates
one.
"""

from __future__ import annotations

import asyncio
import queue
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from contextcliff_dagster.contracts import ASKED_BY, BudgetError, ContextCliffError, EngineError
from contextcliff_dagster.inference.engines.base import (
    UNKNOWN_FINISH,
    WHO_ANSWERED,
    Decoding,
    Delta,
    EngineSession,
    PromptCount,
    RejectedError,
    TransportError,
    token_count,
)
from contextcliff_dagster.inference.engines.openai.batch_interface import (
    BatchInterface,
    GoneError,
    RemoteBatch,
)
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.engines.openai.wire_format import read_delta, request
from contextcliff_dagster.inference.execution.call_sender import Pin, decoding_of, in_sending_order
from contextcliff_dagster.inference.execution.checks import CallSize, charge, size_of, was_truncated
from contextcliff_dagster.inference.execution.cost_estimate import overflows
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.execution.single_request import ask, judge, unanswered
from contextcliff_dagster.inference.ledger import batches as ledgered
from contextcliff_dagster.inference.ledger.batches import Answered, CallBatch, ToAsk
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import Failure, Outcome, PlannedCall, utc_now
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.spending import Budget, Spend, out_of_time
from contextcliff_dagster.inference.telemetry import CallCounters, Progress, RunSummary

KEY = "contextcliff"
"""Key of a batch's metadata at the provider; its value is the batch's id in the ledger."""
SEEN_AFTER_S = 120.0
"""Seconds after which a provider surely lists a batch that was created without our hearing of it"""
FIRST_POLL_S, LAST_POLL_S = 5.0, 300.0
_STORED_AT_ONCE = 200
_NOT_LOST, _AGAIN = "Nothing is lost or paid twice", "run the same command again"
_LIMITED = "The budget has no room for the calls that are left, until answers free what they hold."
_OLDEST_S = 90 * 86_400.0
"""Age beyond which the time of an answer cannot be true."""


class BatchRun:
    """The calls of one plan, in the order in which they are asked, through batches."""

    def __init__(
        self,
        calls: Sequence[PlannedCall],
        session: EngineSession,
        ledger: Ledger,
        scope: Scope,
        control: RunControl,
        unplanned: Collection[str] = (),
    ) -> None:
        self._calls = {call.call_key: call for call in calls}
        self._engine, self._entry = session.engine, session.entry
        if not isinstance(self._engine, OpenAIEngine) or self._entry.batch is None:
            raise EngineError(f"Model {self._entry.name!r} has no batch interface; leave it out.")
        self._options, self._provider = self._entry.batch, self._engine.batches()
        self._ledger, self._scope = ledger, scope
        self._control, self._budget = control, control.budget or Budget()
        self._resumes, self._refusal = control.batching == "resume", ""
        submit = f"run `contextcliff profile {scope.study} --batch`"  # a refused batch has ended
        self._way_on = submit if self._resumes else _AGAIN
        self._unplanned, self._halted = {*unplanned}, False
        self._counters = CallCounters(list(calls))
        self._pin = Pin(self._entry, scope.study)
        self._left = dict(self._calls)
        self._left_in_bin = Counter(call.bin for call in calls)
        self.ended_bins: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._tries: Counter[str] = Counter()
        self.said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._told: set[str] = set()
        self._window = self._engine.window_tokens
        self._most_of_estimate = ledger.most_of_estimate(scope.study, scope.campaign, scope.model)

    def halt(self, by_user: bool = False) -> None:
        """End after the step that is under way; the batches go on at the provider."""
        self._halted = True

    def cut(self) -> None:
        """End now; the next run goes on after the last step that was recorded."""
        self.halt()
        self._task.cancel()

    def progress(self) -> Progress:
        """Return the run's progress; may be called from any thread."""
        return self._counters.progress(0)

    async def run(self) -> RunSummary:
        """Look after open batches, and ask what nobody asks.

        Raises:
            BudgetError: nothing more can be asked within the budget; what was asked goes on.
            EngineError: the provider refuses the batches, or cannot be reached.
        """
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        try:
            return await self._run()
        except (RejectedError, TransportError) as error:
            lasting = isinstance(error, RejectedError)
            what = "refuses the batch" if lasting else "gave no usable answer"
            way_out = f"correct what it names, and {self._way_on}" if lasting else _AGAIN
            raise EngineError(
                f"Model {self._entry.name!r}: its provider {what} ({error}). {_NOT_LOST}: "
                f"{way_out}."
            ) from error
        finally:
            if self._refusal:  # another error ended the run before the refusal was told
                self._say(f"{self._refusal}.")

    async def _run(self) -> RunSummary:
        for key, outcome in self._ledger.outcomes(self._calls).items():
            self._pin.require_same(outcome)
            self._ended(key, "cached", outcome)
        poll_s = FIRST_POLL_S
        too_many = 0  # calls that waited when the provider refused more
        while True:
            passing: BudgetError | TransportError | None = None
            try:
                for batch in self._open_batches():
                    await self._look_after(batch)
                has_room = not too_many or len(self._ledger.claimed(self._left)) < too_many
                if has_room and not self._refusal:
                    await self._ask_open_calls()
            except BudgetError as error:
                passing = error  # answers free what was reserved for more
            except TransportError as error:
                if self._control.batching != "wait":
                    raise
                passing = error
            asked = {*self._ledger.claimed(self._left)}
            waiting = self._counters.waiting = len(asked)
            if self._refusal:
                too_many = waiting
                self._tell_refusal(waiting)
            if passing is not None:
                if not waiting:
                    raise passing
                limited = isinstance(passing, BudgetError)
                failed = f"The provider gave no usable answer ({passing}); trying again."
                self._say(_LIMITED if limited else failed)
            stopped = self._must_stop()
            if self._control.batching != "wait" or not waiting or stopped:
                break
            until = time.monotonic() + poll_s
            while time.monotonic() < until and not self._must_stop():
                await asyncio.sleep(0.1)
            poll_s = min(1.5 * poll_s, LAST_POLL_S)
        if self._resumes:
            self._end_bins(asked)
        elif (unasked := len(self._left) - waiting) and stopped and not self._halted:
            raise out_of_time(unasked)
        summary = replace(self._counters.total, seconds=self._counters.seconds, batched=True)
        return replace(summary, in_batches=waiting, stopped=stopped)

    def _tell_refusal(self, waiting: int) -> None:
        """Say that the provider refused a batch.

        Raises:
            EngineError: no call waits, so nothing goes on by itself.
        """
        refusal, self._refusal = self._refusal, ""
        if waiting and self._control.batching == "wait":
            self._say(f"{refusal}; its calls are sent again once another batch has ended.")
            return
        whole = (
            f"{refusal}. {_NOT_LOST}: correct what it names (`max_requests` makes smaller "
            f"batches), and {self._way_on}."
        )
        if not waiting:
            raise EngineError(whole)
        self._say(whole)

    def _must_stop(self) -> bool:
        return self._halted or self._control.seconds_left == 0.0

    def _say(self, sentence: str) -> None:
        """Hand over a sentence for the user; each one once."""
        if sentence not in self._told:
            self._told.add(sentence)
            self.said.put(sentence)

    def _ended(self, key: str, how: str, outcome: Outcome | None) -> None:
        call = self._calls[key]
        self._counters.ended(call, how, outcome)
        if self._left.pop(key, None) is not None:
            self._left_in_bin[call.bin] -= 1
            if not self._left_in_bin[call.bin]:
                self.ended_bins.put(call.bin)

    def _end_bins(self, asked: Collection[str]) -> None:
        """End the bins that have answers, as many as there are, and no call in a batch."""
        answered = {self._calls[key].bin for key in self._ledger.answered(self._calls)}
        waiting = {self._left[key].bin for key in asked}
        for name in answered - waiting:
            if self._left_in_bin[name]:
                self.ended_bins.put(name)

    def _open_batches(self) -> list[CallBatch]:
        """Return the batches that were asked our calls, also those of another study, and our own
        without calls."""
        owners = {*self._ledger.claimed(self._left).values()} | self._unplanned
        scope = self._scope

        def is_empty(batch: CallBatch) -> bool:
            of = (batch.study, batch.campaign, batch.model)
            ours = of == (scope.study, scope.campaign, scope.model)
            return ours and not ledgered.open_calls(self._ledger, batch)

        found = ledgered.batches_of(self._ledger, is_open=True)
        return [batch for batch in found if batch.owner in owners or is_empty(batch)]

    async def _ask_open_calls(self) -> None:
        """Ask each call without outcome or owner, in batches of the size that the entry allows."""
        options = self._options
        left = {*self._left} & self._again() if self._resumes else {*self._left}
        for key, outcome in self._ledger.outcomes(left).items():
            self._ended(key, "by_others", outcome)
        left -= self._ledger.claimed(left).keys()
        free = [call for key, call in self._left.items() if key in left]
        asked: list[ToAsk] = []
        size = 0
        for call in in_sending_order(free, self._scope, self._control.order):
            if self._must_stop():
                return
            prompt = call.prompt()
            if (item := await self._measured(call, prompt)) is None:
                continue
            length = sum(map(len, self._line(call, prompt)))
            too_long = size + length > options.max_mb * 1e6
            if asked and (too_long or len(asked) >= options.max_requests):
                await self._send(asked)
                asked, size = [], 0
            asked.append(item)
            size += length
        await self._send(asked)

    def _again(self) -> set[str]:
        """Return the calls that a run is to ask again without being told to."""
        return ledgered.to_ask_again(self._ledger, self._scope, self._entry.max_attempts)

    async def _measured(self, call: PlannedCall, prompt: Prompt) -> ToAsk | None:
        """Return the call with its reservation; None if it is too long, and judged unsent."""
        own = await self._engine.count_prompt_tokens(prompt)
        if overflow := overflows(call, prompt, own, self._window):
            outcome = unanswered(own, overflow, attempts=0)
            self._ledger.keep_unsent(call, prompt, self._scope, outcome).result()
            self._ended(call.call_key, "new", outcome)
            return None
        size = self._size(call, prompt, own)
        return ToAsk(call, prompt.hash, size.reserve(self._entry.price), size.estimated_tokens)

    def _size(self, call: PlannedCall, prompt: Prompt, own: PromptCount | None) -> CallSize:
        most = self._most_of_estimate
        return size_of(call, prompt, own, window_tokens=self._window, most_of_estimate=most)

    def _line(self, call: PlannedCall, prompt: Prompt) -> list[bytes]:
        """Return the line of a batch's file that asks ``call``, in pieces."""
        path, body = request(self._entry, prompt, decoding_of(call), stream=False)
        head = {"custom_id": call.call_key, "method": "POST", "url": f"/v1{path}"}
        return [orjson.dumps(head)[:-1], b',"body":', *body, b"}\n"]

    async def _send(self, asked: Sequence[ToAsk]) -> None:
        """Ask the calls that nobody else asks; a BudgetError comes where none is left to afford."""
        while asked:
            batch = ledgered.begin_batch(self._ledger, asked, self._scope, self._budget)
            if batch is None:
                return
            await self._upload_and_create(batch)
            keys = [item.call.call_key for item in asked]
            taken = {*self._ledger.answered(keys), *self._ledger.claimed(keys)}
            asked = [item for item in asked if item.call.call_key not in taken]

    async def _upload_and_create(self, batch: CallBatch) -> None:
        claimed = ledgered.open_calls(self._ledger, batch)
        calls = [self._calls[key] for key in claimed]
        try:
            with tempfile.NamedTemporaryFile(prefix="contextcliff-batch-", suffix=".jsonl") as file:
                for call in calls:
                    file.writelines(self._line(call, call.prompt()))
                file.flush()
                file_id = await self._provider.upload(Path(file.name), f"{batch.owner}.jsonl")
        except (RejectedError, ContextCliffError) as error:
            self._refused(batch, claimed, error)
            raise
        # From here on the provider may have it: whoever goes on waits until it would be listed.
        ledgered.note(self._ledger, batch, file_id=file_id, begun_at=utc_now())
        path, _ = request(self._entry, calls[0].prompt(), decoding_of(calls[0]), stream=False)
        metadata = {KEY: batch.owner, "study": batch.study, "campaign": batch.campaign}
        try:
            remote = await self._provider.create(
                file_id, f"/v1{path}", self._options.window, metadata
            )
        except TransportError as error:
            if error.maybe_paid:
                return  # the next look tells whether it was created
            raise
        except (RejectedError, ContextCliffError) as error:
            self._refused(batch, claimed, error)
            raise
        self._counters.total.sent += len(calls)
        ledgered.note(self._ledger, batch, remote_id=remote.id, remote_status=remote.status)

    def _refused(self, batch: CallBatch, claimed: ledgered.Claimed, error: Exception) -> None:
        why = (Failure("refused", str(error)), Spend())
        ledgered.give_up(self._ledger, batch, claimed, dict.fromkeys(claimed, why), ends=True)
        ledgered.note(self._ledger, batch, remote_status=ledgered.REFUSED)

    async def _look_after(self, batch: CallBatch) -> None:
        """Go on with an open batch after the last step that is recorded."""
        if not ledgered.hold(self._ledger, batch):
            return  # another process is at it
        remote = await _found(self._provider, batch)
        if remote is not None:
            ledgered.note(self._ledger, batch, remote_id=remote.id, remote_status=remote.status)
            if remote.has_ended:
                await self._take_in(batch, remote)
        elif (reason := _free_lost(self._ledger, batch)) is not None:
            self._say(f"Batch {batch.name} of model {batch.model!r}: {reason}.")

    async def _take_in(self, batch: CallBatch, remote: RemoteBatch) -> None:
        """Store what the batch brought, and set its other calls free."""
        claimed = ledgered.open_calls(self._ledger, batch)
        missing = dict(claimed)
        why: dict[str, tuple[Failure, Spend]] = {}
        lines, is_whole = 0, True
        others: EngineError | None = None
        with ExitStack() as stack:
            kept: list[Answered] = []
            stack.callback(lambda: ledgered.keep_answers(self._ledger, batch, claimed, kept))
            for file_id in filter(None, (remote.output_file, remote.error_file)):
                try:
                    async for line in self._provider.lines(file_id):
                        if (reply := Reply.read(line)) is None:
                            is_whole = is_whole and not line.strip()
                            continue
                        lines += 1
                        if reply.key not in missing:
                            continue  # known, of another batch, or there twice
                        _, reserve = missing.pop(reply.key)
                        judged = await self._judge(reply, reserve)
                        if isinstance(judged, Failure):
                            why[reply.key] = (judged, reserve if judged.maybe_paid else Spend())
                        else:
                            kept.append(judged)
                            try:
                                self._pin.require_same(judged.outcome)
                            except EngineError as error:
                                others = others or error
                        if len(kept) >= _STORED_AT_ONCE:
                            ledgered.keep_answers(self._ledger, batch, claimed, kept)
                            kept.clear()
                except GoneError:
                    is_whole = False
        # What an ended batch did not answer was not billed, unless answers of it were lost.
        lost = not is_whole or lines < remote.completed + remote.failed
        said = f": {remote.reason.rstrip('.')}" if remote.reason else ""
        reason = f"the batch ended ({remote.status}) without an answer to this call{said}"
        failure = Failure("no_answer_in_batch", reason, maybe_paid=lost)
        why |= {key: (failure, most if lost else Spend()) for key, (_, most) in missing.items()}
        refused = remote.status == "failed" and not lines and not lost
        again = self._again() if self._resumes and not refused else why.keys()
        for key, (failure, charged) in why.items():
            self._tries[key] += not refused
            is_last = key not in again or self._tries[key] >= self._entry.max_attempts
            why[key] = replace(failure, final=failure.final or is_last), charged
        ledgered.give_up(self._ledger, batch, claimed, why, ends=True)
        if refused:
            ledgered.note(self._ledger, batch, remote_status=ledgered.REFUSED)
        if others is not None:
            raise others
        if refused and claimed.keys() & self._calls.keys():
            self._refusal = (
                f"Batch {remote.id} of model {batch.model!r} failed at its provider{said}"
            )
        elif why:
            first = next(iter(why.values()))[0].message.rstrip(".")
            self._say(f"Batch {remote.id} left {len(why):,} of its calls unanswered: {first}.")
        for key, (failure, charged) in why.items():
            total = self._counters.total
            total.maybe_paid += failure.maybe_paid
            total.maybe_paid_usd += charged.usd
            if key in self._calls and failure.final:
                total.words = failure.message
                self._ended(key, "failed", None)

    async def _judge(self, reply: Reply, reserve: Spend) -> Answered | Failure:
        """Return the outcome of one line, or why it brought none."""
        call = self._calls.get(reply.key)
        if reply.status != 200:
            error = self._provider.error_of(reply.status or 500, reply.body)
            if isinstance(error, RejectedError):
                if error.why in ("context_overflow", "content_filter"):
                    outcome = unanswered(None, str(error), error.why, attempts=1)
                    return self._answered(call, reply.key, outcome, Spend())
                return Failure(error.why, str(error), status=reply.status, final=True)
            final = isinstance(error, ContextCliffError)
            words = str(error) if reply.status else self._provider.reason_of(reply.body)
            return Failure("error_in_batch", words, status=reply.status, final=final)
        own: PromptCount | None = None
        if call is None:  # the study asks it no more; its answer is paid
            size = CallSize(reserve.tokens, reserve.tokens, 0, reserve.tokens)
        else:
            prompt = call.prompt()
            own = await self._engine.count_prompt_tokens(prompt)
            size = self._size(call, prompt, own)
        try:
            given: Any = _Given(reply.body)
            answer = await ask(given, Prompt("chat"), Decoding(size.output_tokens))
        except TransportError as error:
            return Failure(error.kind, str(error), maybe_paid=True)
        price, total = self._entry.price, self._counters.total
        outcome = judge(answer, own, size, price, 1, 0.0)
        at = _answered_at(reply.body, outcome.finished_at)
        # Nobody measured its times.
        outcome = replace(outcome, duration_ms=None, loop_lag_ms=None, finished_at=at)
        total.unchecked_truncation += was_truncated(own, outcome.prompt_tokens) is None
        total.overlong += answer.overlong
        return self._answered(call, reply.key, outcome, charge(outcome, size, price))

    def _answered(
        self, call: PlannedCall | None, key: str, outcome: Outcome, charged: Spend
    ) -> Answered:
        if call is not None:
            self._ended(key, "new", outcome)
        return Answered(key, outcome, charged)


async def _found(provider: BatchInterface, batch: CallBatch) -> RemoteBatch | None:
    """Return the batch at its provider; None if it was not created, or is gone."""
    if batch.file_id is None:
        return None
    if batch.remote_id is not None:
        with suppress(GoneError):
            return await provider.retrieve(batch.remote_id)
    return await provider.find({KEY: batch.owner})


def _free_lost(ledger: Ledger, batch: CallBatch) -> str | None:
    """End a batch that its provider does not have; return why, or None if it may have it yet."""
    reason, is_gone = "it was never created; its calls cost nothing", batch.remote_id is not None
    if is_gone:
        reason = "its provider does not have it any more; its calls stay charged"
    elif batch.file_id is not None:
        begun = datetime.fromisoformat(batch.begun_at)
        if (datetime.now(UTC) - begun).total_seconds() <= SEEN_AFTER_S:
            return None
    claimed = ledgered.open_calls(ledger, batch)
    failure = Failure("no_answer_in_batch", reason, maybe_paid=is_gone)
    why = {key: (failure, most if is_gone else Spend()) for key, (_, most) in claimed.items()}
    ledgered.give_up(ledger, batch, claimed, why, ends=True)
    return reason


def _to_look(entry: ModelEntry) -> EngineSession:
    """Return a session that sends nothing when it starts."""
    quirks = entry.quirks.model_copy(update={"model_list": "omit", "probes": "omit"})
    return EngineSession(entry.model_copy(update={"quirks": quirks, "tokenizer": None}))


def cancel(entry: ModelEntry, ledger: Ledger, batch: CallBatch) -> str:
    """Ask the provider to end an open batch; return its status there.

    What it has answered by then is taken in as always. A batch that the provider does not have is
    ended here (gone), and its calls are free.

    Raises:
        EngineError: the provider cannot be asked, or does not list the batch yet; or another
            process looks after it.
    """
    if not ledgered.hold(ledger, batch):
        raise EngineError(f"Another process looks after batch {batch.name}; end that one first.")

    async def cancelled(provider: BatchInterface) -> str:
        remote = await _found(provider, batch)
        if remote is None:
            if _free_lost(ledger, batch) is None:
                raise TransportError("not_listed", "its provider may not list it yet")
            ledgered.note(ledger, batch, remote_status="cancelled")
            return "gone"
        if not remote.has_ended and remote.status != "cancelling":
            remote = await provider.cancel(remote.id)
        ledgered.note(ledger, batch, remote_id=remote.id, remote_status=remote.status)
        return remote.status

    with _to_look(entry) as session:
        assert isinstance(session.engine, OpenAIEngine)
        try:
            return session.submit(cancelled(session.engine.batches())).result()
        except (RejectedError, TransportError) as error:
            raise EngineError(
                f"Batch {batch.name} of model {entry.name!r} cannot be cancelled ({error}); see "
                "`contextcliff batches list`, and try again."
            ) from error


def has_ended(entry: ModelEntry, batch: CallBatch, within_s: float) -> bool:
    """Ask the provider whether ``batch`` has ended, so that `BatchRun` can go on with it.

    Also true if the provider does not have it, or its id is not recorded, because a process died.

    Raises:
        EngineError: the provider cannot be asked.
        TimeoutError: it did not answer in time.
    """
    if batch.remote_id is None:
        return True
    with _to_look(entry) as session:
        assert isinstance(session.engine, OpenAIEngine)
        looked = session.submit(_found(session.engine.batches(), batch))
        try:
            remote = looked.result(within_s)
        except TransportError as error:
            raise TimeoutError(str(error)) from error
        return remote is None or remote.has_ended


@dataclass(frozen=True, slots=True)
class Reply:
    """A line of a file of results: the call's key, the status of the reply (None: there is none),
    and the body of reply or error."""

    key: str
    status: int | None
    body: dict[str, Any]

    @classmethod
    def read(cls, line: bytes) -> Reply | None:
        """Return the reply in ``line``; None if it is none, because the file was cut perhaps."""
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(row, dict) or not isinstance(key := row.get("custom_id"), str):
            return None
        response, error = row.get("response"), row.get("error")
        if isinstance(response, dict) and isinstance(body := response.get("body"), dict):
            status = response.get("status_code")
            return cls(key, status if isinstance(status, int) else 200, body)
        return cls(key, None, {"error": error if isinstance(error, dict) else {}})


def _answered_at(body: Mapping[str, Any], taken_in_at: str) -> str:
    """Return when the provider says that it answered; the order of the answers tells whether a
    change over time may look like one over length."""
    created = token_count(body.get("created"))
    if created is None or not 0 <= time.time() - created < _OLDEST_S:
        return taken_in_at
    return datetime.fromtimestamp(created, UTC).isoformat(timespec="microseconds")


class _Given:
    """Stands in for an engine where the whole reply is there already."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body

    async def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        if (delta := read_delta(self._body)) is None:
            raise TransportError("bad_answer", "the reply holds no answer", maybe_paid=True)
        ended = delta.finish_reason or (UNKNOWN_FINISH if delta.text else None)
        who = {name: self._body[name] for name in WHO_ANSWERED if self._body.get(name)}
        yield replace(delta, whole=True, finish_reason=ended, extra={**who, ASKED_BY: "batch"})
