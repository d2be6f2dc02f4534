"""An imitation of a provider's batch interface, which keeps its files and batches in a folder.

A server that starts on the same folder goes on where the last one stopped. No real time passes:
batches take a step by `BatchServer.advance`, or with every so many polls.

It goes by what OpenAI publishes (platform.openai.com/docs/guides/batch and its API reference).
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread

TEMPLATE_TOKENS = 4
PATHS = ("/v1/chat/completions", "/v1/completions")
ALWAYS = 1 << 30
FAULTS = {
    "reordered": "a batch's results come last first",
    "error_line": "a request ends in the error file, with an error and no response",
    "error_status": "a request ends in the error file, with a response of status 400",
    "status_400": "a request ends in the output file, with a response of status 400",
    "expired": "a batch expires when half of its requests are answered",
    "cancelled": "a batch is cancelled when half of its requests are answered",
    "failed": "a batch fails its validation",
    "unknown_id": "the output file has a line that belongs to no request",
    "truncated": "the output file ends in the middle of its last line",
    "gone": "the content of a file is asked for and the file is not there",
    "create_unanswered": "the batch is made, and its creation not answered",
    "upload_unanswered": "the file is kept, and its upload not answered",
    "content_cut": "the connection breaks in the middle of a file",
}
"""Besides these, `ACTION_STATUS` (retrieve_429, upload_500) refuses an action in `ACTIONS`."""
ACTIONS = ("upload", "create", "retrieve", "list", "cancel", "content", "delete")
_STEPS = {"validating": "in_progress", "in_progress": "finalizing", "finalizing": "completed"}
_MESSAGES = {429: "slow down", 401: "Incorrect API key provided: {key}"}


def echo(prompt: str) -> str:
    return f"echo of {prompt[-40:]}"


def prompt_of(body: Mapping[str, Any]) -> str:
    """The texts of a request's messages, one after the other, or its prompt."""
    if "prompt" in body:
        return str(body["prompt"])
    return "".join(message["content"] for message in body["messages"])


