"""An engine that runs transformers in this process: a safetensors folder or a GGUF file.

It decodes greedily over its own cache, because `generate` would take a repetition penalty and the
like from the model's folder. It is the slowest engine, but gives access to the model's internals.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.attention import (
    LastAttention,
    evidence_tokens,
    read_prompt,
)
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Delta,
    NoEmbeddings,
    PromptCount,
    stream_from,
    text_pieces,
)
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.weights import (
    GGUF_LIBRARIES,
    dequantizing_options,
    file_sha256,
    find_weights,
    folder_hashes,
    gguf_header,
    gguf_parts,
    installed_version,
    trained_window,
)

DTYPES = ("float32", "bfloat16", "float16")
_DEFAULT_ATTENTION = "sdpa"


def transformers_identity(entry: ModelEntry) -> dict[str, Any]:
    """Return every setting that decides the answers, except the device; load nothing."""
    path = model_path(entry)
    names = ("torch", "transformers", *(("gguf",) if path.is_file() else ()))
    runtime = " ".join(f"{name} {installed_version(name, entry, 'transformers')}" for name in names)
    hashes = {"weights_sha256": file_sha256(path)} if path.is_file() else folder_hashes(path)
    fields = {
        "engine": "transformers",
        "runtime": runtime,
        **hashes,
        "dtype": dtype_of(entry, path),
        "attention": entry.attention or _DEFAULT_ATTENTION,
        "rope_scaling": entry.rope_scaling,
        "window_tokens": window_of(entry, path),
    }
    return {name: value for name, value in fields.items() if value is not None}


def model_path(entry: ModelEntry) -> Path:
    """Return the folder with config, tokenizer and weights, or a GGUF file. Raises EngineError."""
    path = find_weights(entry)
    if path.is_dir() and not (path / "config.json").is_file():
        raise EngineError(
            f"Model {entry.name!r}: {path} has no config.json; give the folder that holds it and "
            "the weights in `weights` of models.yaml."
        )
    if path.is_file() and len(gguf_parts(path)) > 1:
        raise EngineError(
            f"Model {entry.name!r}: {path} is one part of a model, but transformers reads only "
            "single files; merge the parts (`llama-gguf-split --merge`), or use engine "
            "llamacpp."
        )
    return path


def _config(entry: ModelEntry, path: Path) -> dict[str, Any]:
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(
            f"Model {entry.name!r}: {path / 'config.json'} cannot be read ({error}); fetch the "
            "weights again."
        ) from error
    return config if isinstance(config, dict) else {}


def dtype_of(entry: ModelEntry, path: Path) -> str:
    """Return the compute type of the weights. Raises EngineError if it is not one of `DTYPES`."""
    dtype = entry.dtype
    if dtype is None and path.is_dir():
        config = _config(entry, path)
        dtype = config.get("dtype") or config.get("torch_dtype")
    dtype = dtype or "float32"
    if dtype not in DTYPES:
        raise EngineError(
            f"Model {entry.name!r}: engine {entry.engine!r} does not support {dtype!r}; set "
            f"`dtype` in models.yaml to one of {', '.join(DTYPES)}."
        )
    return dtype


def window_of(entry: ModelEntry, path: Path) -> int:
    """Return the entry's window, else the trained one. Raises EngineError if there is neither."""
    if entry.window_tokens:  # may exceed the trained length, to measure that
        return entry.window_tokens
    if path.is_file():
        trained: Any = trained_window(gguf_header(path))
    else:
        trained = _config(entry, path).get("max_position_embeddings")
    if not isinstance(trained, int):
        raise EngineError(
            f"Model {entry.name!r}: {path} does not give the length of its window; set "
            "`window_tokens` in models.yaml."
        )
    return trained


