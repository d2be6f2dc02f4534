"""The registry of models: what it takes, and how it says what it does not take."""

from __future__ import annotations

import re
from pathlib import Path

import pydantic
import pytest

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.engines.base import declared_identity, open_engine
from contextcliff_dagster.inference.execution.cost_estimate import estimate
from contextcliff_dagster.inference.models import engine_table
from contextcliff_dagster.inference.models.engine_table import EngineSpec
from contextcliff_dagster.inference.models.entry import KvOptions, VllmOptions
from contextcliff_dagster.inference.models.models_file import (
    ModelEntry,
    Price,
    get_model,
    load_models,
)
from contextcliff_dagster_tests.support.records.calls import LedgerSample, plan_of


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "models.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_models_are_valid_and_hold_the_reference_standard() -> None:
    models = load_models()
    assert {"reference-short", "reference-long", "Qwen2.5-7B"} <= set(models)


def test_an_own_file_overlays_the_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(
        tmp_path, "models:\n  reference-short: {engine: openai, base_url: 'http://x/v1'}\n"
    )
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(path))
    models = load_models()
    assert models["reference-short"].engine == "openai"
    assert models["reference-long"].engine == "reference"


def test_the_file_in_the_working_folder_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "models:\n  mine: {engine: openai, base_url: 'http://x/v1'}\n")
    monkeypatch.chdir(tmp_path)
    assert get_model("mine").model_id == "mine"


