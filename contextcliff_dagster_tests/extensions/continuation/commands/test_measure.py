"""`contextcliff continuation TEXT`: from options to a study, its model, and its report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.cli.errors import shown_arguments
from contextcliff_dagster.extensions.continuation import documents
from contextcliff_dagster.extensions.continuation import made_study as made
from contextcliff_dagster.extensions.continuation.experiment import CONTINUATION
from contextcliff_dagster.extensions.continuation.made_study import KEY_VARIABLES, made_study
from contextcliff_dagster.inference.models.models_file import get_model, load_models
from contextcliff_dagster.studies import load_studies
from contextcliff_dagster_tests.extensions.continuation.test_experiment import novel
from contextcliff_dagster_tests.support.records.calls import read_log
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.dialect_server import DialectServer
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread

SMALL = ("--start-context", "512", "--max-tokens", "64", "--rounds", "1", "--passages", "1")
KEY = "canary-5d2e8b41f0"
Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contextcliff_home: Path) -> Path:
    """A working folder with a text, and no key in the environment."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "novel.txt").write_text(novel(0, sentences=300), encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


@pytest.fixture
def url(log: Path) -> Iterator[str]:
    server = DialectServer({"kind": "koboldcpp", "window": 1024, "log": str(log)})
    with on_a_thread(server.handle) as url:
        yield url.removesuffix("/v1")


def run(*options: str) -> int:
    return main(["continuation", "novel.txt", *SMALL, *options])


def test_options_are_keys_of_the_section(here: Path) -> None:
    keys = {"max_context": "4k", "temperature": 0.5, "top_p": 0.9, "divisions": 1}
    entries = [get_model("writer-human")]
    study = made_study([Path("novel.txt")], keys, entries)
    section = study.sections["continuation"]
    assert section.sizes == (2048, 2896, 4096)
    assert (section.temperature, section.top_p) == ((0.5,), 0.9)
    assert (section.rounds, section.max_tokens, section.top_k) == (10, 1024, 100)
    assert section.texts == (str(here / "novel.txt"),)
    others = [{**keys, "seed": 5}, {**keys, "max_context": "8k"}]
    names = {made_study([Path("novel.txt")], one, entries).name for one in (keys, *others)}
    assert len(names) == 3
    assert study.name.startswith("continuation-novel-")
    assert made_study([Path("novel.txt")], {**keys, "max_context": 4096}, entries).name in names


def test_a_server_gives_model_window_and_tokenizer_and_its_key_is_kept_nowhere(
    here: Path, url: str, log: Path, contextcliff_home: Path, capsys: Capsys
) -> None:
    assert run("--api-url", url, "--api-password", KEY, "--model-id", "tuned", "--temp", ".7") == 0
    asked = [one["options"] for one in read_log(log) if one["path"].endswith("/completions")]
    assert len(asked) == 2
    assert all((one["temperature"], one["top_k"], one["top_p"]) == (0.7, 100, 1) for one in asked)
    assert all(one["headers"]["authorization"] == f"Bearer {KEY}" for one in read_log(log))
    study = load_studies()["tuned"]
    name = f"koboldcpp/served@{url.removeprefix('http://')}"
    assert study.models == (name,)
    assert study.tokenizer == f"server:{name}"
    assert study.sections["continuation"].max_context == 1024 - 128
    assert load_models()[name].window_tokens == 1024
    for file in (*contextcliff_home.rglob("*"), *here.rglob("*")):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file
    assert run("--api-url", url, "--api-password", KEY, "--model-id", "tuned") == 2
    out, err = capsys.readouterr()
    assert "a study of this name with other options exists" in err
    assert KEY not in out + err
    assert main(["report", "tuned"]) == 0
    capsys.readouterr()
    assert main(["answers", "tuned"]) == 0
    out = capsys.readouterr().out
    assert "2 answers, 0 scored, 2 failed" in out
    assert "right" not in out


def test_keys_of_an_entry_reach_the_model_at_an_address(here: Path, url: str, log: Path) -> None:
    keys = ("--set", "quirks.seed=omit", "--set", "chat_template_kwargs.enable_thinking=false",
            "--set", "extra_body={top_n: 3}", "--set", "reasoning_effort=low")  # fmt: skip
    assert run("--api-url", url, "--model-id", "plain") == 0
    assert run("--api-url", url, "--model-id", "set", "--top-k", "7", *keys) == 0
    asked = [one["options"] for one in read_log(log) if one["path"].endswith("/completions")]
    plain, changed = asked[:2], asked[2:]
    assert [("seed" in one, "top_n" in one) for one in plain] == [(True, False)] * 2
    assert [("seed" in one, one["top_k"], one["top_n"]) for one in changed] == [(False, 7, 3)] * 2
    assert {one["reasoning_effort"] for one in changed} == {"low"}
    # Asked otherwise it is another model: neither's answers are taken for the other's.
    names = [load_studies()[name].models[0] for name in ("plain", "set")]
    assert [load_models()[name].reasoning_effort for name in names] == [None, "low"]


