"""A tokenizer that there is not: the sentence names those there are, and the one that was meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from contextcliff_dagster.cli.app import app
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.sampling.tokenizers.tokenizers import known_tokenizers, open_tokenizer


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("o200k_base", "tiktoken:o200k_base"),
        ("o200k", "tiktoken:o200k_base"),
        ("tiktok:cl100k_base", "tiktoken:cl100k_base"),
        ("referense", "reference"),
        ("gpt-4o", "tiktoken:o200k_base"),
        ("gpt-3.5-turbo", "tiktoken:cl100k_base"),
        ("http://127.0.0.1:8000/v1", "server:http://127.0.0.1:8000/v1"),
        ("models/tokenizer.json", "file:models/tokenizer.json"),
    ],
)
def test_what_was_meant_is_named(name: str, meant: str) -> None:
    with pytest.raises(StudyError) as caught:
        open_tokenizer(name)
    assert f"There is no tokenizer {name!r} (did you mean {meant!r}?); there are" in str(
        caught.value
    )


def test_an_encoding_is_named_by_its_nearest_and_all_others() -> None:
    with pytest.raises(StudyError) as caught:
        open_tokenizer("tiktoken:o200k_bass")
    message = str(caught.value)
    assert "no encoding 'o200k_bass' (did you mean 'o200k_base'?); it has gpt2, " in message


@pytest.mark.parametrize("name", ["", "nothing like it", "file:", "server:", "x" * 5_000, "a\x00b"])
def test_nonsense_gets_the_choices_and_no_guess(name: str) -> None:
    with pytest.raises(StudyError, match="there are reference, tiktoken:<encoding>, file:"):
        open_tokenizer(name)


def test_the_command_lists_what_there_is_and_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "models.yaml"
    entry = {"engine": "openai", "base_url": "http://127.0.0.1:1/v1"}
    path.write_text(json.dumps({"models": {"mine": entry}}))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(path))
    shown = CliRunner().invoke(app, ["tokenizers"]).output
    for known in known_tokenizers():
        assert known.name in shown
    assert "mine" in shown.splitlines()[-1]
    listed = json.loads(CliRunner().invoke(app, ["tokenizers", "--json"]).output)
    needs = {one["name"]: one.get("needs") for one in listed}
    assert needs["tiktoken:o200k_base"] == needs["reference"] == ""
    assert "network" in needs["tiktoken:p50k_base"]
    assert "server:mine" in needs