ENTRY = "models:\n  m:\n    engine: openai\n    base_url: http://x/v1\n"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (
            ENTRY + "    window_tokens: big\n",
            5,
            r"'models.m.window_tokens'.*valid integer.*not 'big'",
        ),
        (ENTRY + "    window_tokens: -4\n", 5, r"'models.m.window_tokens'.*greater than 0"),
        (
            ENTRY + "    windwo_tokens: 4\n",
            5,
            r"'models.m.windwo_tokens'.*did you mean 'window_tokens'",
        ),
        (ENTRY + "    api_key: hunter2\n", 5, "environment"),
        (ENTRY + "    price: {input_usd_per_mtok: 1}\n", 5, r"output_usd_per_mtok.*missing"),
        (
            ENTRY + "    quirks:\n      temperature: maybe\n",
            6,
            r"quirks.temperature.*'send' or 'omit'",
        ),
        (ENTRY + "    engine: openai\n", 5, "appears twice"),
        ("&a models: {}\n*a : {}\n", 1, "appears twice"),
        ("models:\n  m:\n    engine: openai\n", 2, "base_url"),
        ("models:\n  m:\n    engine: vllmm\n", 3, "'models.m.engine'"),
        ("models:\n  m: 5\n", 2, "'models.m': should be a mapping, not 5"),
        ("models:\n  m:\n", 2, "'models.m': should be a mapping, and is empty"),
        ("models: [1]\n", 1, "'models': should be a mapping, not a list"),
        ("models:\n  a b: {engine: reference}\n", 2, r"'models.a b': should match .*not 'a b'"),
        (ENTRY + "    api_key_env: sk-hunter2\n", 5, "name of an environment variable"),
        (
            ENTRY + "    headers_env: {X-Key: Bearer hunter2}\n",
            5,
            "name of an environment variable",
        ),
        (ENTRY + "    headers_env: {X Key: NAME}\n", 5, "name of a header"),
        (ENTRY + "    weights: /models/m\n", 2, "'openai' takes no `weights`"),
        (
            ENTRY + "    extra_body: {temperature: 1}\n",
            5,
            "temperature is set by the study's prompt",
        ),
        (ENTRY + "    extra_headers: {X-Api-Key: k}\n", 5, "looks like a secret.*headers_env"),
        ("models:\n  m: {engine: reference, reasoning_effort: low}\n", 2, "use engine 'openai'"),
        *(
            (f"models:\n  m: {{engine: {engine}, {name}: {value}}}\n", 2, f"takes no `{name}`")
            for engine, name, value in (
                ("reference", "kv_cache_dtype", "q8_0"),
                ("reference", "rope_scaling", "{rope_type: yarn}"),
                ("llamacpp, weights: m.gguf", "dtype", "bfloat16"),
                ("transformers, weights: m", "kv_cache_dtype", "q8_0"),
                ("vllm", "threads", "2"),
                ("llamacpp, weights: m.gguf", "kv", "{policy: none}"),
                ("openai, base_url: 'http://a'", "kv", "{policy: knorm, budget: 0.5}"),
                ("kvpress", "attention", "eager"),
            )
        ),
        *(
            (f"models:\n  m: {{engine: kvpress, kv: {{{kv}}}}}\n", 2, says)
            for kv, says in (
                ("policy: snapkv", "needs a `budget`"),
                ("policy: snapkv, budget: 0.05", r"budget.*0\.1"),
                ("policy: snapkv, budget: 1.5", r"budget.*1"),
                ("policy: none, budget: 0.5", "keeps every entry"),
                ("policy: pyramid, budget: 0.5", "policy.*'snapkv'"),
            )
        ),
        ("models:\n  m:\n  engine: [\n", 4, "not valid YAML"),
        ("- a\n", 1, "keys and values"),
    ],
)
def test_a_fault_names_file_line_and_key(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(StudyError, match=says) as caught:
        load_models([path])
    assert str(caught.value).startswith(f"{path}, line {line}")
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


NUMBERS = {
    "window_tokens": (-1, 0, 2**40, 0.5),
    "threads": (0, 1025),
    "gpus": (-1, 1025),
    "concurrency": (0, 513, 1.5),
    "timeout_s": (-1, 0, 1e300),
    "call_deadline_s": (-1, 0, 1e300),
    "requests_per_minute": (-1, 0, "1e-7", 1e300),
    "tokens_per_minute": (-1, 0, "1e-7", 1e300),
    "max_attempts": (0, 21),
    "breaker_failures": (0, 2**70),
    "price.input_usd_per_mtok": (-1, 1e9),
    "price.output_usd_per_mtok": (-1, 1e9),
    "price.cached_input_usd_per_mtok": (-1, 1e9),
    "vllm.tensor_parallel": (0, 65),
    "kv.budget": (0, 0.09, 1.1),
    "vllm.gpu_memory_utilization": (0, 1.1),
    "vllm.kv_cache_gib": (0, 1e300),
    "vllm.start_timeout_s": (0, 1e300),
    "vllm.restarts": (-1, 101),
}
NO_NUMBERS = ("true", "no", ".nan", ".inf", "-.inf", "nan", "many", "[1]", "{a: 1}")


def numbers_of(model: type[pydantic.BaseModel], before: str = "") -> set[str]:
    """The dotted names of all keys of ``model`` that take a number."""
    names = set()
    for name, field in model.model_fields.items():
        text = str(field.annotation)
        for inner in (KvOptions, Price, VllmOptions):
            if inner.__name__ in text:
                names |= numbers_of(inner, f"{name}.")
        names |= (
            {f"{before}{name}"} if re.search(r"\b(int|float)\b", f"{text} {field!r}") else set()
        )
    return names


def test_every_number_has_bounds_and_takes_nothing_else(tmp_path: Path) -> None:
    assert numbers_of(ModelEntry) == set(NUMBERS)
    for name, values in NUMBERS.items():
        block, _, key = name.rpartition(".")
        others = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1} if block == "price" else {}
        rest = "".join(f", {other}: 1" for other in others if other != key)
        engine = "vllm, weights: m" if block == "vllm" else "openai, base_url: 'http://x/v1'"
        if block == "kv":
            engine, rest = "kvpress", ", policy: snapkv"
        if name == "threads":
            engine = "llamacpp, weights: m.gguf"
        for value in (*values, *NO_NUMBERS):
            given = f"{key}: {value}" if not block else f"{block}: {{{key}: {value}{rest}}}"
            text = f"models:\n  m: {{engine: {engine}, {given}}}\n"
            with pytest.raises(StudyError, match=rf"line 2, key 'models\.m\.{name}'") as caught:
                load_models([write(tmp_path, text)])
            assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [".nan", "[1.0, .inf]", "{a: {b: -.inf}}"])
