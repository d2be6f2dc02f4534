"""Tokenizers of a model hub: fetched once, by the token that opens them, which nobody is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster.sampling.tokenizers import tokenizers
from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.support.servers.model_hub import model_hub

TOKEN = "hf_canary7f3a9c51d2"
CONTENT = (weights_path("reference-short") / "tokenizer.json").read_bytes()
FILES = {
    f"/{place}/tokenizer.json": CONTENT
    for place in (
        *("org/model/resolve/main", "org/model/resolve/v1", "gated/model/resolve/main"),
        *("private/model/resolve/main", "gpt2/resolve/main"),
    )
} | {"/broken/model/resolve/main/tokenizer.json": b"{", "/org/bare/resolve/main/x": b""}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with model_hub(FILES, TOKEN) as (url, log):
        point_at(url, monkeypatch)
        yield log


def point_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `HF_ENDPOINT` does for a process that starts."""
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


def is_fetched(line: str) -> bool:
    return line.startswith("GET") and line.endswith("tokenizer.json")


@pytest.mark.parametrize("name", ["hub:org/model", "hub:org/model@v1", "hub:gpt2"])
def test_it_is_fetched_once_and_counts(name: str, asked: list[str]) -> None:
    ours, reference = open_tokenizer(name), open_tokenizer("reference")
    assert ours.count("Twelve boats lay in the harbour.") == reference.count(
        "Twelve boats lay in the harbour."
    )
    assert ours.fingerprint == reference.fingerprint
    before = len(asked)
    assert sum(is_fetched(line) for line in asked) == 1
    open_tokenizer(name)
    assert len(asked) == before


@pytest.mark.parametrize("owner", ["gated", "private"])
def test_the_token_of_the_environment_opens_it(
    owner: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StudyError, match="HF_TOKEN"):
        open_tokenizer(f"hub:{owner}/model")
    monkeypatch.setenv("HF_TOKEN", "hf_anothersecret01")
    with pytest.raises(StudyError) as refused:
        open_tokenizer(f"hub:{owner}/model")
    assert "anothersecret" not in str(refused.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert open_tokenizer(f"hub:{owner}/model").count("a b")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hub:nosuch/model", "no such repository"),
        ("hub:org/bare", "has no tokenizer.json"),
        ("hub:broken/model", "not a Hugging Face tokenizer.json"),
        ("hub:../../etc", "is not a repository"),
        ("hub:a/b/c", "is not a repository"),
    ],
)
def test_what_is_wrong_is_one_sentence(name: str, words: str, asked: list[str]) -> None:
    with pytest.raises(StudyError, match=words) as caught:
        open_tokenizer(name)
    assert "\n" not in str(caught.value)


def test_a_large_file_is_not_fetched(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "LARGEST_FILE", 1000)
    with pytest.raises(StudyError, match="has more than"):
        open_tokenizer("hub:org/model")
    assert not any(map(is_fetched, asked))


def test_without_a_network_one_sentence_names_the_way_out(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at("http://user:pw@127.0.0.1:1", monkeypatch)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(StudyError) as caught:
        open_tokenizer("hub:org/model")
    message = str(caught.value)
    assert "127.0.0.1:1 cannot be reached" in message
    assert "file:PATH" in message
    assert "pw" not in message
    assert TOKEN not in message