class TransformersEngine(NoEmbeddings):
    """An engine (see `base.Engine`) that runs transformers in this process."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._path = model_path(entry)
        for name in GGUF_LIBRARIES if self._path.is_file() else ("torch", "transformers"):
            installed_version(name, entry, "transformers")
        dtype_of(entry, self._path)
        self._threads: ThreadPoolExecutor | None = None
        self._model: Any = None
        self._tokenizer: Any = None
        self._device = ""
        # The kind of attention is a setting of the whole model.
        self._reading = threading.Lock()

    @property
    def window_tokens(self) -> int | None:
        """The entry's window, else the trained window."""
        return window_of(self._entry, self._path)

    async def start(self) -> None:
        """Import torch (seconds) and load the weights."""
        self._threads = ThreadPoolExecutor(
            self._entry.concurrency, thread_name_prefix="transformers-engine"
        )
        await asyncio.get_running_loop().run_in_executor(self._threads, self._load)

    def _load(self) -> None:
        entry, path = self._entry, self._path
        try:
            import torch
            from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
            from transformers.utils import logging

            logging.set_verbosity_error()
            logging.disable_progress_bar()
            if entry.threads:
                torch.set_num_threads(entry.threads)
            source: dict[str, Any] = {"local_files_only": True}
            dequantizing: dict[str, Any] = {}
            if path.is_file():
                source["gguf_file"] = path.name
                dequantizing = dequantizing_options()
            folder = str(path.parent if path.is_file() else path)
            config = AutoConfig.from_pretrained(folder, **source)
            if entry.rope_scaling:
                rope = getattr(config, "rope_parameters", None) or {}
                config.rope_parameters = {**rope, **entry.rope_scaling}
            self._tokenizer = AutoTokenizer.from_pretrained(folder, **source)
            model = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=getattr(torch, dtype_of(entry, path)),
                attn_implementation=entry.attention or _DEFAULT_ATTENTION,
                **source,
                **dequantizing,
            )
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            self._model = model.to(device).eval()
            is_gpu = device.type == "cuda"
            self._device = f"cuda: {torch.cuda.get_device_name()}" if is_gpu else "cpu"
        except Exception as error:  # transformers raises whatever it stumbles over
            reason = " ".join(str(error).split())[:300]
            raise EngineError(
                f"Model {entry.name!r}: transformers cannot load {path} ({reason}); correct its "
                "entry in models.yaml, or fetch the weights again."
            ) from error
        ends = self._model.generation_config.eos_token_id
        end_ids = ends if isinstance(ends, list) else [ends]
        self._ends = {*end_ids, self._tokenizer.eos_token_id}

    async def stop(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown, wait=True, cancel_futures=True)
        self._model = self._tokenizer = None

    def identity(self) -> Identity:
        """Return the weights' hash, versions, settings and, once known, the device."""
        fields = transformers_identity(self._entry)
        if self._device:
            fields["server_device"] = self._device
        return Identity(fields)

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        return PromptCount(len(await asyncio.to_thread(self.encode, prompt)))

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the prompt's token ids. Raises EngineError if the template refuses it."""
        assert self._tokenizer is not None, "start() comes first"
        if prompt.mode == "completion":
            ids: list[int] = self._tokenizer(prompt.text)["input_ids"]
        else:
            ids = self._templated(prompt, return_dict=False)
        return ids

    def render(self, prompt: Prompt) -> str:
        """Return the prompt's text under the chat template; raises as `encode` does."""
        if prompt.mode == "completion":
            return prompt.text
        return str(self._templated(prompt, tokenize=False))

    def _templated(self, prompt: Prompt, **form: Any) -> Any:
        prefilled = prompt.mode == "chat_prefill"
        try:
            return self._tokenizer.apply_chat_template(
                prompt.as_dicts(),
                add_generation_prompt=not prefilled,
                continue_final_message=prefilled,
                **form,
            )
        except Exception as error:  # Jinja's own errors, and ValueError without a template
            reason = " ".join(str(error).split())[:200]
            raise EngineError(
                f"Model {self._entry.name!r}: its chat template cannot render this prompt ({reason}"
                "); use prompt mode completion, or leave the system text out."
            ) from error

    def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        assert self._threads is not None, "start() comes first"
        return stream_from(self._threads, lambda: self._generate(prompt, decoding))

    def _generate(self, prompt: Prompt, decoding: Decoding) -> Iterator[Delta]:
        ids, limit = self.encode(prompt), decoding.max_output_tokens
        decode = partial(self._tokenizer.decode, skip_special_tokens=True)
        attention = None
        if decoding.attention:
            attention = LastAttention(len(ids), self._evidence(prompt, ids))
        pieces = text_pieces(self._tokens(ids, limit, attention), decode, len(ids), limit)
        return attention.with_pieces(pieces) if attention else pieces

    def _evidence(self, prompt: Prompt, ids: list[int]) -> NDArray[np.bool_] | None:
        """Return which tokens hold evidence; only fast tokenizers give token positions."""
        if not prompt.evidence or not self._tokenizer.is_fast:
            return None
        encoding = self._tokenizer(
            self.render(prompt),
            add_special_tokens=prompt.mode == "completion",  # a chat template writes its own
            return_offsets_mapping=True,
        )
        if list(encoding["input_ids"]) != ids:
            return None
        return evidence_tokens(prompt, self.render, encoding["offset_mapping"])

    def _tokens(self, ids: list[int], most: int, attention: LastAttention | None) -> Iterator[int]:
        import torch
        from transformers import DynamicCache

        cache = DynamicCache(config=self._model.config)
        read = torch.tensor([ids], device=self._model.device)
        for _ in range(most):
            with torch.inference_mode(), self._reading:
                if attention is not None:
                    logits = read_prompt(self._model, ids, cache, attention)
                else:
                    out = self._model(read, past_key_values=cache, use_cache=True, logits_to_keep=1)
                    logits = out.logits
                token = logits[:, -1:].argmax(-1)
            attention = None
            if int(token) in self._ends:
                return
            yield int(token)
            read = token
