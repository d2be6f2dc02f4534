"""The process that engine `kvpress` starts: local weights with a compressed KV cache.

It runs in an environment of torch, transformers and kvpress, and imports only the standard library
and its neighbours here. Its argument is the settings as JSON. Requests and answers are JSON lines
on stdin and stdout; it ends when stdin closes. The text before the question is read and compressed
before the question is known; the question keeps its positions in the whole prompt. Texts are stored
for further questions, budgets and policies (`kept_reads`).

Policies, as kvpress scores them: SnapKV (Li et al. 2024), H2O (Zhang et al. 2023; here: the mean
attention that an entry received), StreamingLLM (Xiao et al. 2024), key norms (Devoto et al. 2024),
TOVA (Oren et al. 2024), expected attention (Devoto et al. 2025), and entries drawn at random.
"""

from __future__ import annotations

import json
import os
import queue
import re
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from kvpress.presses.base_press import SUPPORTED_MODELS
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.utils import logging

from contextcliff_dagster.inference.engines.kvpress.kept_reads import KeptReads
from contextcliff_dagster.inference.engines.kvpress.pressing import (
    SCORED_WHILE_READING,
    CancelledError,
    Read,
    Reader,
)


class RefusedError(Exception):
    """The request cannot be answered; the message is one sentence."""