def test_numbers_that_go_on_to_an_engine_are_finite(tmp_path: Path, value: str) -> None:
    for engine, key in (("openai, base_url: 'http://x/v1'", "rope_scaling: {x: %s}"),
                        ("vllm, weights: m", "vllm: {engine_args: {x: %s}}")):  # fmt: skip
        text = f"models:\n  m: {{engine: {engine}, {key % value}}}\n"
        with pytest.raises(StudyError, match="should hold finite numbers"):
            load_models([write(tmp_path, text)])


def test_exponents_that_yaml_takes_for_texts_are_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, ENTRY + "    tokens_per_minute: 1e5\n")
    assert load_models([path])["m"].tokens_per_minute == 100_000


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is empty"), (b"\xff\xfe\x00", "not UTF-8"), (b"\x00\x01", "not valid YAML")],
)
def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_bytes(content)
    with pytest.raises(StudyError, match=says):
        load_models([path])


def test_a_missing_file_and_a_folder_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="does not exist"):
        load_models([tmp_path / "none.yaml"])
    with pytest.raises(StudyError, match="cannot be read"):
        load_models([tmp_path])


@pytest.mark.parametrize(
    "url", ["http://[hunter2/v1", "http://x:99999/v1", "http://x:port/v1", "http:///v1"]
)
def test_an_address_that_is_none_is_one_sentence_without_it(url: str) -> None:
    entry = ModelEntry(name="m", engine="openai", base_url=url)
    with pytest.raises(EngineError, match="`base_url` has no host, or no valid port") as caught:
        entry.resolved_base_url()
    assert url not in str(caught.value)


def test_an_unknown_model_lists_those_that_are() -> None:
    with pytest.raises(StudyError, match=r"no model 'gpt-9'.*reference-long, reference-short"):
        get_model("gpt-9")


def test_an_address_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "models:\n  m: {engine: openai, base_url: '${MY_URL}/v1'}\n")
    entry = load_models([path])["m"]
    with pytest.raises(EngineError, match="MY_URL"):
        entry.resolved_base_url()
    monkeypatch.setenv("MY_URL", "http://host:1")
    assert entry.resolved_base_url() == "http://host:1/v1"


def test_cached_tokens_cost_what_the_price_says() -> None:
    price = Price(input_usd_per_mtok=2, cached_input_usd_per_mtok=1, output_usd_per_mtok=10)
    assert price.cost_usd(1_000_000, 100_000, 500_000) == pytest.approx(0.5 * 2 + 0.5 * 1 + 1)
    assert Price(input_usd_per_mtok=2, output_usd_per_mtok=0).cost_usd(10**6, 0, 10**6) == 2


def test_a_row_of_the_table_is_all_that_an_engine_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = EngineSpec(
        "steam",
        load="contextcliff_dagster.inference.engines.reference:ReferenceEngine",
        declared_identity="contextcliff_dagster.inference.engines.reference:reference_identity",
        needs_devices=True,
        serial=True,
        ignores=("dtype",),
        call_s=7.0,
    )
    monkeypatch.setattr(engine_table, "BUILT_IN", {**engine_table.BUILT_IN, "steam": row})
    line = "engine: steam, model_id: reference-short"
    entry = load_models([write(tmp_path, f"models:\n  m: {{{line}}}\n")])["m"]
    assert (entry.concurrency, entry.gpus_wanted) == (1, "auto")
    assert open_engine(entry).window_tokens == 8192
    assert declared_identity(entry)["window_tokens"] == 8192
    estimated = estimate([(None, plan_of(LedgerSample(1, 2), 2))], [entry], None)
    assert 14 <= estimated.seconds < 15
    for wrong, says in (
        ("dtype: bfloat16", "'steam' takes no `dtype`"),
        ("base_url: http://x/v1", "brings its own server"),
    ):
        path = write(tmp_path, f"models:\n  m: {{{line}, {wrong}}}\n")
        with pytest.raises(StudyError, match=says):
            load_models([path])