class BatchServer:
    """Answers prompts by ``answer``; ``url`` ends in ``/v1``.

    ``faults``: a name of `FAULTS` or ACTION_STATUS -> how many more times it is to happen.
    ``polls_a_step``: a batch takes a step with each so many polls; None: only by `advance`.
    ``key``: the only one that is let in, if any. ``seen``: method, target and headers of requests.
    ``billed`` names the file of all that is to be paid, a line for each answered request.
    ``worker`` answers a whole file instead of ``answer``, and returns the file of results.
    """

    def __init__(
        self,
        folder: Path,
        answer: Callable[[str], str] = echo,
        *,
        polls_a_step: int | None = None,
        key: str | None = None,
        faults: Mapping[str, int] | None = None,
    ) -> None:
        self.folder, self.answer = folder, answer
        self.polls_a_step, self.key = polls_a_step, key
        self.faults = Counter(faults or {})
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.models = ("reference-short",)
        self.worker: Callable[[Path], bytes] | None = None
        self.url = ""
        self.billed = folder / "billed.jsonl"
        self._lock = threading.RLock()
        self._count = open_tokenizer("reference").count
        for name in ("files", "batches"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    # What tests look at.

    def bills(self) -> list[dict[str, Any]]:
        """All that is to be paid, in order."""
        lines = self.billed.read_text().splitlines() if self.billed.exists() else []
        return [json.loads(line) for line in lines]

    def batches(self) -> list[dict[str, Any]]:
        """All batches, the oldest first."""
        paths = sorted((self.folder / "batches").iterdir())
        return [json.loads(path.read_text()) for path in paths]

    def content(self, file_id: str) -> Path:
        return self.folder / "files" / f"{file_id}.jsonl"

    def count(self, method: str, end: str) -> int:
        """How many requests by ``method`` had a path that ends so."""
        paths = [target.partition("?")[0] for sent, target, _ in self.seen if sent == method]
        return sum(path.endswith(end) for path in paths)

    # The life of a batch.

    def advance(self, steps: int = 1) -> None:
        """Let every batch that has not ended take ``steps``."""
        for _ in range(steps):
            with self._lock:
                for batch in self.batches():
                    self._step(batch)

    def _step(self, batch: dict[str, Any]) -> None:
        status = batch["status"]
        if status == "validating" and (errors := self._errors_of(batch)):
            batch |= {"status": "failed", "errors": {"object": "list", "data": errors}}
        elif status == "in_progress":
            early = next((f for f in ("expired", "cancelled") if self._happens(f)), None)
            self._work(batch, early)
            batch["status"] = early or "finalizing"
        elif status == "cancelling":
            if not batch["request_counts"]["total"]:  # else it is answered, and paid
                self._work(batch, "cancelled")
            batch["status"] = "cancelled"
        else:
            batch["status"] = _STEPS.get(status, status)
        self._keep(batch)

    def _errors_of(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        errors: list[tuple[int | None, str, str]] = []
        ids: set[str] = set()
        models: set[str] = set()
        lines = self.content(batch["input_file_id"]).read_bytes().splitlines()
        if self._happens("failed"):
            errors.append((None, "token_limit_exceeded", f"Too many tokens for {self.key}."))
        if not lines:
            errors.append((None, "empty_file", "The input file is empty."))
        for number, line in enumerate(lines, 1):
            try:
                request = json.loads(line)
            except ValueError:
                request = None
            if not isinstance(request, dict):
                errors.append((number, "invalid_json_line", "This line is not a JSON object."))
                continue
            custom_id, body = request.get("custom_id"), request.get("body")
            if not isinstance(custom_id, str) or not custom_id:
                errors.append((number, "missing_required_parameter", "custom_id is missing."))
            elif custom_id in ids:
                errors.append((number, "duplicate_custom_id", f"{custom_id} is used twice."))
            if request.get("method") != "POST":
                errors.append((number, "invalid_method", "The method is not POST."))
            if request.get("url") != batch["endpoint"]:
                errors.append((number, "mismatched_endpoint", "The url is not the batch's."))
            if not isinstance(body, dict) or not isinstance(body.get("model"), str):
                errors.append((number, "invalid_request", "The body names no model."))
            elif models and body["model"] not in models:
                errors.append((number, "mismatched_model", "A batch has one model only."))
            else:
                models.add(body["model"])
            ids.add(str(custom_id))
        names = ("line", "code", "message", "param")
        return [dict(zip(names, (*error, None), strict=True)) for error in errors]

    def _work(self, batch: dict[str, Any], early: str | None) -> None:
        """Answer the requests, or half of them, and write the files of results."""
        lines = self.content(batch["input_file_id"]).read_bytes().splitlines()
        if self.worker is not None:
            data = self.worker(self.content(batch["input_file_id"]))
            batch["output_file_id"] = self._add_file("output.jsonl", data)
            counts = {"total": len(lines), "completed": len(data.splitlines()), "failed": 0}
            batch["request_counts"] = counts
            return
        requests = [json.loads(line) for line in lines]
        answered = len(requests) // 2 if early else len(requests)
        output: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        refusal = {"error": {"message": "nothing is to be done with this", "code": "bad_request"}}
        for number, request in enumerate(requests):
            result = {
                "id": f"batch_req_{batch['id']}_{number}",
                "custom_id": request["custom_id"],
                "response": {"status_code": 400, "request_id": f"req_{number}", "body": refusal},
                "error": None,
            }
            broken = {"code": "server_error", "message": "it broke"}
            if number >= answered:
                code = f"batch_{early}"
                error = {"code": code, "message": "This request was not executed in time."}
                errors.append({**result, "response": None, "error": error})
            elif self._happens("error_line"):
                errors.append({**result, "response": None, "error": broken})
            elif self._happens("error_status"):
                errors.append(result)
            elif self._happens("status_400"):
                output.append(result)
            else:
                body = self._completion(batch["endpoint"], request["body"])
                self._bill(request["custom_id"], body["usage"])
                output.append({**result, "response": {**result["response"], "status_code": 200,
                                                      "body": body}})  # fmt: skip
        done = len(output)
        if self._happens("unknown_id") and output:
            output.append({**output[0], "id": "batch_req_x", "custom_id": "of-nobody"})
        if self._happens("reordered"):
            output.reverse()
        data = b"".join(json.dumps(line).encode() + b"\n" for line in output)
        if self._happens("truncated"):
            data = data[: -len(json.dumps(output[-1])) // 2]
        batch["output_file_id"] = self._add_file("output.jsonl", data) if output else None
        data = b"".join(json.dumps(line).encode() + b"\n" for line in errors)
        batch["error_file_id"] = self._add_file("errors.jsonl", data) if errors else None
        batch["request_counts"] = {
            "total": len(requests), "completed": done, "failed": len(errors)
        }  # fmt: skip

    def _completion(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        prompt = prompt_of(body)
        text = self.answer(prompt)
        used = {"prompt_tokens": self._count(prompt) + TEMPLATE_TOKENS,
                "completion_tokens": self._count(text)}  # fmt: skip
        said = {"message": {"role": "assistant", "content": text}}
        choice = {"index": 0, "finish_reason": "stop"}
        choice |= said if path.endswith("/chat/completions") else {"text": text}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"],
                "choices": [choice],
                "usage": {**used, "total_tokens": sum(used.values())}}  # fmt: skip

    def _bill(self, custom_id: str | None, usage: Mapping[str, int]) -> None:
        names = ("prompt_tokens", "completion_tokens")
        line = {"custom_id": custom_id, **{name: usage[name] for name in names}}
        with self.billed.open("a") as lines:
            lines.write(json.dumps(line) + "\n")

    # The folder.

    def _happens(self, fault: str) -> bool:
        if self.faults[fault] <= 0:
            return False
        self.faults[fault] -= 1
        return True

    def _next(self) -> int:
        """A number that no file or batch has had."""
        last = self.folder / "last"
        number = int(last.read_text()) + 1 if last.exists() else 1
        last.write_text(str(number))
        return number

    def _add_file(self, name: str, data: bytes) -> str:
        number = self._next()
        file_id = f"file-{number:06}"
        self.content(file_id).write_bytes(data)
        about = {"id": file_id, "object": "file", "bytes": len(data), "filename": name,
                 "created_at": 1_700_000_000 + number, "purpose": "batch"}  # fmt: skip
        self.content(file_id).with_suffix(".json").write_text(json.dumps(about))
        return file_id

    def _path(self, batch_id: str) -> Path:
        return self.folder / "batches" / f"{batch_id}.json"

    def _keep(self, batch: dict[str, Any]) -> None:
        new = self.folder / "batch.new"
        new.write_text(json.dumps(batch))
        new.replace(self._path(batch["id"]))

    # The requests.

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = (line.split(": ", 1) for line in head[1:] if ": " in line)
            headers = {name.lower(): value for name, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, target, _ = head[0].split()
            with self._lock:
                self.seen.append((method, target, headers))
                reply = self._reply(method, target, headers, body)
            writer.write(reply)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _reply(self, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
        """The whole answer; b"" breaks the connection without one."""
        path, _, query = target.partition("?")
        key = wire.key_of(headers)
        if self.key is not None and key != self.key:
            return wire.error(401, _MESSAGES[401].replace("{key}", key), "invalid_api_key")
        parts = path.removeprefix("/v1/").split("/")
        if (method, parts) == ("GET", ["models"]):
            return _json({"object": "list", "data": [{"id": name} for name in self.models]})
        if (method, parts) == ("POST", ["chat", "completions"]):
            return self._stream(json.loads(body))
        action = _action(method, parts)
        if action is None:
            return wire.error(404, "nothing here")
        for status in (400, 401, 404, 429, 500, 503):
            if self._happens(f"{action}_{status}"):
                message = _MESSAGES.get(status, "it broke; your key was {key}")
                wait = "retry-after-ms: 1\r\n" if status == 429 else ""
                return wire.error(status, message.replace("{key}", key), extra=wait)
        if action == "upload":
            return self._upload(headers["content-type"], body)
        if action == "create":
            return self._create(json.loads(body))
        if action == "list":
            return self._list(parse_qs(query))
        if action in ("content", "delete"):
            return self._file(action, parts[1])
        return self._batch(action, parts[1])

    def _stream(self, body: Mapping[str, Any]) -> bytes:
        completion = self._completion(PATHS[0], body)
        self._bill(None, completion["usage"])
        used = completion["usage"]["prompt_tokens"], completion["usage"]["completion_tokens"]
        text = wire.chunk(completion["choices"][0]["message"]["content"])
        return wire.STREAM + text + wire.chunk(None, "stop") + wire.usage(*used) + wire.DONE

    def _upload(self, content_type: str, body: bytes) -> bytes:
        form = _form(content_type, body)
        if form.get("purpose") != ("", b"batch") or "file" not in form:
            return wire.error(400, "purpose must be batch, and file a file")
        file_id = self._add_file(*form["file"])
        if self._happens("upload_unanswered"):
            return b""
        return _json(json.loads(self.content(file_id).with_suffix(".json").read_text()))

    def _create(self, body: Mapping[str, Any]) -> bytes:
        metadata = body.get("metadata") or {}
        if not self.content(str(body.get("input_file_id"))).exists():
            return wire.error(400, "there is no such input file", "invalid_request")
        if body.get("endpoint") not in PATHS:
            return wire.error(400, f"the endpoint must be one of {PATHS}", param="endpoint")
        if not re.fullmatch(r"\d+[hd]", str(body.get("completion_window"))):
            return wire.error(400, "that is no window", param="completion_window")
        short = all(len(k) <= 64 and isinstance(v, str) and len(v) <= 512
                    for k, v in metadata.items())  # fmt: skip
        if len(metadata) > 16 or not short:
            return wire.error(400, "metadata are too many or too long", param="metadata")
        number = self._next()
        batch = {
            "id": f"batch_{number:06}", "object": "batch", "endpoint": body["endpoint"],
            "errors": None, "input_file_id": body["input_file_id"], "status": "validating",
            "completion_window": body["completion_window"], "output_file_id": None,
            "error_file_id": None, "created_at": 1_700_000_000 + number, "metadata": metadata,
            "request_counts": {"total": 0, "completed": 0, "failed": 0}, "polls": 0,
        }  # fmt: skip
        self._keep(batch)
        return b"" if self._happens("create_unanswered") else _json(_shown(batch))

    def _list(self, query: Mapping[str, list[str]]) -> bytes:
        batches = [_shown(batch) for batch in reversed(self.batches())]
        ids = [batch["id"] for batch in batches]
        start = ids.index(query["after"][0]) + 1 if "after" in query else 0
        end = start + int(query.get("limit", ["20"])[0])
        page = batches[start:end]
        return _json({"object": "list", "data": page, "has_more": end < len(batches)})

    def _batch(self, action: str, batch_id: str) -> bytes:
        if not self._path(batch_id).exists():
            return wire.error(404, f"No batch found with id '{batch_id}'.")
        batch = json.loads(self._path(batch_id).read_text())
        if action == "cancel":
            if batch["status"] not in _STEPS:
                return wire.error(409, f"a batch that is {batch['status']} cannot be cancelled")
            batch["status"] = "cancelling"
            self._keep(batch)
        else:
            batch["polls"] += 1
            self._keep(batch)
            if self.polls_a_step and batch["polls"] % self.polls_a_step == 0:
                self._step(batch)
        return _json(_shown(batch))

    def _file(self, action: str, file_id: str) -> bytes:
        path = self.content(file_id)
        if not path.exists() or (action == "content" and self._happens("gone")):
            return wire.error(404, f"No such File object: {file_id}")
        if action == "delete":
            path.unlink()
            return _json({"id": file_id, "object": "file", "deleted": True})
        data = path.read_bytes()
        head = wire.head(200, "application/octet-stream", f"Content-Length: {len(data)}\r\n")
        return head + (data[: len(data) // 2] if self._happens("content_cut") else data)


def _action(method: str, parts: list[str]) -> str | None:
    match method, parts:
        case "POST", ["files"]:
            return "upload"
        case "GET", ["files", _, "content"]:
            return "content"
        case "DELETE", ["files", _]:
            return "delete"
        case "POST", ["batches"]:
            return "create"
        case "GET", ["batches"]:
            return "list"
        case "GET", ["batches", _]:
            return "retrieve"
        case "POST", ["batches", _, "cancel"]:
            return "cancel"
    return None


def _json(value: object) -> bytes:
    return wire.head(200) + json.dumps(value).encode()


def _shown(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name != "polls"}


def _form(content_type: str, body: bytes) -> dict[str, tuple[str, bytes]]:
    """Name of a field -> name of its file, if it is one, and its content (RFC 7578)."""
    boundary = content_type.partition("boundary=")[2].strip('"').encode()
    fields = {}
    for part in body.split(b"--" + boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        names = dict(re.findall(r'\b(name|filename)="([^"]*)"', head.decode()))
        fields[names["name"]] = names.get("filename", ""), content.removesuffix(b"\r\n")
    return fields


@contextmanager
def batch_server(
    folder: Path, answer: Callable[[str], str] = echo, **settings: Any
) -> Iterator[BatchServer]:
    """A running `BatchServer`."""
    server = BatchServer(folder, answer, **settings)
    with on_a_thread(server.handle) as url:
        server.url = url
        yield server
