"""The commands that README and docs print, and a folder in which a reader could type them."""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from contextcliff_dagster.studies import kept_in
from contextcliff_dagster_tests.support.extension_tables import tables
from contextcliff_dagster_tests.support.files import folders, log_files, score_tables
from contextcliff_dagster_tests.support.files.warehouse_files import rows
from contextcliff_dagster_tests.support.paths import CHECKOUT, DOCS
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread

PAGES = (
    CHECKOUT / "README.md",
    *(page for page in sorted(DOCS.rglob("*.md")) if page.name not in ("report.md", "index.md")),
    *(CHECKOUT / folder / "README.md" for folder in ("studies", "docker", "data")),
)
_COMMAND = re.compile(r"(?:[A-Z_]+=\S+ +)*(?:\S*/)?contextcliff(?: +(?=[a-z-])|$)")
_REDIRECTED = re.compile(r" +> +\S+$")
_NO_SHELL = ("python", "yaml", "json", "toml", "csv")
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.M | re.S)
_INDENTED = re.compile(r"(?:^ {4,}.*\n)+", re.M)


@dataclass(frozen=True)
class Command:
    """A command line as a page has it. ``inline``: in a sentence, not in a block of its own."""

    page: str
    text: str
    inline: bool

    @property
    def words(self) -> list[str]:
        """The arguments of `contextcliff`."""
        return _COMMAND.sub("", self.text, count=1).split()


def commands_of(page: Path) -> list[Command]:
    """The lines of ``page`` that call `contextcliff`, those of blocks first, in order."""
    name, text = page.relative_to(CHECKOUT).as_posix(), page.read_text(encoding="utf-8")
    prose = _INDENTED.sub("", _FENCE.sub("", text))
    found = [Command(name, line, False) for block in blocks_of(text) for line in _lines(block)]
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose))
    named = [Command(name, span, True) for span in spans if _COMMAND.match(span)]
    return [*found, *dict.fromkeys(named)]


def blocks_of(text: str) -> list[str]:
    """Blocks of code by indentation, and fenced ones that are of no other language."""
    fenced = [(m.start(), m[3]) for m in _FENCE.finditer(text) if m[2] not in _NO_SHELL]
    blank = _FENCE.sub(lambda m: re.sub(r"[^\n]", "", m[0]), text)
    lines = [(m.start(), textwrap.dedent(m[0])) for m in _INDENTED.finditer(blank)]
    return [block for _, block in sorted([*fenced, *lines])]


def _lines(block: str) -> Iterator[str]:
    for whole in block.replace("\\\n", " ").splitlines():
        for line in re.sub(r"(^|\s+)#.*", "", whole).split(" && "):
            if _COMMAND.match(line := _REDIRECTED.sub("", " ".join(line.split()))):
                yield line


def shown_models(page: Path) -> dict[str, object]:
    """The entries of the first models.yaml that a page shows in an indented block."""
    block = next(b for b in blocks_of(page.read_text("utf-8")) if "models:" in b)
    shown = re.match(r"models:\n(?: +.*\n)+", textwrap.dedent(block))
    assert shown, f"{page} shows no models.yaml"
    return dict(yaml.safe_load(shown[0])["models"])


@contextmanager
def answering() -> Iterator[str]:
    """An endpoint that reads short ledgers and overlooks the answer in longer ones; its URL."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, _, body = await wire.read_request(reader)
        if path.endswith("/models"):
            writer.write(wire.head(200) + b'{"object": "list", "data": [{"id": "m"}]}')
        elif not path.endswith("/completions"):
            writer.write(wire.error(404, "nothing here"))
        else:
            asked = json.loads(body)
            text = asked["messages"][-1]["content"] if "messages" in asked else asked["prompt"]
            named = re.findall(r"SKU-\d{3}", text)
            there = re.search(rf"{named[-1]} qty=(\d+)", text) if named else None
            read = there is not None and len(text) < 2_400
            answer = there[1] if there is not None and read else "not in the text"
            writer.write(wire.STREAM + wire.chunk(answer) + wire.chunk(None, "stop") + wire.DONE)
        await writer.drain()
        writer.close()

    with on_a_thread(handle) as url:
        yield url


def write_world(folder: Path, url: str, store: Path) -> Mapping[str, str]:
    """Put what the pages take for granted into ``folder``; the variables that a reader has set."""
    models = shown_models(DOCS / "your-model.md")
    for name in ("my-server", "my-model"):
        models[name] = {"engine": "openai", "model_id": "m", "base_url": url}
    text = yaml.safe_dump({"models": models}).replace("http://127.0.0.1:8000/v1", url)
    (folder / "models.yaml").write_text(text, encoding="utf-8")
    _documents(folder)
    _scores(folder)
    for one in tables():
        getattr(one, "write_world", lambda folder: None)(folder)
    _studies(kept_in(store), folder / "questions.jsonl")
    return {
        "CONTEXTCLIFF_HOME": str(store),
        "MY_KEY": "sk-nothing",
    }


def _documents(folder: Path) -> None:
    asked = [{**row, "document": row["context"]} for row in rows(80, max_tokens=1_500)]
    for row in asked:
        del row["context"]
    for name in ("questions.jsonl", "my.jsonl"):
        log_files.write_lines(folder / name, asked)
    for name in ("my-documents", "contracts", "notes"):
        folders.library(folder / name)
    (folder / "contract.txt").write_text("A contract of one sentence.", encoding="utf-8")


def _scores(folder: Path) -> None:
    score_tables.write(folder / "scores.csv", score_tables.answers())
    score_tables.write(folder / "scores.jsonl", score_tables.answers(2))
    several = [score_tables.answers(n).assign(model=f"m{n}") for n in (1, 2)]
    pd.concat(several).to_parquet(folder / "all.parquet")
    for number, name in enumerate(("a.csv", "b.csv")):
        score_tables.write(folder / name, score_tables.answers(3 + number))
    judged = {"length_tokens": "token_count", "score": "llm_judge_output"}
    score_tables.write(folder / "judged.csv", score_tables.answers(5).rename(columns=judged))
    table = score_tables.means()
    table["mean"] = np.round(100 * table["mean"], 1)
    score_tables.write(folder / "table.csv", table)
    (folder / "logs").mkdir()
    samples = [log_files.inspect_sample(n) for n in range(1, 60)]
    log_files.write_inspect(folder / "logs" / "2026-11-21_task.eval", samples)


def _studies(folder: Path, questions: Path) -> None:
    study = {
        "corpus": {"kind": "file", "path": str(questions)},
        "tokenizer": "reference",
        "bins": {"count": 4},
        "sampling": {"samples_per_bin": 10, "pilot_per_bin": 2},
        "prompt": {"max_output_tokens": 12},
        "models": ["my-model"],
        "analysis": {"resamples": 100},
    }
    folder.mkdir(exist_ok=True)
    for name in ("my-study", "prompt-one", "prompt-two"):
        own = {"name": name, **study}
        if name == "prompt-two":
            own["prompt"] = {"max_output_tokens": 12, "mode": "completion"}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(own), encoding="utf-8")