def test_a_model_of_embeddings_that_is_named_is_the_servers(
    here: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert run("--api-url", url, "--embedding-model", "tiny", "--model-id", "coherent") == 0
    asked = load_studies()["coherent"].sections["continuation"].embeddings
    assert (asked.base_url, asked.model, asked.api_key_env) == (
        *(f"{url}/v1", "tiny"),
        "OPENAI_API_KEY",
    )


def test_a_dry_run_prices_and_keeps_nothing(
    here: Path, url: str, log: Path, contextcliff_home: Path, capsys: Capsys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NVAPI_KEY", "last")
    monkeypatch.setenv("API_PASSWORD", KEY)
    assert run("--api-url", url, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["estimate"]["calls"] == 2
    assert {one["headers"]["authorization"] for one in read_log(log)} == {f"Bearer {KEY}"}
    assert not any(one["path"].endswith("/completions") for one in read_log(log))
    assert not (contextcliff_home / "_models.yaml").exists()
    assert not list(contextcliff_home.glob("continuation*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "either --model NAME or --api-url"),
        (("--model", "writer-human", "--api-url", "http://127.0.0.1:9"), "Which model?"),
        (("--model", "nosuch"), "There is no model 'nosuch'"),
        (("--model", "writer-human", "--model-name", "m"), "--model-name goes with --api-url"),
        (("--model", "writer-human", "--embedding-model", "m"), "--embedding-model goes with"),
        (("--model", "writer-human", "--set", "a=1"), "--set goes with --api-url"),
        (("--api-url", "http://127.0.0.1:9", "--set", "seed"), "'seed' is not KEY=VALUE"),
        (("--api-url", "http://127.0.0.1:9", "--set", "a.=1"), "'a.=1' is not KEY=VALUE"),
        (("--api-url", "http://127.0.0.1:9", "--set", "a=1", "--set", "a.b=1"), "not KEY=VALUE"),
        (("--api-url", "http://127.0.0.1:9", "--set", "a=[1"), "'a=[1' is not KEY=VALUE"),
        (("--api-url", "http://127.0.0.1:9", "--set", "engine=vllm"), "engine is decided by"),
        (("--api-url", "http://127.0.0.1:9", "--set", "quirks.top_k=7"), "quirks.top_k"),
        (("--model", "writer-human", "--max-tokens", "2k"), "or lower --max-tokens"),
        (("--model", "writer-human", "--max-context", "x"), "--max-context: 'x' is not a number"),
        (("--model", "writer-human", "--max-context", "0"), "--max-context: '0' is not a number"),
        (
            ("--model", "writer-human", "--temp", "1,,2"),
            "--temp '1,,2' lacks a value; add it",
        ),
        (("--model", "writer-human", "--temp", "nan"), "--temp 'nan': should be a finite number"),
        (("--model", "writer-human", "--temp", "1,1"), "a temperature is listed twice"),
        (("--model", "writer-human", "--max-tokens", "300"), "the smallest window, 512 tokens"),
        (("--model", "writer-human", "--model-id", "A b"), "cannot name a study"),
        (
            ("--model", "writer-human", "--tokenizer-model", "org/name"),
            "'hub:org/name' cannot be loaded",
        ),
        (("--api-url", "http://127.0.0.1:9", "--max-context", "1k"), "127.0.0.1:9"),
        (("--api-url", "http://127.0.0.1:9", "--api-password", f"{KEY}\n"), "not allowed in"),
    ],
)
def test_bad_input_is_one_sentence(
    options: Sequence[str], words: str, here: Path, capsys: Capsys, contextcliff_home: Path
) -> None:
    assert run(*options) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert KEY not in err
    assert not (contextcliff_home / "_models.yaml").exists()


@pytest.mark.parametrize(
    ("server", "largest"),
    [
        ({"kind": "koboldcpp", "window": 1024}, 1024),
        ({"kind": "koboldcpp", "window": 1024}, 2048),
        ({"kind": "plain"}, 1024),
    ],
)
def test_a_size_that_does_not_fit_into_the_window_is_lowered_until_it_can_be_sent(
    server: dict[str, Any], largest: int, here: Path, log: Path, capsys: Capsys
) -> None:
    window = ("--model-name", "served", "--max-context", str(largest), "--model-id", "whole")
    with on_a_thread(DialectServer({**server, "log": str(log)}).handle) as url:
        assert run("--api-url", url, *window) == 0
    section = load_studies()["whole"].sections["continuation"]
    assert section.sizes == (512, 1024 - 128)
    asked = sum(one["path"].endswith("/completions") for one in read_log(log))
    assert asked == len(section.sizes) + (server["kind"] == "plain")  # a word, before the first
    assert f"the largest size is 896 tokens, not {largest:,}" in capsys.readouterr().err


def test_a_study_measured_with_the_whole_window_goes_on_as_it_is(
    here: Path, url: str, log: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> int:
        return sum(one["path"].endswith("/completions") for one in read_log(log))

    for named in ((), ("--model-id", "whole")):
        options = ("--api-url", url, "--max-context", "1k", *named)
        with monkeypatch.context() as earlier:
            for module in (made, documents):  # as before sizes were lowered
                earlier.setattr(module, "LEFT_FOR_TEMPLATE", 0)
            assert run(*options) == 0
        before = asked()
        capsys.readouterr()
        assert run(*options) == 0
        assert "the largest size is" not in capsys.readouterr().err
        assert asked() == before


class Strict(DialectServer):
    """Server that refuses `top_k`, as OpenAI's does."""

    def complete(self, path: str, body: dict[str, Any]) -> bytes:
        if "top_k" in body:
            return wire.error(400, "Unrecognized request argument supplied: top_k")
        return super().complete(path, body)


def test_top_k_that_a_server_refuses_is_left_out_before_the_first_call(
    here: Path, log: Path, capsys: Capsys
) -> None:
    window = ("--model-name", "served", "--max-context", "1k", "--model-id", "strict",
              "--temp", ".5")  # fmt: skip
    with on_a_thread(Strict({"kind": "plain", "log": str(log)}).handle) as url:
        assert run("--api-url", url, *window, "--dry-run") == 0
        assert not [one for one in read_log(log) if one["path"].endswith("/completions")]
        for _ in range(2):
            assert run("--api-url", url, *window) == 0
            assert "the server refuses top_k" in capsys.readouterr().err
        assert run("--api-url", url, *window, "--temp", "3") == 2  # refused before it is asked
    asked = [one["options"] for one in read_log(log) if one["path"].endswith("/completions")]
    assert {one["temperature"] for one in asked} == {0.5}
    assert ["top_k" in one for one in asked] == [True, False, False, False]
    study = load_studies()["strict"]
    assert CONTINUATION.recipe(study).sampling.top_k == 0


def test_a_server_is_asked_for_a_word_once(here: Path, log: Path) -> None:
    window = ("--model-name", "served", "--max-context", "1k")
    with on_a_thread(DialectServer({"kind": "plain", "log": str(log)}).handle) as url:
        asked = []
        for more in ((), (), ("--temp", ".5"), ("--temp", ".5")):
            assert run("--api-url", url, *window, *more) == 0
            paths = [request["path"] for request in read_log(log)]
            asked.append(sum(path.endswith("/completions") for path in paths))
    assert asked == [3, 3, 6, 6]  # a word and two calls for each study


class Cramped(DialectServer):
    """Server that takes fewer tokens than it says."""

    def complete(self, path: str, body: dict[str, Any]) -> bytes:
        if self.count(self.read(body)) > 600:
            return wire.error(400, "This model's maximum context length is 600 tokens.")
        return super().complete(path, body)


@pytest.mark.parametrize("more", [(), ("--compat", "context-tester", "--rounds", "2")])
def test_a_size_that_its_server_refuses_has_a_reason(
    more: tuple[str, ...], here: Path, capsys: Capsys
) -> None:
    with on_a_thread(Cramped({"kind": "koboldcpp", "window": 1024}).handle) as url:
        run("--api-url", url, "--model-id", "cramped", *more)
    capsys.readouterr()
    study = next(name for name in load_studies() if name.startswith("cramped"))
    assert main(["report", study]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"\d of \d calls did not fit the window", out), out


def test_a_window_below_the_smallest_size_is_named(here: Path, capsys: Capsys) -> None:
    with on_a_thread(DialectServer({"kind": "plain"}).handle) as url:
        window = ("--model-name", "served", "--max-context", "512", "--start-context", "512")
        assert run("--api-url", url, *window) == 2
        assert (
            "The largest size, 384 tokens, is below the smallest, 512: the window has 512, of "
            "which 128 are left for a chat template. Lower --start-context."
        ) in capsys.readouterr().err


def test_a_window_that_a_server_does_not_report_is_asked_for(here: Path, capsys: Capsys) -> None:
    with on_a_thread(DialectServer({"kind": "plain"}).handle) as url:
        assert run("--api-url", url, "--model-name", "served") == 2
    assert "does not report the window of served" in capsys.readouterr().err


def test_a_key_is_in_no_command_that_is_shown() -> None:
    assert shown_arguments(["continuation", "--api-password", KEY, "--json"]) == [
        *("continuation", "--api-password", "...", "--json"),
    ]
    assert shown_arguments([f"--api-password={KEY}"]) == ["--api-password=..."]


def test_help_and_no_text_are_of_the_measurement(capsys: Capsys, here: Path) -> None:
    assert main(["continuation", "--help"]) == 0
    assert "contextcliff continuation TEXT" in capsys.readouterr().out
    assert main(["continuation", "--model", "writer-human"]) == 2
    assert "No text is named" in capsys.readouterr().err
    assert main(["continuation", "nosuch.txt", "--model", "writer-human"]) == 2
    assert "There is no text nosuch.txt" in capsys.readouterr().err
