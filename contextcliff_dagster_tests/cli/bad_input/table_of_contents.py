"""What files and variables say: keys of a study, of models.yaml, of a policy, rows of data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from contextcliff_dagster_tests.cli.bad_input import bad_files
from contextcliff_dagster_tests.cli.bad_input.law import Case
from contextcliff_dagster_tests.support.extension_tables import tables

VALID: dict[str, Any] = {
    "name": "mine",
    "description": "Sixty short ledgers.",
    "corpus": {"kind": "reference", "documents": 60, "max_tokens": 200, "seed": 1},
    "tokenizer": "reference",
    "bins": {"kind": "quantile", "count": 2, "starved_below": 5, "starved": "merge"},
    "target": {"min_tokens": 60, "max_tokens": 150},
    "sampling": {"samples_per_bin": 2, "pilot_per_bin": 1, "seed": 0, "min_tokens": 0},
    "targeted": {"pilot": 2, "until": "5%", "round": 5},
    "prompt": {"mode": "chat", "replicates": 1, "max_output_tokens": 12, "prefix_cache": True},
    "models": ["reference-short"],
    "scoring": {"primary": "em", "scorer": "text"},
    "analysis": {"tolerance": 0.3, "confidence": 0.95, "resamples": 100, "assumption": "falling"},
    "latency": {"ttft_ms_p95": 2000},
    "calls": {"concurrency": 2, "deadline_s": 60, "order": "blocks"},
    "budget": {"usd": 1, "confirm_above_usd": 1},
    "regression": {"flip_rate": 0.05, "yearly_error": 0.05, "runs_per_year": 52},
    "schedule": {"cron": "0 3 * * 1", "timezone": "UTC", "grace_hours": 24},
    "sentinel": {"cron": "0 5 * * *", "examples": 20, "runs_per_year": 365},
    "alerts": {"webhook_env": "OUR_HOOK"},
}
"""A study with every section, as a file says it."""

_HUGE = 2**70
_WRONG: dict[str, tuple[Any, ...]] = {
    "name": ("", "A", "a b", "../x", "a\x00", "n" * 61, 5, None, ["a"]),
    "corpus": (None, "reference", [], {}, {"kind": "nosuch"}, {"kind": 5}),
    "corpus.documents": (True, _HUGE, -1, 0, 1.5, "many", [1]),
    "corpus.max_tokens": (True, _HUGE, -1, 0, 1.5, "many"),
    "corpus.seed": (True, -1, 1.5, "x"),
    "corpus.nosuch": (1,),
    "tokenizer": (None, 5, "", "nosuch", "file:", "file:nosuch.json", "server:", "tiktoken:x"),
    "bins": (None, 5, "ten", [1]),
    "bins.count": (True, _HUGE, 0, -1, 101, 1.5, "ten", None, [1], float("nan")),
    "bins.width": (True, _HUGE, 0, 1.5, "x"),
    "bins.starved_below": (True, _HUGE, 0, 1.5, "x", None),
    "bins.starved": (True, "x", 5, None),
    "target.min_tokens": (True, _HUGE, -1, 1.5, "x", None),
    "target.max_tokens": (True, _HUGE, 0, 1.5, "x", None, 5),
    "sampling.samples_per_bin": (True, 10**30, 0, -1, 1.5, "x", None),
    "sampling.pilot_per_bin": (True, 10**30, 0, 3, 1.5, "x", None),
    "sampling.seed": (True, -1, 1.5, "x", None),
    "sampling.questions_per_document": (True, 10**30, 0, 1.5, "x"),
    "sampling.min_tokens": (True, _HUGE, -1, 1.5, "x"),
    "attention_entropy": (5, "often", [True], {}),
    "targeted.pilot": (True, 10**30, 0, 1.5, "x"),
    "targeted.until": (5, "5", "0%", "99%", "x", None, True),
    "targeted.round": (True, 10**30, 0, "x"),
    "prompt.mode": ("x", 5, None, True),
    "prompt.replicates": (True, 11, 0, 10**30, "x"),
    "prompt.max_output_tokens": (True, _HUGE, 0, 1.5, "x", None),
    "prompt.prefix_cache": (5, "x", None, [1]),
    "prompt.output_schema": (5, "x", [1]),
    "prompt.template": (5, "nosuch.txt", "n" * 5_000, "a\x00b"),
    "models": (None, [], "reference-short", [5], ["nosuch"], ["a", "a"], {"a": 1}, ["m\x00"]),
    "scoring.primary": ("x", 5, None),
    "scoring.scorer": ("nosuch", 5, None),
    "analysis.tolerance": (True, 0, 1, -0.1, float("nan"), float("inf"), "x", None),
    "analysis.confidence": (True, 0.5, 1, float("nan"), "x", None),
    "analysis.resamples": (True, 99, 10**30, 1.5, "x"),
    "analysis.assumption": ("x", 5, None),
    "latency.ttft_ms_p95": (True, 0, -1, float("inf"), "x", None),
    "calls.concurrency": (True, 0, 10**30, 1.5, "x"),
    "calls.deadline_s": (True, 0, -1, float("inf"), float("nan"), "x"),
    "calls.order": ("x", 5, None),
    "budget.usd": (True, -1, float("inf"), float("nan"), "x"),
    "budget.confirm_above_usd": (True, -1, float("inf"), float("nan"), "x"),
    "regression.flip_rate": (True, 0, 0.5, float("nan"), "x"),
    "regression.yearly_error": (True, 0, 1, float("nan"), "x"),
    "regression.runs_per_year": (True, 0, 10**30, "x"),
    "schedule.cron": ("", "x", "61 * * * *", "* * * *", 5, None, "0 0 31 2 *"),
    "schedule.timezone": ("Nowhere", 5, "../../etc/passwd", "a\x00"),
    "schedule.grace_hours": (True, 0, -1, float("inf"), "x"),
    "sentinel.cron": ("x", "61 * * * *", 5),
    "sentinel.examples": (True, 9, 10**30, "x"),
    "sentinel.runs_per_year": (True, 0, 10**30),
    "alerts.webhook_env": (5, [1], True),
    "nosuch": (1, None),
}  # fmt: skip


def changed(key: str, value: Any) -> dict[str, Any]:
    """The valid study with one value replaced; ``key`` as a path with dots."""
    study = json.loads(json.dumps(VALID))
    *outer, last = key.split(".")
    place = study
    for part in outer:
        place = place[part]
    place[last] = value
    return dict(study)


def _study(text: str | Callable[[], str]) -> Callable[[Path], object]:
    return lambda folder: (folder / "mine.yaml").write_text(text() if callable(text) else text)


def _keys() -> Iterator[Case]:
    for key, values in _WRONG.items():
        for value in values:
            study = partial(yaml.safe_dump, changed(key, value), allow_unicode=True)
            yield Case(f"{key}: {ascii(value)[:24]}", ("prepare", "mine.yaml"), (), _study(study))


# The large ones are made by the case itself: every worker has all cases, and runs few of them.
_TEXTS: dict[str, str | Callable[[], str]] = {
    "3,000 levels": bad_files.deep_yaml(3_000),
    "a block of 3,000 levels": lambda: "".join(f"{' ' * n}a:\n" for n in range(3_000)),
    "aliases a million times": "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
        for before, after in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "an alias of itself": "name: &a [*a]\n",
    "a date that is none": "name: 2026-13-45\n",
    "a number of 5,000 digits": f"name: {'1' * 5_000}\n",
    "a wrong tag": "name: !!bool maybe\n",
    "an unsafe tag": "name: !!python/object/apply:os.system [ls]\n",
    "a key that is a list": "? [a, b]\n: 1\n",
    "tabs": "name:\n\t- x\n",
    "two documents": "name: a\n---\nname: b\n",
    "a control character": "name: a\x07b\n",
    "a list": "- a\n- b\n",
    "a text": "just words\n",
    "nothing but a comment": "# nothing\n",
    "a megabyte": lambda: "description: " + "x" * (1 << 20) + "\n",
}  # fmt: skip


def _texts() -> Iterator[Case]:
    for label, text in _TEXTS.items():
        yield Case(f"study of {label}", ("report", "mine.yaml"), ("mine.yaml",), _study(text))
        yield Case(
            f"models.yaml of {label}", ("models",), ("mine.yaml",), _study(text),
            {"CONTEXTCLIFF_MODELS": "{D}/mine.yaml"},
        )  # fmt: skip


_ROW = {"context": "One fine day in May.", "question": "When?", "answers": ["May"]}
_ROWS: dict[str, dict[str, Any] | Any] = {
    "no object": [1, 2],
    "a text": "words",
    "null": None,
    "context of a number": {**_ROW, "context": 5},
    "context of a list": {**_ROW, "context": ["a"]},
    "blank context": {**_ROW, "context": " \n"},
    "blank question": {**_ROW, "question": ""},
    "question of an object": {**_ROW, "question": {"a": 1}},
    "no answers": {**_ROW, "answers": []},
    "null answers": {**_ROW, "answers": None},
    "answers in lists": {**_ROW, "answers": [["x"]]},
    "answers of objects": {**_ROW, "answers": [{"x": 1}]},
    "half a character": {**_ROW, "context": "a\ud800"},
    "task of a list": {**_ROW, "task": ["a"]},
    "id of an object": {**_ROW, "id": {}},
    "position beyond the end": {**_ROW, "evidence_position": 1.5},
    "position before the start": {**_ROW, "evidence_position": -0.1},
    "position of a text": {**_ROW, "evidence_position": "x"},
    "a span backwards": {**_ROW, "evidence_spans": [[5, 1]]},
    "a span beyond the end": {**_ROW, "evidence_spans": [[0, 500]]},
    "a span before the start": {**_ROW, "evidence_spans": [[-3, 2]]},
    "a span of one number": {**_ROW, "evidence_spans": [[1]]},
    "a span of texts": {**_ROW, "evidence_spans": [["a", "b"]]},
    "spans that are none": {**_ROW, "evidence_spans": 5},
    "level of a fraction": {**_ROW, "level": 1.5},
    "level beyond 64 bits": {**_ROW, "level": 2**70},
    "distance below zero": {**_ROW, "inter_evidence_tokens": -4},
}


def _table(rows: list[Any]) -> Callable[[Path], object]:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return lambda folder: (folder / "own.jsonl").write_text(text)


def _data() -> Iterator[Case]:
    for label, row in _ROWS.items():
        line = ("prepare", "--data", "own.jsonl")
        yield Case(f"row with {label}", line, ("own.jsonl, line 2",), _table([_ROW, row]))
    for line in ("prepare --data own.csv", "analyze own.csv", "compare own.csv own.csv"):
        yield from wrong_tables(line)


def wrong_tables(line: str) -> Iterator[Case]:
    """Tables that no command can use, as own.csv of ``line``."""
    wide = ",".join(f"c{n}" for n in range(40_000))
    for label, text in {
        "40,000 columns": f"{wide}\n{','.join(['1'] * 40_000)}\n",
        "a name of 140,000 characters": f"{'x' * 140_000},question\n1,2\n",
        "a field of 140,000 characters": f"context,question\n{'x' * 140_000},2\n",
        "a quote that never ends": 'context,question,answers\n"abc,d,e\nf,g,h\n',
        "a header alone": "context,question,answers\n",
        "commas alone": ",,,\n,,,\n",
    }.items():
        make = lambda folder, text=text: (folder / "own.csv").write_text(text)  # noqa: E731
        yield Case(f"{line}: {label}", tuple(line.split()), ("own.csv",), make)


_POLICIES: dict[str, Any] = {
    "safe_cap_tokens": (True, -1, 0, 1.5, "x", None, 2**70, [1]),
    "cap_prompt_tokens": (True, -1, 1.5, "x", [1]),
    "tolerance": ("x", None, True, 2, -1, [1]),
    "confidence": ("x", None, True, 2, [1]),
    "expiry": ("x", None, 5, "2026-13-45", [1]),
    "date": (None, 5, [1]),
    "model": (None, 5, [1], ""),
    "n": ("x", None, -1, True),
    "schema_version": (None, 5, "99.0", [1]),
    "tokenizer": (5, [1], "nosuch"),
    "ttft_ms_p95": ("x", True, [1], -1),
}


def _policies() -> Iterator[Case]:
    line = ("guard", "p.json", "--file", "t.txt")
    for key, values in _POLICIES.items():
        for value in values:
            text = bad_files.policy(**{key: value})

            def make(folder: Path, text: str = text) -> None:
                (folder / "p.json").write_text(text)
                (folder / "t.txt").write_text("word " * 20)

            yield Case(f"policy with {key}: {ascii(value)[:12]}", line, (), make)
    for label, text in {
        "no policy": "[]",
        "a number": "5",
        "half of one": bad_files.policy()[:100],
        "a list of texts": '["a"]',
        "a name twice": "[" + ",".join([bad_files.policy()] * 2) + "]",
    }.items():
        make = lambda folder, text=text: (folder / "p.json").write_text(text)  # noqa: E731
        yield Case(f"policy file of {label}", ("guard", "p.json", "--tokens", "1"), (), make)


_VARIABLES: dict[str, tuple[str, ...]] = {
    "CONTEXTCLIFF_STUDIES={D}/nosuch": ("studies", "prepare quick", "campaign list quick"),
    "CONTEXTCLIFF_STUDIES=" + bad_files.LONG_NAME: ("studies", "prepare quick"),
    "CONTEXTCLIFF_MODELS={D}/nosuch": ("models", "prepare quick --model m", "tokenizers"),
    "CONTEXTCLIFF_MODELS=" + bad_files.LONG_NAME: ("models", "serve m"),
    "CONTEXTCLIFF_HOME=" + bad_files.LONG_NAME: ("profile quick", "campaign new quick"),
    "CONTEXTCLIFF_HOME=/dev/null": ("profile quick", "campaign new quick", "prepare quick"),
    "CONTEXTCLIFF_HOME=/proc": ("profile quick", "campaign new quick"),
    "DAGSTER_HOME=/dev/null": ("profile quick", "prepare quick"),
    "DAGSTER_HOME=" + bad_files.LONG_NAME: ("profile quick", "prepare quick"),
    "CONTEXTCLIFF_LEDGER=nonsense": ("profile quick", "ledger stats", "campaign list"),
    "CONTEXTCLIFF_LEDGER=mysql://a/b": ("profile quick", "ledger verify", "campaign list"),
    "CONTEXTCLIFF_BUDGET_USD_PER_DAY=many": ("profile quick --samples-per-bin 1",),
    "CONTEXTCLIFF_BUDGET_USD_PER_DAY=nan": ("profile quick --samples-per-bin 1",),
    "CONTEXTCLIFF_BUDGET_USD_PER_DAY=-1": ("profile quick --samples-per-bin 1",),
}


def _variables() -> Iterator[Case]:
    for variable, lines in _VARIABLES.items():
        name, _, value = variable.partition("=")
        for line in lines:
            yield Case(f"{line}: {variable[:44]}", tuple(line.split()), (), env={name: value})


_NO_ATTENTION = {
    "openai": "{engine: openai, model_id: m, base_url: 'http://127.0.0.1:9/v1'}",
    "llamacpp": "{engine: llamacpp, weights: m.gguf}",
    "vllm": "{engine: vllm, model_id: m}",
    "kvpress": "{engine: kvpress, model_id: reference-short, kv: {policy: snapkv, budget: 0.2}}",
}


def _attention() -> Iterator[Case]:
    for engine, entry in _NO_ATTENTION.items():
        yield Case(
            f"--attention of engine {engine}",
            ("profile", "quick", "--attention", "--model", "far"),
            ("attention_entropy", engine),
            _study(f"models: {{far: {entry}}}\n"),
            {"CONTEXTCLIFF_MODELS": "{D}/mine.yaml"},
        )


def cases() -> Iterator[Case]:
    """All of them."""
    of_extensions = (one.cases for one in tables() if hasattr(one, "cases"))
    for table in (_keys, _texts, _data, _policies, _variables, _attention, *of_extensions):
        yield from table()
