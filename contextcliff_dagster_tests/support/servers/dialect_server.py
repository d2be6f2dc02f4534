"""Small servers that speak as vLLM, llama.cpp, KoboldCpp, NIM and others do, each at its own paths.

The options of each:

- ``kind``: ``vllm``, ``llamacpp``, ``koboldcpp``, ``nim``, ``ollama``, ``lmstudio``, ``router``
  (llama.cpp's in front of others); anything else is an endpoint that has
  completions and a list of models, and no more;
- ``window``: in tokens; KoboldCpp's keeps the end of what is longer, the others refuse it;
- ``faults``: path -> what happens there to the first requests, instead of the answer: a status,
  ``reset``, ``html`` (with status 200), ``empty``, ``list``, ``garbage``, ``redirect``; the last
  stays where the list ends with ``always``;
- ``redirect``: where to; ``log``: a file with one JSON line for every request, its options (all of
  the body but the texts) included;
- ``echo``: tells the key that it was sent in all that it says of itself;
- ``cut_to``: reads so many tokens of a prompt, whatever it says of its window;
- ``metrics``: what it reports of each request next to the usage.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.support.servers import faulty_server as wire

BUSY = ("408", "429", "500", "502", "503", "504")
TEMPLATE = "<|im_start|>assistant\n"
COMPLETION_TOKENS = 2


def render(messages: list[dict[str, str]], *, go_on: bool) -> str:
    turns = [f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in messages]
    if go_on:
        return "".join(turns).removesuffix("<|im_end|>\n")
    return "".join(turns) + TEMPLATE


def options(body: dict[str, Any]) -> dict[str, Any]:
    texts = ("messages", "prompt", "input", "content")
    return {name: value for name, value in body.items() if name not in texts}


class DialectServer:
    def __init__(self, options: dict[str, Any]) -> None:
        self.kind: str = options["kind"]
        self.window: int = options.get("window", 4096)
        self.faults: dict[str, list[str]] = options.get("faults", {})
        self.options = options
        self.log = Path(options["log"]) if options.get("log") else None
        self.count = open_tokenizer("reference").count

    # --- what each says of itself

    def told(self, path: str, key: str) -> Any:
        """The answer to a question about the server; None where it has none there."""
        said = key if self.options.get("echo") else ""
        listed: dict[str, Any] = {"id": "served", "object": "model", "created": 0}
        if self.kind in ("vllm", "nim"):
            listed |= {"root": f"/models/served{said}", "max_model_len": self.window}
        elif self.kind == "llamacpp":
            listed["meta"] = {"n_ctx_train": 32768, "n_params": 7}
        elif self.kind == "koboldcpp":
            listed |= {"id": f"koboldcpp/served{said}", "root": "koboldcpp"}
        if path == "/v1/models":
            return {"object": "list", "data": [listed]}
        return {
            "vllm": {"/version": {"version": f"0.11.0{said}"}},
            "nim": {
                "/v1/version": {"release": f"1.8.3{said}", "api": "1.8.3"},
                "/v1/metadata": {
                    "version": "1.8.3",
                    "modelInfo": [{"shortName": "served:1", "modelUrl": "ngc://nim/a/served:hf"}],
                    "selectedModelProfileId": "4f904d571fe6",
                },
            },
            "llamacpp": {"/props": self.props(said)},
            "router": {"/props": {"role": "router", "default_generation_settings": {"n_ctx": 0}}},
            "koboldcpp": {
                "/api/extra/version": {"result": "KoboldCpp", "version": f"1.102{said}"},
                "/api/extra/true_max_context_length": {"value": self.window},
                "/props": self.props(said),  # it has llama.cpp's, too
                "/api/version": {"version": "0.7.0"},  # and Ollama's
                "/api/tags": {"models": []},
            },
            "ollama": {
                "/api/version": {"version": "0.13.1"},
                "/api/ps": {"models": [{"name": "served:latest", "context_length": self.window}]},
            },
            "lmstudio": {
                "/api/v0/models": {
                    "data": [
                        {
                            "id": "served",
                            "compatibility_type": "gguf",
                            "max_context_length": 1 << 17,
                            "loaded_context_length": self.window,
                        }
                    ]
                },
            },
        }.get(self.kind, {}).get(path)

    def props(self, said: str) -> dict[str, Any]:
        params = {
            "repeat_penalty": 1.1,
            "temperature": 0.8,
            "seed": 4294967295,
            "samplers": ["dry"],
        }
        return {
            "default_generation_settings": {"n_ctx": self.window, "params": params},
            "build_info": f"b6800-abc{said}",
            "chat_template": f"{{{{ messages }}}}{said}",
            "model_path": "/models/served.gguf",
        }

    # --- counting

    def counted(self, path: str, body: dict[str, Any]) -> Any:
        if self.kind in ("vllm", "nim") and path == "/tokenize":
            tokens = self.count(self.read(body))
            return {"count": tokens, "max_model_len": self.window, "tokens": [0] * tokens}
        if self.kind == "llamacpp" and path == "/apply-template":
            return {"prompt": self.read(body)}
        if self.kind == "llamacpp" and path == "/tokenize":
            return {"tokens": [0] * self.count(body["content"])} if "content" in body else {}
        if self.kind == "koboldcpp" and path == "/api/extra/tokencount":
            tokens = self.count(body["prompt"])
            return {"value": tokens, "ids": [0] * tokens}
        return None

    @staticmethod
    def read(body: dict[str, Any]) -> str:
        if "messages" not in body:
            return str(body["prompt"])
        return render(body["messages"], go_on=bool(body.get("continue_final_message")))

    # --- answering

    def complete(self, path: str, body: dict[str, Any]) -> bytes:
        tokens = self.count(self.read(body))
        limit = int(body["max_tokens"])
        if self.kind == "koboldcpp":
            tokens = min(tokens, self.window - limit)
        elif tokens + limit > self.window:
            return wire.error(400, f"This model's maximum context length is {self.window} tokens.")
        tokens = min(tokens, self.options.get("cut_to", tokens))
        if path.endswith("/chat/completions"):
            answer = wire.ANSWER
        else:
            choice = {"index": 0, "text": "937915", "finish_reason": "stop"}
            answer = wire.STREAM + wire.event({"choices": [choice]})
        told = {"prompt_tokens": tokens, "completion_tokens": COMPLETION_TOKENS}
        last = {"choices": [], "usage": told, "metrics": self.options.get("metrics")}
        return answer + wire.event(last) + wire.DONE

    @staticmethod
    def embed(body: dict[str, Any]) -> Any:
        vectors = [[float(len(text)), 1.0, -0.5] for text in body["input"]]
        data = [{"index": place, "embedding": vector} for place, vector in enumerate(vectors)]
        return {"data": data[::-1], "usage": {"prompt_tokens": 7, "total_tokens": 7}}

    def fault(self, path: str) -> str | None:
        waiting = self.faults.get(path) or self.faults.get("*") or []
        if not waiting:
            return None
        return waiting[0] if waiting[-1] == "always" else waiting.pop(0)

    def faulty(self, what: str, writer: asyncio.StreamWriter) -> bytes:
        if what == "reset":
            writer.transport.abort()
            return b""
        if what == "redirect":
            location = f"location: {self.options['redirect']}\r\n"
            return wire.head(307, extra=location) + b"{}"
        said = {"html": b"<html>Welcome</html>", "empty": b"", "list": b"[1, 2]"}
        if what in said or what == "garbage":
            return wire.head(200, "text/html") + said.get(what, b'\x00\xff{"version": ')
        return wire.error(int(what), "just now", extra="retry-after-ms: 10\r\n")

    def answer(self, path: str, key: str, body: dict[str, Any]) -> bytes:
        if path.endswith("/completions"):
            return self.complete(path, body)
        if path == "/v1/embeddings" and self.kind != "plain":
            reply = self.embed(body)
        else:
            reply = self.counted(path, body) if body else self.told(path, key)
        if reply is None and self.kind == "lmstudio":
            return wire.head(200) + json.dumps({"error": f"Unexpected endpoint ({path})"}).encode()
        if reply is None and self.kind == "ollama" and path == "/":
            return wire.head(200, "text/plain") + b"Ollama is running"
        if reply is None:
            return wire.error(404, "Not Found")
        return wire.head(200) + json.dumps(reply).encode()

    async def before_answer(self, path: str) -> None:
        """For tests that hold a request which has been noted."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, headers, data = await wire.read_request(reader)
            body = json.loads(data) if data else {}
            if self.log:
                line = {"path": path, "headers": headers, "options": options(body)}
                with self.log.open("a") as lines:
                    lines.write(json.dumps(line) + "\n")
            await self.before_answer(path)
            if what := self.fault(path):
                writer.write(self.faulty(what, writer))
            else:
                writer.write(self.answer(path, wire.key_of(headers), body))
            if not writer.transport.is_closing():
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