class Worker:
    """A loaded model and the texts that it has read."""

    def __init__(self, settings: dict[str, Any], cancelled: set[int]) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        if settings["threads"]:
            torch.set_num_threads(settings["threads"])
        source = {"local_files_only": True}
        dequantize: dict[str, Any] = {}
        if settings["gguf_file"]:
            source["gguf_file"] = settings["gguf_file"]
            with suppress(ImportError):  # older versions always load plain numbers
                from transformers import GgufConfig

                dequantize = {"quantization_config": GgufConfig(dequantize=True)}
        folder = settings["folder"]
        config = AutoConfig.from_pretrained(folder, **source)
        if settings["rope_scaling"]:
            rope = getattr(config, "rope_parameters", None) or {}
            config.rope_parameters = {**rope, **settings["rope_scaling"]}
        if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
            raise RefusedError("some of its layers use a sliding window")
        self.tokenizer = AutoTokenizer.from_pretrained(folder, **source)
        if not self.tokenizer.is_fast:
            raise RefusedError("its tokenizer has no tokenizer.json")
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=getattr(torch, settings["dtype"]),
            attn_implementation="sdpa",
            **source,
            **dequantize,
        )
        if not isinstance(model, SUPPORTED_MODELS) or not hasattr(model.model, "layers"):
            raise RefusedError(f"kvpress does not know the architecture {type(model).__name__}")
        self.model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
        self.reader = Reader(self.model)
        ends = self.model.generation_config.eos_token_id
        self.ends = {*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id}
        self.reads = KeptReads(
            settings["reads_folder"],
            {**settings["reads_of"], "device": self.device},
            settings["memory_bytes"],
            settings["disk_bytes"],
        )
        self.cancelled = cancelled

    @property
    def device(self) -> str:
        on_gpu = self.model.device.type == "cuda"
        return f"cuda: {torch.cuda.get_device_name()}" if on_gpu else "cpu"

    def render(self, prompt: dict[str, Any]) -> str:
        """Return a prompt's text under the weights' chat template."""
        if prompt["mode"] == "completion":
            return str(prompt["text"])
        prefilled = prompt["mode"] == "chat_prefill"
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    prompt["messages"],
                    tokenize=False,
                    add_generation_prompt=not prefilled,
                    continue_final_message=prefilled,
                )
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise RefusedError(
                f"its chat template cannot render this prompt ({reason}); use prompt mode "
                "completion, or leave the system text out"
            ) from error

    def encode(self, request: dict[str, Any]) -> tuple[list[int], int]:
        """Return the prompt's token ids, and how many of them precede the question."""
        text = self.render(request["prompt"])
        special = request["prompt"]["mode"] == "completion"  # a chat template writes its own
        encoding = self.tokenizer(text, add_special_tokens=special, return_offsets_mapping=True)
        ids = list(encoding["input_ids"])
        if request.get("outline") is None:
            return ids, 0
        head, _, tail = self.render(request["outline"]).partition(request["mark"])
        if not text.startswith(head) or not text.endswith(tail):
            raise RefusedError("its chat template changes the document")
        end = len(text) - len(tail)
        return ids, next((n for n, at in enumerate(encoding["offset_mapping"]) if at[1] > end), 0)

    def count(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"count": len(self.encode(request)[0])}

    def read(self, ids: list[int], policy: str, request: dict[str, Any]) -> tuple[Read, bool]:
        """Return the entries of ``ids``, and whether they had been read before."""
        reuse = request["reuse"]
        if reuse and (stored := self.reads.find(ids, policy, self.model.device)):
            return stored, True
        # h2o's scores take quadratic time, so they are computed only for h2o itself.
        served = {policy, "expected_attention"} if reuse else {policy}
        scored = served.intersection(SCORED_WHILE_READING)
        read = self.reader.read(ids, scored, lambda: request["id"] in self.cancelled)
        read.peak_bytes = self._peak_bytes()
        if reuse:
            self.reads.keep(ids, read)
        return read, False

    def answer(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield one answer's pieces; the last has ``finish_reason``, counts and measurements."""
        self._begin_peak()
        started = time.perf_counter()
        policy, budget, most = request["policy"], request["budget"], request["most"]
        ids, end = self.encode(request)
        if end == 0 and policy != "none":
            raise RefusedError("the prompt contains no document to compress; use policy none")
        # The last token is always read anew: its output is the answer's first token.
        end = min(end or len(ids) - 1, len(ids) - 1)
        document = ids[:end]
        extra: dict[str, Any] = {"kv_tokens": end, "kv_kept": 0, "kv_peak_bytes": 0}
        cache, reused = DynamicCache(), False
        if end:
            read, reused = self.read(document, policy, request)
            kept = max(1, round(end * budget))
            press_started = self.reader.now_ms()
            with torch.inference_mode():
                cache, window = self.reader.press(read, document, policy, kept)
            extra["kv_kept"] = min(layer.keys.shape[2] for layer in cache.layers)
            extra["kv_bytes"] = sum(
                t.numel() * t.element_size() for x in cache.layers for t in (x.keys, x.values)
            )
            scored_ms = read.score_ms.get(policy, 0.0)
            extra["kv_press_ms"] = scored_ms + self.reader.now_ms() - press_started
            extra["kv_prefill_ms"] = read.read_ms
            extra["kv_peak_bytes"] = read.peak_bytes
            if window:
                extra["kv_window"] = window
        question_started = time.perf_counter()
        tokens: list[int] = []
        shown, times = "", [started]
        for token in self._tokens(ids[end:], end, cache):
            if request["id"] in self.cancelled:
                raise CancelledError
            times.append(time.perf_counter())
            if token in self.ends:
                break
            tokens.append(token)
            text = self.tokenizer.decode(tokens, skip_special_tokens=True)
            # A character may span tokens; its bytes are held back until they are whole.
            if not text.endswith("\ufffd"):
                yield {"text": text[len(shown) :]}
                shown = text
            if len(tokens) == most:
                break
        extra["kv_ttft_ms"] = 1e3 * (times[1] - started)
        extra["kv_question_ms"] = 1e3 * (times[1] - question_started)
        if len(times) > 2:
            extra["kv_decode_ms"] = 1e3 * (times[-1] - times[1]) / (len(times) - 2)
        extra["kv_peak_bytes"] = max(extra["kv_peak_bytes"], self._peak_bytes())
        yield {
            "text": self.tokenizer.decode(tokens, skip_special_tokens=True)[len(shown) :],
            "finish_reason": "length" if len(tokens) >= most else "stop",
            "usage": [len(ids), len(tokens), end if reused else 0],
            "ttft_ms": extra["kv_ttft_ms"],
            "extra": extra,
            "problem": self.reads.problem,
        }

    def _tokens(self, feed: list[int], place: int, cache: DynamicCache) -> Iterator[int]:
        """Yield the likeliest tokens after ``feed``, which starts at position ``place``;
        endless."""
        while True:
            positions = torch.arange(place, place + len(feed), device=self.model.device)
            with torch.inference_mode():
                out = self.model(
                    torch.tensor([feed], device=self.model.device),
                    past_key_values=cache,
                    position_ids=positions.unsqueeze(0),
                    use_cache=True,
                    logits_to_keep=1,
                )
                token = int(out.logits[0, -1].argmax())
            yield token
            place, feed = place + len(feed), [token]

    def _begin_peak(self) -> None:
        """Reset the peak memory, which may come from an earlier request under another policy."""
        if self.model.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def _peak_bytes(self) -> int:
        if self.model.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated())
        with suppress(OSError):
            status = Path("/proc/self/status").read_text()
            if peak := re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE):
                return int(peak[1]) * 1024
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    """Load the model, then answer the requests from stdin one at a time."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # so that output of libraries does not mix with answers
    cancelled: set[int] = set()
    requests: queue.SimpleQueue[tuple[float, dict[str, Any]]] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            if request["op"] == "cancel":
                cancelled.add(request["id"])
            else:
                requests.put((time.perf_counter(), request))
        os._exit(0)

    def send(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    threading.Thread(target=listen, daemon=True).start()
    try:
        worker = Worker(json.loads(sys.argv[1]), cancelled)
    except Exception as error:  # transformers raises whatever it stumbles over
        send({"refused": " ".join(str(error).split())[:300]})
        return
    send({"device": worker.device})
    while True:
        arrived, request = requests.get()
        queue_ms = 1e3 * (time.perf_counter() - arrived)
        run = worker.answer if request["op"] == "answer" else worker.count
        try:
            for piece in run(request):
                send({"id": request["id"], "queue_ms": queue_ms, **piece})
        except CancelledError:
            cancelled.discard(request["id"])
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            send({"id": request["id"], "refused": reason or type(error).__name__})
        worker.reads.write()


if __name__ == "__main__":
    main()
