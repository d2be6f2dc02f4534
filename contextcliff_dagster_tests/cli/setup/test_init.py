"""`init` and `models add`: both files at the end or neither, and the next command works."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from contextcliff_dagster.cli import main
from contextcliff_dagster.cli.setup import endpoint as endpoint_module
from contextcliff_dagster.cli.setup.endpoint import EndpointOptions, plain_address
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.inference.engines.openai.local_servers import (
    LocalServer,
    find_local_servers,
)
from contextcliff_dagster.inference.models.models_file import load_models
from contextcliff_dagster.studies import load_study
from contextcliff_dagster_tests.support.child_processes import sleeps, wait_until
from contextcliff_dagster_tests.support.files import document_files
from contextcliff_dagster_tests.support.files.folders import library
from contextcliff_dagster_tests.support.servers.dialect_server import DialectServer
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.servers.particular_server import Particular
from contextcliff_dagster_tests.support.terminal import (
    COMMAND,
    assert_one_sentence,
    call,
    on_terminal,
    run,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with 12 documents in `Verträge 合同` and questions on them."""
    folder = tmp_path / "here"
    library(folder / "Verträge 合同", documents=12)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def url() -> Iterator[str]:
    with on_a_thread(DialectServer({"kind": "vllm", "window": 100_000}).handle) as url:
        yield url


DATA = "Verträge 合同"


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {DATA}


