"""`prepare --show-prompt`: what is shown is, byte for byte, what a server is then sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.support.servers.faulty_server import FaultyServer
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.terminal import Ended, assert_one_sentence, call

TEXTS = [
    f'Line {n}: caf\u00e9 \u202e \x1b[2J {{question}} \u6f22\U0001f9e8 "q" \\\t.\n' * (4 + n * n)
    for n in range(12)
]

PROMPTS: dict[str, dict[str, Any]] = {
    "chat": {"mode": "chat", "system": "system.txt", "template": "template.txt"},
    "chat_prefill": {"mode": "chat_prefill", "answer_prefix": "The answer to {question} is"},
    "completion": {"mode": "completion", "answer_prefix": " A:"},
    "wordings": {"mode": "chat", "replicates": 2, "instructions": "wordings.txt"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "system.txt").write_text("Be brief.\nNo more.", encoding="utf-8")
    (tmp_path / "template.txt").write_text("<<\n{document}\n>>\n\n{question}", encoding="utf-8")
    (tmp_path / "wordings.txt").write_text("{question}\nPlease: {question}\n", encoding="utf-8")
    with (tmp_path / "own.jsonl").open("w", encoding="utf-8") as file:
        for number, text in enumerate(TEXTS):
            for asked in ("Which line", "And which other line"):
                question = f"{asked}, {number}?"
                row = {"context": text, "question": question, "answers": [f"{number}"]}
                file.write(json.dumps(row) + "\n")
    return tmp_path


def study(folder: Path, prompt: dict[str, Any]) -> str:
    made = {
        "name": "mine",
        "corpus": {"kind": "file", "path": "own.jsonl"},
        "tokenizer": "reference",
        "bins": {"count": 3, "starved_below": 2},
        "sampling": {"samples_per_bin": 8, "pilot_per_bin": 1, "questions_per_document": 2},
        "models": ["mine"],
        "prompt": {"max_output_tokens": 12, **prompt},
    }
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(made), encoding="utf-8")
    return str(path)


def models(folder: Path, url: str, **quirks: str) -> dict[str, str]:
    entry = {"engine": "openai", "model_id": "m", "base_url": url, "window_tokens": 100_000}
    entry["price"] = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0}
    entries = {"mine": {**entry, "quirks": quirks}, "plain": entry}
    path = folder / "models.yaml"
    path.write_text(yaml.safe_dump({"models": entries}), encoding="utf-8")
    return {"CONTEXTCLIFF_MODELS": str(path)}


@pytest.mark.parametrize("name", PROMPTS)
def test_what_is_shown_is_what_is_sent(name: str, folder: Path, contextcliff_home: Path) -> None:
    server = FaultyServer(["ok"], folder / "sent.jsonl")
    with on_a_thread(server.handle) as url:
        env, path = models(folder, url), study(folder, PROMPTS[name])
        shown = call("prepare", path, "--show-prompt", "24", "--json", env=env)
        assert (shown.code, shown.sentences) == (0, []), shown.err
        assert server.served == 0, "a call was made"
        ended = call("profile", path, "--yes", env=env)
        assert ended.code == 0, ended.err
    sent = [json.loads(line)["body"] for line in (folder / "sent.jsonl").read_text().splitlines()]
    prompts = json.loads(shown.out)["prompts"]
    assert len(prompts) == len(sent) == 24 * PROMPTS[name].get("replicates", 1)
    for prompt in prompts:
        kept = {"messages": prompt["messages"]} if prompt["messages"] else {}
        kept |= {"prompt": prompt["prompt"]} if prompt["prompt"] is not None else {}
        (body,) = [b for b in sent if {k: b.get(k) for k in kept} == kept]
        sent.remove(body)
        assert ("messages" in body) == (prompt["mode"] != "completion")
        assert body["temperature"] == prompt["temperature"]
        limit = body.get("max_tokens", body.get("max_completion_tokens"))
        assert limit == prompt["max_output_tokens"]
        assert prompt["temperature_omitted_for"] == []
    with Ledger.open(Store(contextcliff_home).ledger) as ledger:
        hashes = {row[0] for row in ledger.read("SELECT prompt_hash FROM calls")}
    assert {prompt["sha256"] for prompt in prompts} == hashes


def shown(folder: Path, *options: str) -> Ended:
    env = models(folder, "http://127.0.0.1:9/v1")
    ended = call("prepare", study(folder, PROMPTS["chat"]), *options, env=env)
    assert ended.code == 0, ended.err
    return ended


def test_examples_are_spread_from_short_to_long(folder: Path) -> None:
    def places(n: int) -> list[tuple[str, int]]:
        found = json.loads(shown(folder, "--show-prompt", str(n), "--json").out)["prompts"]
        return [(one["bin"], one["length_tokens"]) for one in found]

    assert [bin for bin, _ in places(1)] == ["b00"]
    assert [bin for bin, _ in places(2)] == ["b00", "b02"]
    assert [bin for bin, _ in places(3)] == ["b00", "b01", "b02"]
    assert [bin for bin, _ in places(5)] == ["b00", "b00", "b01", "b02", "b02"]
    lengths = [tokens for _, tokens in places(3)]
    assert lengths == sorted(lengths)


def test_on_a_terminal_the_middle_of_a_long_document_is_left_out(folder: Path) -> None:
    def printed(*options: str) -> tuple[str, list[str]]:
        out = shown(folder, "--show-prompt", "2", *options).out
        start = out.index("Prompt of ")
        return out[start:], out[start:].splitlines()

    text, lines = printed()
    assert all(line.isprintable() for line in lines)
    assert lines[0].endswith("mode chat; at most 12 tokens of output, temperature 0")
    assert [line for line in lines if line[:1] == "["][:2] == ["[system]", "[user]"]
    assert text.count("Be brief.\nNo more.") == 2
    (note,) = [line for line in lines if "characters left out" in line]
    left = int(note.split()[1].replace(",", ""))
    whole, all_lines = printed("--whole")
    assert "left out" not in whole
    assert len(all_lines) > len(lines)
    document = next(d for d in TEXTS if len(d) - 800 == left)
    assert text.lower().count("line, ") == 2, "the question is always shown"
    assert document.count("\n") == whole.partition("b02")[2].count("Line ")
    assert r"\u202e \x1b[2J {question}" in text


def test_options_that_do_not_fit_are_a_sentence(folder: Path) -> None:
    env = models(folder, "http://127.0.0.1:9/v1")
    path = study(folder, PROMPTS["chat"])
    assert_one_sentence(call("prepare", path, "--whole", env=env), "--whole", "--show-prompt")
    for value in ("0", "many"):
        ended = call("prepare", path, "--show-prompt", value, env=env)
        assert_one_sentence(ended, "--show-prompt")


def test_a_temperature_that_is_not_sent_is_not_shown_as_sent(folder: Path) -> None:
    server = FaultyServer(["ok"], folder / "sent.jsonl")
    with on_a_thread(server.handle) as url:
        env, path = models(folder, url, temperature="omit"), study(folder, PROMPTS["chat"])
        of_one = call("prepare", path, "--show-prompt", env=env)
        assert "of output, no temperature (quirks in models.yaml)\n" in of_one.out
        text = Path(path).read_text("utf-8").replace("- mine", "- mine\n- plain")
        Path(path).write_text(text, encoding="utf-8")
        of_two = call("prepare", path, "--show-prompt", env=env)
        assert "temperature 0 (none to mine: quirks in models.yaml)\n" in of_two.out
        shown = json.loads(call("prepare", path, "--show-prompt", "--json", env=env).out)
        assert shown["prompts"][0]["temperature_omitted_for"] == ["mine"]
        assert call("profile", path, "--yes", env=env).code == 0
    sent = [json.loads(line)["body"] for line in (folder / "sent.jsonl").read_text().splitlines()]
    without = ["temperature" not in body for body in sent if "messages" in body]
    assert without.count(True) == without.count(False) > 0
