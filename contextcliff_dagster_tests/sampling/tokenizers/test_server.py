"""A server's own count: of the text alone, once a text, and never made up here instead."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer
from contextcliff_dagster.sampling.length_map import build_length_map
from contextcliff_dagster.sampling.tokenizers.server import ServerTokenizer, TokenCounts
from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.inference.engines.openai.test_real_servers import LLAMA_SERVER
from contextcliff_dagster_tests.support.records.calls import dialect_server, read_log, running

KEY = "canary-7f3a9c51d2"
TEXTS = ["one", "two words", "", "fünf 🙂 <|im_end|>", "two words", "half \ud800 a pair"]
FORMS = {"vllm": "vLLM", "llamacpp": "llama.cpp"}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def asked(log: Path) -> list[dict[str, Any]]:
    return [line["options"] for line in read_log(log) if line["path"] == "/tokenize"]


def models_file(folder: Path, monkeypatch: pytest.MonkeyPatch, **entry: Any) -> None:
    path = folder / "models.yaml"
    path.write_text(json.dumps({"models": {"mine": {"engine": "openai", **entry}}}))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(path))


@pytest.mark.parametrize("kind", FORMS)
def test_texts_count_as_the_server_counts_them_each_once(kind: str, tmp_path: Path) -> None:
    local = open_tokenizer("reference")
    log = tmp_path / "log"
    with dialect_server(kind=kind, log=str(log)) as url:
        ours = open_tokenizer(f"server:{url}")
        assert isinstance(ours, ServerTokenizer)
        assert ours.form == FORMS[kind]
        before = len(asked(log))
        assert ours.count_many(TEXTS) == local.count_many(TEXTS)
        assert len(asked(log)) == before + 4  # one is empty, one is there twice
        again = open_tokenizer(f"server:{url}")
        between = len(asked(log))
        assert again.count_many(TEXTS[::-1]) == local.count_many(TEXTS[::-1])
        assert len(asked(log)) == between
    options = asked(log)[-1]
    alone = "add_special_tokens" if kind == "vllm" else "add_special"
    assert options[alone] is False
    assert options["model"] == "served"


def test_the_fingerprint_is_the_models_and_not_the_addresss(tmp_path: Path) -> None:
    with dialect_server(kind="vllm") as one, dialect_server(kind="vllm") as other:
        prints = {open_tokenizer(f"server:{url}").fingerprint for url in (one, other)}
    with dialect_server(kind="llamacpp") as url:
        prints.add(open_tokenizer(f"server:{url}").fingerprint)
    assert len(prints) == 2
    assert all(len(found) == 64 for found in prints)


def test_a_count_is_that_of_one_vocabulary(tmp_path: Path) -> None:
    counts = TokenCounts(tmp_path / "deep" / "counts.sqlite")
    counts.put("one", b"text", 7)
    assert counts.get("one", [b"text", b"other"]) == {b"text": 7}
    assert counts.get("two", [b"text"]) == {}
    many = [bytes([n % 251, n // 251]) for n in range(1_200)]
    for place, digest in enumerate(many):
        counts.put("two", digest, place)
    assert counts.get("two", many) == {digest: place for place, digest in enumerate(many)}


def test_a_damaged_store_of_counts_only_costs_the_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path))
    path = tmp_path / "token_counts.sqlite"
    path.write_bytes(b"no database at all, but long enough to be taken for one" * 20)
    with dialect_server(kind="vllm") as url:
        ours = ServerTokenizer("server:x", url)
        assert ours.count_many(["a b", "c"]) == open_tokenizer("reference").count_many(["a b", "c"])


def test_a_model_of_models_yaml_is_asked_with_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    with dialect_server(kind="vllm", log=str(log)) as url:
        models_file(tmp_path, monkeypatch, base_url=url, model_id="served", api_key_env="MY_KEY")
        with pytest.raises(StudyError, match="environment variable MY_KEY, which is not set"):
            open_any_tokenizer("server:mine")
        monkeypatch.setenv("MY_KEY", KEY)
        ours = open_any_tokenizer("server:mine")
        assert ours.name == "server:mine"
        assert ours.count("two words") == open_tokenizer("reference").count("two words")
        assert KEY not in ours.counted_by  # type: ignore[attr-defined]
    sent = [line["headers"]["authorization"] for line in read_log(log)]
    assert set(sent) == {f"Bearer {KEY}"}


def test_an_address_with_user_and_query_is_used_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    with dialect_server(kind="llamacpp", log=str(log)) as url:
        address = url.replace("http://", f"http://me:{KEY}@") + f"?key={KEY}"
        models_file(tmp_path, monkeypatch, base_url=address, model_id="served")
        with pytest.raises(StudyError) as caught:
            open_any_tokenizer("server:mine")  # this server knows no query, and so has no /tokenize
        assert KEY not in str(caught.value)
    headers = [line["headers"] for line in read_log(log)]
    assert all(sent["authorization"].startswith("Basic ") for sent in headers)
    with pytest.raises(StudyError, match="would show in every report") as caught:
        open_tokenizer(f"server:http://me:{KEY}@127.0.0.1:1/v1")
    assert KEY not in str(caught.value)


def test_a_server_that_hiccups_is_asked_again_and_one_that_is_gone_ends_the_counting() -> None:
    with dialect_server(kind="vllm", faults={"/tokenize": ["503", "reset"]}) as url:
        ours = open_tokenizer(f"server:{url}")
        assert ours.count("two words") == open_tokenizer("reference").count("two words")
    with pytest.raises(StudyError) as caught:
        ours.count("never counted before")
    message = str(caught.value)
    assert "does not answer (ConnectionRefusedError); check that it runs" in message
    assert "run the same command again (its counts are kept)" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"/tokenize": ["404", "always"]}, "does not count tokens (it has no /tokenize"),
        ({"/tokenize": ["html", "always"]}, "does not count tokens"),
        ({"/tokenize": ["list", "always"]}, "does not count tokens"),
        ({"/tokenize": ["garbage", "always"]}, "does not count tokens"),
        ({"*": ["401", "always"]}, "refuses the request (status 401); check its key"),
        ({"*": ["503", "always"]}, "answers with status 503"),
        ({"*": ["redirect", "always"]}, "answers with status 307"),
    ],
)
def test_a_server_without_a_count_is_a_sentence_and_never_a_guess(
    faults: dict[str, list[str]], words: str
) -> None:
    with (
        dialect_server(kind="vllm", faults=faults, redirect="http://127.0.0.1:1/") as url,
        pytest.raises(StudyError) as caught,
    ):
        open_tokenizer(f"server:{url}")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_answer_that_loses_its_tokens_under_way_is_no_count() -> None:
    with dialect_server(kind="llamacpp") as url:
        ours = open_tokenizer(f"server:{url}")
        assert isinstance(ours, ServerTokenizer)
        ours.form = "vLLM"  # llama.cpp answers that with an object that holds no tokens
        with pytest.raises(StudyError, match="answers /tokenize without tokens"):
            ours.count("some text")


def test_an_unknown_server_or_model_names_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models_file(tmp_path, monkeypatch, base_url="http://127.0.0.1:1/v1")
    for name, words in {
        "server:mime": "no server of a model 'mime' (did you mean 'mine'?); models.yaml has",
        "server:reference-short": "(engine 'reference'); give its tokenizer as file:<its "
        "tokenizer.json>; its own is 'reference'",
        "server:http://": "has no host, or no valid port",
        "server:http://h:99999": "has no host, or no valid port",
        "server:http://127.0.0.1:1": "does not answer (ConnectionRefusedError)",
    }.items():
        with pytest.raises(StudyError) as caught:
            open_any_tokenizer(name)
        assert words in str(caught.value)
    with pytest.raises(StudyError, match="elsewhere write server:http://HOST:PORT"):
        open_tokenizer("server:mine")


def test_an_interrupted_length_map_goes_on_where_the_server_stopped(tmp_path: Path) -> None:
    from contextcliff_dagster.corpora.materialize import materialize_corpus
    from contextcliff_dagster.corpora.registry import open_corpus

    folder, log = tmp_path / "corpus", tmp_path / "log"
    materialize_corpus(open_corpus("reference", {"documents": 40, "task": "lookup"}), folder)
    with dialect_server(kind="vllm", log=str(log)) as url:
        tokenizer = open_tokenizer(f"server:{url}")
        build_length_map(folder, tokenizer, tmp_path / "first.parquet")
        first = len(asked(log))
        summary = build_length_map(folder, open_tokenizer(f"server:{url}"), tmp_path / "b.parquet")
        assert len(asked(log)) == first + 1  # the new one's probe
    assert summary.counted_by.startswith("the server at http://127.0.0.1:")
    assert summary.tokenizer_fingerprint == tokenizer.fingerprint
    local = build_length_map(folder, open_tokenizer("reference"), tmp_path / "c.parquet")
    assert (summary.tokens, summary.documents) == (local.tokens, local.documents)
    kept = sqlite3.connect(TokenCounts()._path)
    assert kept.execute("SELECT count(*) FROM counts").fetchone() == (summary.documents,)
    kept.close()


@pytest.mark.local_model
@pytest.mark.timeout(600)
def test_a_llama_cpp_server_counts_what_it_then_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    from contextcliff_dagster.inference.engines.base import Decoding, open_engine
    from contextcliff_dagster.inference.execution.single_request import ask
    from contextcliff_dagster.inference.models.models_file import get_model
    from contextcliff_dagster.inference.requests.recipe import Prompt
    from contextcliff_dagster.inference.weights import find_weights

    weights = find_weights(get_model("smollm2-135m"))
    monkeypatch.setenv("LLAMA_KEY", "for-tests-only")
    texts = ["The sky is blue.", " \n\n two  spaces ü 漢 🙂", "def f(x):\n    return x\n" * 20]
    with running("-c", LLAMA_SERVER, str(weights), "512") as url:
        models_file(tmp_path, monkeypatch, base_url=url, api_key_env="LLAMA_KEY", concurrency=1)

        async def read() -> list[int]:
            engine = open_engine(get_model("mine"))
            await engine.start()
            try:
                told = [
                    (await ask(engine, Prompt("completion", text=text), Decoding(1))).usage
                    for text in texts
                ]
            finally:
                await engine.stop()
            return [usage.prompt_tokens for usage in told if usage is not None]

        ours = open_any_tokenizer("server:mine")
        assert ours.count_many(texts) == asyncio.run(read())  # this model has no token for a start
        assert ours.fingerprint == open_any_tokenizer("server:mine").fingerprint
    assert "(llama.cpp)" in ours.counted_by  # type: ignore[attr-defined]
