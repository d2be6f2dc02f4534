"""`profile --batch` and `batches`: calls are submitted, waited for without a process, taken in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.inference.execution import batches
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.support.servers.batch_server import BatchServer, batch_server
from contextcliff_dagster_tests.support.terminal import Ended, assert_one_sentence, call

STUDY = """\
name: short
corpus: {kind: reference, task: lookup, documents: 60, max_tokens: 200}
tokenizer: reference
bins: {count: 3}
sampling: {samples_per_bin: 4, pilot_per_bin: 2}
prompt: {max_output_tokens: 12}
models: [priced]
analysis: {resamples: 100}
"""
MODEL = """\
models:
  priced:
    engine: openai
    model_id: reference-short
    base_url: %s
    window_tokens: 8192
    price: {input_usd_per_mtok: 1000, output_usd_per_mtok: 1000}
    batch: %s
"""
CALLS = 12
Profile = Callable[..., Ended]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchServer]:
    """A provider whose batches go on by `BatchServer.advance` alone."""
    monkeypatch.setattr(batches, "FIRST_POLL_S", 0.0)
    with batch_server(tmp_path / "provider") as server:
        yield server


@pytest.fixture
def models(tmp_path: Path, server: BatchServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    (tmp_path / "models.yaml").write_text(MODEL % (server.url, "{discount: .5}"))
    return tmp_path / "models.yaml"


@pytest.fixture
def profile(tmp_path: Path, models: Path) -> Profile:
    (tmp_path / "short.yaml").write_text(STUDY)
    return lambda *options: call("profile", str(tmp_path / "short.yaml"), "--yes", *options)


def spent(home: Path) -> float:
    with open_ledger(Store(home)) as ledger:
        return ledger.stats()["spent_usd"]


def test_calls_are_submitted_and_their_answers_taken_in(
    profile: Profile, server: BatchServer, contextcliff_home: Path
) -> None:
    submitted = profile("--batch", "--json")
    assert submitted.code == 0, submitted.err
    assert json.loads(submitted.out)["waiting"] == {"priced": CALLS}
    assert "come back: `contextcliff profile" in (said := profile("--batch").out)
    assert said.endswith("short.yaml --yes --batch`.\n")
    (listed,) = json.loads(call("batches", "list", "--json").out)
    assert (listed["waiting"], listed["remote_status"]) == (CALLS, "validating")

    server.advance(3)
    done = profile("--batch", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert (result["calls"]["priced"]["answered"], result["cliffs"][0]["n"]) == (CALLS, CALLS)
    assert len(server.bills()) == CALLS
    tokens = sum(bill["prompt_tokens"] + bill["completion_tokens"] for bill in server.bills())
    assert spent(contextcliff_home) == pytest.approx(tokens * 1000e-6 / 2)  # half the price
    page = (Store(contextcliff_home).report_dir("short", result["campaign"])) / "report.md"
    assert "not measured (batch)" in page.read_text("utf-8")
    assert f"for {CALLS} of {CALLS} calls." in page.read_text("utf-8")


def test_an_estimate_shows_both_prices(profile: Profile, server: BatchServer) -> None:
    streamed = json.loads(profile("--dry-run", "--json").out)["estimate"]
    batched = json.loads(profile("--dry-run", "--batch", "--json").out)["estimate"]
    assert streamed["usd"] == streamed["usd_streamed"] == batched["usd_streamed"] > 0
    assert batched["usd"] == streamed["usd_in_batches"] == pytest.approx(streamed["usd"] / 2)
    assert batched["usd_at_most"] == pytest.approx(streamed["usd_at_most"] / 2)
    assert "in batches (about $" in profile("--dry-run", "--batch").out
    assert "streamed (about $" in profile("--dry-run").out
    assert not server.batches()


def test_one_command_waits(profile: Profile, server: BatchServer) -> None:
    server.polls_a_step = 1
    assert json.loads(profile("--batch", "--wait", "--json").out)["cliffs"][0]["n"] == CALLS


def test_batch_answers_are_another_model_s_unless_they_are_pooled(
    profile: Profile, server: BatchServer, models: Path
) -> None:
    profile("--batch")
    streamed = profile()
    assert streamed.code == 2
    assert_one_sentence(streamed, "the other way, streamed or in batches")
    assert not server.bills()
    models.write_text(MODEL % (server.url, "{discount: .5, pool_batch: true}"))
    server.faults["expired"] = 1
    server.advance(2)
    assert profile("--batch").code == 0  # half of them, and the rest is submitted again
    with open_ledger(Store.default()) as ledger:
        assert 0 < ledger.stats()["answers"] < CALLS
    call("batches", "cancel", json.loads(call("batches", "list", "--json").out)[-1]["owner"])
    server.advance(1)
    assert call("batches", "resume").code == 0
    assert json.loads(profile("--json").out)["cliffs"][0]["n"] == CALLS


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--batch", "--ttft-limit", "100ms"], "cannot be judged; leave it out"),
        (["--batch", "--sentinel"], "--sentinel measures"),
        (["--wait"], "--wait waits for the answers of batches"),
    ],
)
def test_what_no_batch_has_is_refused(profile: Profile, options: list[str], says: str) -> None:
    ended = profile(*options)
    assert ended.code == 2
    assert says in " ".join(ended.err.split())


def test_a_model_without_batches_is_refused(
    profile: Profile, server: BatchServer, models: Path
) -> None:
    models.write_text((MODEL % (server.url, "{}")).replace("    batch: {}\n", ""))
    ended = profile("--batch")
    assert ended.code == 2
    assert_one_sentence(ended, "add `batch: {discount: 0.5}`")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("failed", "failed at its provider: token_limit_exceeded: Too many tokens"),
        ("create_400", "its provider refuses the batch"),
    ],
)
def test_a_batch_that_the_provider_refuses_is_not_sent_again_and_gives_no_report(
    profile: Profile, server: BatchServer, fault: str, says: str
) -> None:
    server.polls_a_step, server.faults[fault] = 1, 9
    ended = profile("--batch", "--wait")
    assert ended.code == 2
    assert says in " ".join(ended.err.split())
    assert "correct what it names" in ended.err
    assert "FAILURE RISK REPORT" not in ended.out
    assert server.count("POST", "/batches") == 1
    server.faults.clear()
    assert json.loads(profile("--batch", "--wait", "--json").out)["cliffs"][0]["n"] == CALLS
    assert len(server.bills()) == CALLS


def test_after_a_refusal_resume_names_the_command_that_goes_on(
    profile: Profile, server: BatchServer
) -> None:
    profile("--batch")
    server.faults["failed"] = 1
    server.advance(1)
    resumed = call("batches", "resume")
    assert resumed.code == 2
    assert "and run `contextcliff profile short --batch`" in " ".join(resumed.err.split())
    assert f"{CALLS} calls of campaign" in profile("--batch").out


def test_a_refused_batch_of_calls_that_are_not_asked_any_more_fails_nothing(
    profile: Profile, server: BatchServer, tmp_path: Path
) -> None:
    profile("--batch")
    server.faults["failed"] = 1
    server.advance(1)
    study = tmp_path / "short.yaml"
    study.write_text(study.read_text().replace("max_output_tokens: 12", "max_output_tokens: 13"))
    profile("--batch")
    server.advance(3)
    done = json.loads(profile("--batch", "--json").out)
    assert (done["cliffs"][0]["n"], done["calls"]["priced"]["batched"]) == (CALLS, True)


def test_what_waits_is_said_wherever_it_is_missing(
    profile: Profile, server: BatchServer, contextcliff_home: Path
) -> None:
    profile("--batch")
    assert "is answered or waits in a batch" in profile("--batch", "--dry-run").out
    reported = call("report", "short")
    assert reported.code == 2
    assert_one_sentence(reported, "later run `contextcliff batches resume short`")
    assert "No batch of study 'shorts'" in call("batches", "list", "shorts").out
    assert "No batch of study 'shorts' is open" in call("batches", "resume", "shorts").err


def test_a_round_is_a_batch(profile: Profile, server: BatchServer) -> None:
    rounds = ("--batch", "--pilot", "2", "--until", "5%", "--round", "3")
    for number in (1, 2):
        ended = profile(*rounds)
        assert ended.code == 0, ended.err
        if "come back" not in ended.out:
            break
        assert len(server.batches()) == number
        server.advance(3)
    assert len(server.bills()) == len({bill["custom_id"] for bill in server.bills()}) >= 6


def test_a_cancelled_batch_is_asked_again_where_its_user_says_so(
    profile: Profile, server: BatchServer
) -> None:
    profile("--batch")
    (listed,) = json.loads(call("batches", "list", "--json").out)
    for _ in range(2):
        cancelled = call("batches", "cancel", listed["remote_id"])
        assert (cancelled.code, "is cancelling" in cancelled.out) == (0, True), cancelled.err
    server.advance(1)
    resumed = call("batches", "resume", "short")
    assert resumed.code == 0, resumed.err
    assert f"left {CALLS // 2} of its calls unanswered" in resumed.err  # half of them were answered
    assert f"{CALLS // 2} answers taken in" in resumed.out
    assert "`contextcliff profile short --batch` tries again" in resumed.out
    page = next(Path(line[8:].strip()) for line in resumed.out.splitlines() if "Report:" in line)
    unanswered = page.with_name("report.md").read_text("utf-8").partition("What was not")[2]
    assert f"{CALLS // 2} transport_error" in unanswered
    assert len(server.batches()) == 1
    assert f"{CALLS // 2} calls of campaign" in profile("--batch").out
    again = call("batches", "cancel", listed["owner"])
    assert again.code == 2
    assert_one_sentence(again, "has ended already")
    (waiting,) = json.loads(call("batches", "resume", "--json").out)
    assert waiting["waiting"] == {"priced": CALLS // 2}
    server.advance(3)
    (reported,) = json.loads(call("batches", "resume", "--json").out)
    assert reported["calls"]["priced"]["answered"] == CALLS // 2
    assert json.loads(profile("--json").out)["calls"]["priced"]["sent"] == 0
    assert "No batch is open." in call("batches", "resume").err


def test_calls_that_the_study_asks_no_more_are_taken_in_and_their_batch_ends(
    profile: Profile, server: BatchServer, tmp_path: Path
) -> None:
    profile("--batch")
    server.advance(3)
    study = tmp_path / "short.yaml"
    study.write_text(study.read_text().replace("max_output_tokens: 12", "max_output_tokens: 13"))
    profile("--batch")
    call("batches", "resume")
    (paid, waiting) = json.loads(call("batches", "list", "--json").out)
    assert paid["ended_at"] is not None
    assert waiting["waiting"] == CALLS


def test_a_sentinel_is_answered_at_once(
    profile: Profile, server: BatchServer, tmp_path: Path
) -> None:
    def right(prompt: str) -> str:
        asked = re.findall(r"Find (SKU-\d+)\?", prompt)[-1]
        return next(iter(re.findall(rf"{asked} \w+=(\d+)", prompt)), "?")

    server.answer, server.polls_a_step = right, 1
    study = tmp_path / "short.yaml"
    written = study.read_text().replace("samples_per_bin: 4", "samples_per_bin: 20")
    study.write_text(f"{written}calls: {{batch: true}}\n")
    assert profile("--wait").code == 0
    assert call("baseline", "set", "short").code == 0
    asked = len(server.batches())
    watched = profile("--sentinel", "--samples-per-bin", "12")
    assert watched.code == 0, watched.err
    assert "is not worse" in watched.out
    assert len(server.batches()) == asked


def test_resume_asks_only_what_its_batch_was_asked(profile: Profile, server: BatchServer) -> None:
    profile("--batch", "--samples-per-bin", "2")
    server.faults["expired"] = 1
    server.advance(3)
    for _ in range(3):
        call("batches", "resume")
        server.advance(3)
    assert len(server.bills()) == 6