def test_options_alone_write_both_files_and_the_study_is_sound(here: Path, url: str) -> None:
    done = call("init", "--base-url", url, "--data", DATA, "--tolerance", "20%", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert files(here) == {"models.yaml", "vertrage.yaml"}
    assert said["model"] == "served"
    assert said["window_tokens"] == 100_000
    assert said["next"].endswith("profile vertrage.yaml")
    entry = load_models()["served"]
    assert (entry.model_id, entry.base_url, entry.window_tokens) == ("served", url, None)
    study = load_study(here / "vertrage.yaml")
    assert study.models == ("served",)
    assert study.analysis.tolerance == 0.2
    assert study.corpus.options == {"path": DATA}
    assert "falls by 20% at most" in (here / "vertrage.yaml").read_text()


def test_the_next_command_measures(here: Path, url: str) -> None:
    done = call("init", "--base-url", url, "--data", DATA, "--json")
    command = json.loads(done.out)["next"].split()
    measured = call(*command[1:])
    assert measured.code == 0, measured.err
    assert "report.html" in measured.out


def test_three_short_questions_show_replies_and_scores_before_anything_is_measured(
    here: Path,
) -> None:
    log = here.parent / "log"
    options = {"kind": "vllm", "window": 100_000, "log": str(log)}
    with on_a_thread(DialectServer(options).handle) as url:
        done = call("init", "--base-url", url, "--data", DATA, "--json")
        calls = log.read_text().count("/chat/completions")
        silent = call("init", "--base-url", url, "--model-id", "served", "--data", DATA,
                      "--no-call", "--name", "other", "--json")  # fmt: skip
        assert log.read_text().count("/chat/completions") == calls
    assert (
        "answers are numbers (12 of 12). The prompt ends with 'Answer with the number" in done.err
    )
    assert "3 calls more" in done.err
    assert calls == 1 + 3
    asked = json.loads(done.out)["asked"]
    assert [one["accepted"] for one in asked] == [["7002"], ["7000"], ["7001"]]  # the shortest
    for one in asked:
        assert (one["reply"], one["score"]) == ("937915", 0)
        assert f"score 0; accepted: {one['accepted'][0]}" in done.err
    assert "none of them counts as right" in done.err
    assert json.loads(silent.out)["asked"] == []


def test_questions_that_get_no_answer_leave_the_study_as_it_is(here: Path) -> None:
    # The first call fits the window, and no document does.
    with on_a_thread(DialectServer({"kind": "vllm", "window": 200}).handle) as url:
        done = call("init", "--base-url", url, "--data", DATA, "--json")
    assert done.code == 0, done.err
    assert "Note: no answers to them" in done.err
    assert json.loads(done.out)["asked"] == []
    assert files(here) == {"models.yaml", "vertrage.yaml"}


def test_what_is_missing_is_one_sentence(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = [LocalServer("http://127.0.0.1:11434/v1", "ollama", "Ollama", ("m",))]

    async def found(ports: object = None) -> list[LocalServer]:
        return running

    monkeypatch.setattr(endpoint_module, "_found", found)
    assert_one_sentence(call("init"), "--data", "--preset", "--base-url")
    assert_one_sentence(
        call("init", "--data", DATA), "--preset NAME", "Ollama (--preset ollama)", "--base-url"
    )
    assert_one_sentence(call("models", "add"), "--preset")
    assert_one_sentence(call("init", "--data", "nowhere", "--preset", "ollama"), "nowhere")
    assert files(here) == set()


@pytest.mark.parametrize(
    ("fault", "words"),
    [("401", "asks for a key"), ("html", "--base-url"), ("404", "--base-url")],
)
def test_a_faulty_endpoint_leaves_nothing_behind(here: Path, fault: str, words: str) -> None:
    options = {"kind": "plain", "faults": {"*": [fault, "always"]}}
    with on_a_thread(DialectServer(options).handle) as url:
        done = call("init", "--base-url", url, "--model-id", "x", "--data", DATA)
    assert_one_sentence_after_the_call(done.err, done.code, words)
    assert files(here) == set()


def assert_one_sentence_after_the_call(err: str, code: int, *words: str) -> None:
    *before, last = err.strip().splitlines()
    assert code == 2, err
    assert all(line.startswith(("One small call", "Note:")) for line in before), err
    for word in words:
        assert word in last, err


def test_an_endpoint_that_hangs_leaves_nothing_behind(here: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    with on_a_thread(silent) as url:
        done = call(
            "init", "--base-url", url, "--model-id", "x", "--data", DATA, "--timeout", "0.3"
        )
    assert_one_sentence_after_the_call(done.err, done.code, "within 0.3 s", "--timeout")
    assert files(here) == set()


def test_a_key_is_taken_from_its_variable_and_from_nowhere_else(
    here: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-proj-abcdefghijklmnop0123456789"
    done = call("models", "add", "--preset", "openai", "--model-id", "gpt-4o-mini")
    assert_one_sentence(done, "OPENAI_API_KEY", "not set")
    for args in (
        ("--base-url", url, "--api-key-env", secret),
        ("--base-url", f"http://user:{secret}@127.0.0.1/v1"),
        ("--base-url", f"http://127.0.0.1/v1?key={secret}"),
    ):
        done = call("models", "add", *args)
        assert_one_sentence(done, "variable")
        assert secret not in done.err + done.out
    monkeypatch.setenv("MY_KEY", secret)
    done = call("models", "add", "mine", "--base-url", url, "--api-key-env", "MY_KEY")
    assert done.code == 0, done.err
    text = (here / "models.yaml").read_text()
    assert "api_key_env: MY_KEY" in text
    assert secret not in text + done.out + done.err


def test_a_taken_name_is_refused_and_the_same_again_is_not(here: Path, url: str) -> None:
    (here / "models.yaml").write_text("models:\n  a: {engine: reference}   # mine\n")
    taken = call("models", "add", "a", "--base-url", url)
    assert taken.code == 2
    assert "'a' already" in taken.err
    assert (here / "models.yaml").read_text() == "models:\n  a: {engine: reference}   # mine\n"
    assert call("models", "add", "b", "--base-url", url).code == 0
    again = (here / "models.yaml").read_text()
    once_more = call("models", "add", "b", "--base-url", url)
    assert once_more.code == 0
    assert "Unchanged: model b in" in once_more.out
    assert (here / "models.yaml").read_text() == again
    assert again.startswith("models:\n  a: {engine: reference}   # mine\n")
    assert call("init", "--model", "b", "--data", DATA, "--name", "mine").code == 0
    done = call("init", "--model", "b", "--data", DATA, "--name", "mine")
    assert_one_sentence(done, "mine.yaml", "already")
    assert_one_sentence(call("init", "--model", "b", "--data", DATA, "--name", "reference"), "name")
    assert_one_sentence(call("init", "--model", "b", "--data", DATA, "--name", "Ü"), "letters")


def test_any_other_key_of_the_entry_is_set_and_the_same_again_is_the_same_entry(
    here: Path, url: str
) -> None:
    keys = ("--set", "quirks.top_k=omit", "--set", "reasoning_effort=low")
    command = ("init", "--base-url", url, "--model-id", "served", "--data", DATA, "--no-call")
    assert call(*command, *keys).code == 0
    entry = load_models()["served"]
    assert (entry.quirks.top_k, entry.quirks.seed, entry.reasoning_effort) == (
        "omit",
        "send",
        "low",
    )
    again = call(*command, *keys)
    assert "served. It is used as it is" in again.err
    other = call(*command, "--set", "quirks.seed=omit")
    assert other.code == 0, other.err
    assert load_models()["served-server"].quirks.seed == "omit"
    assert_one_sentence(call(*command[:1], "--model", "served", "--data", DATA, *keys), "--set is")
    assert_one_sentence(
        call(*command, "--set", "extra_body.seed=1"), "extra_body", "study's prompt"
    )


def test_init_again_takes_the_entry_that_is_there(here: Path, url: str) -> None:
    first = call("init", "--base-url", url, "--data", DATA, "--no-call", "--model-id", "served")
    assert first.code == 0, first.err
    before = (here / "models.yaml").read_text()
    again = call("init", "--base-url", url, "--data", DATA)
    assert again.code == 0, again.err
    assert "served. It is used as it is" in again.err
    assert (here / "models.yaml").read_text() == before
    assert load_study(here / "vertrage-2.yaml").models == ("served",)
    other = call("init", "--base-url", url, "--data", DATA, "--window-tokens", "4096")
    assert other.code == 0, other.err
    assert load_study(here / "vertrage-3.yaml").models == ("served-server",)


def test_a_broken_models_file_is_named_with_its_line(here: Path, url: str) -> None:
    (here / "models.yaml").write_text("models:\n  a: {engine: steam}\n")
    done = call("init", "--base-url", url, "--data", DATA)
    assert_one_sentence(done, "models.yaml, line 2")
    assert files(here) == {"models.yaml"}


def test_a_study_that_cannot_be_written_takes_the_model_back(
    here: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "link", refuse)
    done = call("init", "--base-url", url, "--data", DATA)
    assert_one_sentence_after_the_call("\n".join(done.err.splitlines()[:1]), 2)
    assert "Read-only file system" in done.err
    assert done.code == 2
    assert files(here) == set()


def test_documents_without_questions_are_offered_recall(here: Path, url: str) -> None:
    (here / DATA / "questions.csv").unlink()
    done = call("init", "--base-url", url, "--data", DATA)
    assert done.code == 2
    assert "--questions recall" in done.err
    assert files(here) == set()
    done = call("init", "--base-url", url, "--data", DATA, "--yes")
    assert done.code == 0, done.err
    assert "copying, not understanding" in done.err
    study = load_study(here / "vertrage.yaml")
    assert study.corpus.options["questions"] == "recall"
    assert study.scoring.primary == "contained"


def test_too_few_documents_are_refused_before_anything_is_written(here: Path, url: str) -> None:
    few = here / "few"
    few.mkdir()
    (few / "a.txt").write_text("one " * 100)
    done = call("init", "--base-url", url, "--data", "few", "--questions", "recall")
    assert done.code == 2
    assert "at least 5" in done.err
    assert files(here) == {"few"}


def test_a_model_that_thinks_gets_room_for_it_and_quirks_are_found(here: Path) -> None:
    server = Particular(("temperature",), reasoning=50)
    with on_a_thread(server.handle) as url:
        done = call("init", "--base-url", url, "--model-id", "m", "--data", DATA, "--name", "s")
    assert done.code == 0, done.err
    assert "takes no temperature" in done.err
    assert load_models()["m"].quirks.temperature == "omit"
    assert load_models()["m"].window_tokens == 131072
    assert load_study(here / "s.yaml").prompt.max_output_tokens == 4096


def test_the_window_with_which_a_model_is_loaded_is_written(here: Path) -> None:
    with on_a_thread(DialectServer({"kind": "ollama", "window": 4096}).handle) as url:
        done = call(
            "init", "--preset", "ollama", "--base-url", url, "--model-id", "served", "--data", DATA
        )
    assert done.code == 0, done.err
    entry = yaml.safe_load((here / "models.yaml").read_text())["models"]["served"]
    assert entry["window_tokens"] == 4096
    assert entry["concurrency"] == 1
    assert "OLLAMA_CONTEXT_LENGTH" in (here / "models.yaml").read_text()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("https://h/v1/chat/completions", "https://h/v1"),
        ("https://h/api/v1/models/", "https://h/api/v1"),
        ("${URL:-http://h/v1}", "${URL:-http://h/v1}"),
    ],
)
def test_addresses_as_people_copy_them(given: str, meant: str) -> None:
    assert plain_address(given) == meant


@pytest.mark.parametrize("given", ["", "http://", "ftp://h/v1", "http://h:0/v1"])
def test_what_is_no_address_is_one_sentence(given: str) -> None:
    with pytest.raises(StudyError, match="not an address"):
        plain_address(given)


def test_two_at_once_are_both_there_or_one_of_a_name(here: Path, url: str) -> None:
    done: list[int] = []

    def add(name: str) -> None:
        args = ("init", "--base-url", url, "--data", DATA, "--model", name, "--name", "same")
        done.append(run(*args, cwd=here).code)

    threads = [threading.Thread(target=add, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 2], "one name of a study is given once"
    models = yaml.safe_load((here / "models.yaml").read_text())["models"]
    (winner,) = load_study(here / "same.yaml").models
    assert set(models) == {winner}
    assert files(here) == {"models.yaml", "same.yaml"}


def test_scans_are_called_so(here: Path) -> None:
    folder = here / "scans"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.pdf").write_bytes(document_files.pdf([[]] * (number + 1)))
    line = ("init", "--data", "scans", "--questions", "recall", "--model", "reference-short")
    ended = call(*line, "--yes")
    assert ended.code == 2
    assert (
        "PDF files without text, perhaps scans: 6 of 6 looked at, such as 0.pdf. Recognise"
        in ended.err
    )
    for number in range(12):
        text = f"Note {number}: " + " ".join(f"line {k} of it has no twin." for k in range(40))
        (folder / f"{number}.txt").write_text(text * (1 + number))
    ended = call(*line, "--yes", "--name", "some")
    assert ended.code == 0, ended
    assert "Note: PDF files without text, perhaps scans: 6 of 6 looked at" in ended.err


def test_on_a_terminal_it_asks(here: Path, url: str) -> None:
    (here / "few").mkdir()
    (here / "few" / "one.txt").write_text("A text. " * 99)
    keys = f"no name\nmine\nnowhere\nfew\n\n{DATA}\nx\n2\n3\n\n"
    done = on_terminal("init", "--base-url", url, typed=keys)
    assert done.code == 0, done.err
    for words in (
        "Name of the model in models.yaml [served]",
        "'no name' cannot be the name of a model",
        "There is no file or folder nowhere",
        "few has 1 document to ask about",
        "type a number from 1 to 3",
        "at least 80%",
        "12 documents, 2 bins",
        "30%: up to 3 of 10 right answers lost",
        "Name of the study [vertrage]",
    ):
        assert words in done.err
    analysis = load_study(here / "vertrage.yaml").analysis
    assert (analysis.tolerance, analysis.min_score) == (0.2, 0.8)
    assert "mine" in load_models()


def test_the_servers_of_this_machine_are_offered_first(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def found(ports: object = None) -> list[LocalServer]:
        return [LocalServer(url, "vllm", "vLLM", ("served",))]

    monkeypatch.setattr(endpoint_module, "_found", found)
    monkeypatch.setattr(endpoint_module, "choose", lambda *given: 0)
    chosen = endpoint_module.chosen_endpoint(EndpointOptions(), asking=True)
    assert (chosen.preset, chosen.base_url) == ("vllm", url)


def test_an_address_may_be_typed_where_endpoints_are_offered(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(ports: object = None) -> list[LocalServer]:
        return []

    monkeypatch.setattr(endpoint_module, "_found", found)
    monkeypatch.setattr(
        endpoint_module.click, "prompt", lambda *_, value_proc, **__: value_proc(f" {url} ")
    )
    chosen = endpoint_module.chosen_endpoint(EndpointOptions(), asking=True)
    assert (chosen.preset, chosen.base_url) == (None, url)


@pytest.mark.parametrize("typed", [True, False])
def test_a_server_of_this_machine_that_wants_a_key_is_asked_for_its_variable(
    monkeypatch: pytest.MonkeyPatch, typed: bool
) -> None:
    async def found(ports: object = None) -> list[LocalServer]:
        return await find_local_servers([urlsplit(url).port or 0])

    monkeypatch.setenv("MY_KEY", "secret")
    monkeypatch.setattr(endpoint_module, "_found", found)
    monkeypatch.setattr(endpoint_module, "choose", lambda *given: 0)
    monkeypatch.setattr(endpoint_module, "asked_variable", lambda: "MY_KEY")
    options = {"kind": "plain", "faults": {"*": ["401", "always"]}}
    with on_a_thread(DialectServer(options).handle) as url:
        given = EndpointOptions(base_url=url) if typed else EndpointOptions()
        chosen = endpoint_module.chosen_endpoint(given, asking=True)
        assert chosen.api_key_env == "MY_KEY"
        unasked = endpoint_module.chosen_endpoint(EndpointOptions(base_url=url), asking=False)
        assert unasked.api_key_env is None


def test_ctrl_c_at_a_question_says_that_nothing_was_written(here: Path, url: str) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "init", "--base-url", url],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs)
    screen = b""
    while not screen.rstrip().endswith(b"]:"):
        screen += os.read(ours, 4096)
    wait_until(lambda: sleeps(process.pid))  # a signal just before a read waits for its end
    process.send_signal(signal.SIGINT)
    with suppress(OSError):  # the other end is closed
        while part := os.read(ours, 4096):
            screen += part
    os.close(ours)
    assert process.wait(120) == 130
    assert b"no file was changed" in screen
    assert files(here) == set()


def test_the_listing_is_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    assert "reference-short" in capsys.readouterr().out
    assert main(["models", "add", "--help"]) == 0
    assert "--preset" in capsys.readouterr().out


def test_what_is_known_of_a_model_says_which_lengths_to_sample(here: Path, url: str) -> None:
    asked = "init", "--base-url", url, "--data", DATA, "--no-call", "--model-id"
    known = call(*asked, "openai/gpt-4-1106-preview", "--name", "known")
    assert known.code == 0, known.err
    assert "put the midpoint of this model's drop at 20,000 tokens, by task: sample" in known.err
    other = call(*asked, "gpt-4-1106-preview-mini", "--name", "other")
    assert "midpoint" not in other.err
