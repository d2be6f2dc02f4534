"""The middleware in front of real servers: what is within the cap arrives as it was sent."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from contextcliff_dagster.gateway.asgi import SafeContextMiddleware
from contextcliff_dagster.policy import PolicyError
from contextcliff_dagster_tests.support.files.policies import policy_row, write_policies

LONG = "word " * 3_000
PIECES = [b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_policies(tmp_path / "safe-context.json", policy_row("m"), policy_row("n"))


def starlette_app(sent: list[bytes], **settings: Any) -> Any:
    async def answer(request: Request) -> Response:
        sent.append(await request.body())
        assert str(len(sent[-1])) == request.headers.get("content-length", str(len(sent[-1])))
        if b'"stream"' in sent[-1]:

            async def stream() -> Any:
                for piece in PIECES:
                    yield piece

            return StreamingResponse(stream(), media_type="text/event-stream")
        return Response(sent[-1], media_type="application/json")

    every = Route("/{path:path}", answer, methods=["POST", "PUT"])
    return Starlette(routes=[every], middleware=[Middleware(SafeContextMiddleware, **settings)])


def bare_app(sent: list[bytes], **settings: Any) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                kind = (await receive())["type"]
                await send({"type": f"{kind}.complete"})
                if kind == "lifespan.shutdown":
                    return
        message, content = {"more_body": True}, b""
        while message.get("more_body"):
            message = await receive()
            content += message.get("body", b"")
        sent.append(content)
        streamed = b'"stream"' in content
        headers = [(b"content-type", b"text/event-stream" if streamed else b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in PIECES if streamed else [content]:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return SafeContextMiddleware(app, **settings)


@contextmanager
def serving(app: Any) -> Iterator[int]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    socket = server.config.bind_socket()
    socket.listen()  # who connects before the server has started waits in line
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    try:
        yield socket.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def post(
    port: int, path: str, body: Any, method: str = "POST", **headers: str
) -> tuple[int, bytes]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method, path, content, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    try:
        return answer.status, answer.read()
    finally:
        connection.close()


APPS = pytest.mark.parametrize("made", [starlette_app, bare_app], ids=["starlette", "bare"])


@APPS
def test_every_endpoint_refuses_above_the_cap_and_is_not_touched_below(
    made: Callable[..., Any], policy: Path
) -> None:
    sent: list[bytes] = []

    def bodies(text: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": text}]
        return {
            "/v1/chat/completions": {"messages": messages, "model": "m"},
            "/openai/v1/completions/": {"prompt": text, "model": "m"},
            "/v1/messages": {"system": text, "messages": [], "model": "m"},
            "/v1/responses": {"input": text, "model": "m"},
        }

    with serving(made(sent, policy=policy)) as port:
        for path, body in bodies("é ü").items():
            content = json.dumps(body, ensure_ascii=False, indent=1).encode()
            assert post(port, path, content) == (200, content)
            assert sent.pop() == content
        for path, body in bodies(LONG).items():
            status, answer = post(port, path, body)
            assert status == 400
            assert "safe cap of 1,000 for m" in json.loads(answer)["error"]["message"]
        assert sent == []


@APPS
def test_a_stream_arrives_as_it_is_and_a_long_prompt_at_the_larger_model(
    made: Callable[..., Any], policy: Path
) -> None:
    sent: list[bytes] = []
    body = {"model": "n", "messages": [{"role": "user", "content": LONG}], "temperature": 0.0}
    with serving(made(sent, policy=policy, route_to={"n": "large"})) as port:
        assert post(port, "/v1/chat/completions", body)[0] == 200
        assert json.loads(sent.pop()) == {**body, "model": "large"}
        short = {"model": "m", "prompt": "a", "stream": True}
        assert post(port, "/v1/completions", short) == (200, b"".join(PIECES))


@APPS
def test_other_paths_and_methods_are_none_of_its_business(
    made: Callable[..., Any], policy: Path
) -> None:
    sent: list[bytes] = []
    body = {"model": "m", "prompt": LONG, "input": LONG, "messages": [{"content": LONG}]}
    with serving(made(sent, policy=policy, unknown="refuse", max_body_bytes=10)) as port:
        for path in ("/v1/embeddings", "/v1/messages/count_tokens", "/", "/v1/chat"):
            assert post(port, path, body)[0] == 200
        assert post(port, "/v1/completions", body, method="PUT")[0] == 200
    assert [json.loads(content) for content in sent] == [body] * 5


@APPS
def test_a_body_that_cannot_be_read_goes_by_the_setting(
    made: Callable[..., Any], policy: Path
) -> None:
    unreadable: list[tuple[bytes, dict[str, str]]] = [
        (b"", {}), (b"{", {}), (b"\xff\xfe\xfa", {}), (b"[" * 100_000, {}), (b"[1]", {}),
        (b'{"model": "m", "prompt": "a"}', {"Content-Encoding": "gzip"}),
    ]  # fmt: skip
    for setting, status in (("pass", 200), ("refuse", 400)):
        sent: list[bytes] = []
        with serving(made(sent, policy=policy, unknown=setting)) as port:
            for content, headers in unreadable:
                assert post(port, "/v1/completions", content, **headers)[0] == status
        assert sent == ([content for content, _ in unreadable] if status == 200 else [])


def test_a_body_that_can_be_read_in_two_ways_is_not_passed(policy: Path) -> None:
    long = json.dumps(LONG)
    twice = f'{{"model": "m", "prompt": {long}, "prompt": "a"}}'.encode()
    sent: list[bytes] = []
    with serving(bare_app(sent, policy=policy)) as port:
        for content in (
            twice, b'{"model": "m", "model": "other"}', b'{"model": "other", "Model": "m"}',
            b'{"model": "m", "messages": [{"content": "a", "content": "b"}]}',
        ):  # fmt: skip
            status, answer = post(port, "/v1/completions", content)
            assert status == 400
            assert "twice in one object" in json.loads(answer)["error"]["message"]
        plain = f'{{"model": "m", "prompt": {long}}}'.encode()
        for path in ("/v1/Completions", "//v1/chat//completions", "/v1/completions/x/../."):
            assert post(port, path, plain)[0] == 400
        # Some servers do not look at this header, and read what is not compressed at all.
        assert post(port, "/v1/completions", plain, **{"Content-Encoding": "gzip"})[0] == 400
        for encoding in ("utf-16", "utf-8-sig", "utf-32"):
            packed = plain.decode().encode(encoding)
            assert post(port, "/v1/completions", packed)[0] == 400
    assert sent == []


def test_a_body_in_chunks_reaches_the_larger_model_with_one_length(policy: Path) -> None:
    sent: list[bytes] = []
    headers: list[Any] = []
    app = bare_app(sent, policy=policy, route_to={"n": "large"})
    inner = app.app

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        headers.extend(scope.get("headers", []))
        await inner(scope, receive, send)

    app.app = noting
    content = json.dumps({"model": "n", "prompt": LONG}).encode()
    pieces = [content[at : at + 1_000] for at in range(0, len(content), 1_000)]
    with serving(app) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("POST", "/v1/completions", iter(pieces), encode_chunked=True,
                           headers={"Transfer-Encoding": "chunked"})  # fmt: skip
        assert connection.getresponse().status == 200
        connection.close()
    assert json.loads(sent.pop())["model"] == "large"
    assert b"transfer-encoding" not in dict(headers)
    assert b"content-length" in dict(headers)


def test_a_body_above_the_limit_is_refused_before_it_has_come(policy: Path) -> None:
    sent: list[bytes] = []
    with serving(bare_app(sent, policy=policy, max_body_bytes=100_000)) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Content-Length", "1000000000")
        connection.endheaders(b"x" * 200_000)
        answer = connection.getresponse()
        assert answer.status == 413
        assert "100,000 bytes" in json.loads(answer.read())["error"]["message"]
        connection.close()
    assert sent == []


def test_a_caller_who_leaves_early_reaches_nobody(policy: Path) -> None:
    sent: list[bytes] = []
    with serving(bare_app(sent, policy=policy)) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"{")
        connection.close()
        assert post(port, "/v1/completions", {"model": "m", "prompt": "a"})[0] == 200
    assert len(sent) == 1


def test_a_changed_policy_holds_without_a_restart(policy: Path) -> None:
    body = {"model": "m", "prompt": LONG}
    with serving(bare_app([], policy=policy)) as port:
        assert post(port, "/v1/completions", body)[0] == 400
        write_policies(policy, policy_row("m", 100_000))
        assert post(port, "/v1/completions", body)[0] == 200


@APPS
def test_without_its_tokenizer_an_application_does_not_start_unless_bytes_are_accepted(
    made: Callable[..., Any], tmp_path: Path
) -> None:
    row = policy_row("m", tokenizer="file:/nowhere/tokenizer.json")
    policy = write_policies(tmp_path / "safe-context.json", row)
    with (
        pytest.raises(PolicyError, match=r"file:/nowhere/tokenizer\.json.*`count: bytes`"),
        TestClient(made([], policy=policy)),
    ):
        pass
    sent: list[bytes] = []
    with serving(made(sent, policy=policy, count="bytes")) as port:
        assert post(port, "/v1/completions", {"model": "m", "prompt": "word " * 190})[0] == 200
        status, answer = post(port, "/v1/completions", {"model": "m", "prompt": "word " * 210})
    error = json.loads(answer)["error"]
    assert (status, len(sent), error["code"]) == (400, 1, "context_length_exceeded")
    assert "A prompt of at most 1,051 tokens by bytes" in error["message"]


def test_a_document_is_counted_in_tokens_not_in_bytes(tmp_path: Path) -> None:
    row = policy_row("m", 1_500, tokenizer="tiktoken:o200k_base")
    policy = write_policies(tmp_path / "safe-context.json", row)
    body = {"model": "m", "prompt": "The tenant pays the rent. " * 200}
    for count, status in (("tokenizer", 200), ("bytes", 400)):
        with serving(bare_app([], policy=policy, count=count)) as port:
            assert post(port, "/v1/completions", body)[0] == status
