"""Cost to a gateway of checking a request against the cap.

    python benchmarks/gateway.py

Prompts are Python source code of several lengths. A "bytes" prompt is within the cap by its bytes
alone, so its tokens are not counted; a "counted" prompt needs counting. "ASGI" adds parsing the
body as JSON and, for long bodies, handing it to a thread. Figures are medians of 15 requests, after
one that loads the tokenizer.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import statistics
import tempfile
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contextcliff_dagster.gateway.asgi import SafeContextMiddleware
from contextcliff_dagster.gateway.gate import Gate
from contextcliff_dagster.gateway.settings import GateSettings
from contextcliff_dagster.policy import SafeContext, as_json

TIMES = 15
TODAY = datetime.now(UTC).date()


def policy_of(tokenizer: str, cap: int) -> SafeContext:
    return SafeContext(
        model="m", identity=None, task="lookup", tokenizer=tokenizer, tokenizer_sha256=None,
        safe_cap_tokens=cap, cap_prompt_tokens=None, tolerance=0.3, confidence=0.95, n=200,
        n_documents=200, date=TODAY.isoformat(), expiry=(TODAY + timedelta(days=9)).isoformat(),
        study="s", campaign="c", score="em",
    )  # fmt: skip


def median_ms(act: Callable[..., object], *given: object) -> float:
    act(*given)
    times = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        act(*given)
        times.append(time.perf_counter() - begun)
    return 1_000 * statistics.median(times)


async def through(app: SafeContextMiddleware, content: bytes) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}
    await app(scope, receive, send)


def ask(app: SafeContextMiddleware, content: bytes) -> None:
    asyncio.run(through(app, content))


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await receive()


def main() -> None:
    source = "".join(inspect.getsource(module) for module in (argparse, inspect, textwrap))
    print(f"{'tokenizer':<22}{'tokens':>9}{'kB':>7}{'bytes':>10}{'counted':>10}{'ASGI':>10}  ms")
    with tempfile.TemporaryDirectory() as folder:
        for tokenizer in ("tiktoken:o200k_base", "tiktoken:cl100k_base"):
            for tokens in (1_000, 10_000, 100_000):
                rule = policy_of(tokenizer, 1)
                whole = source * 20
                text = whole[: int(len(whole) * tokens / rule.count(whole))]
                body = {"model": "m", "messages": [{"role": "user", "content": text}]}
                path = Path(folder) / "safe-context.json"
                path.write_text(json.dumps(as_json([policy_of(tokenizer, 10_000_000)])))
                gate = Gate(GateSettings.of({"policy": path}))
                by_bytes = median_ms(gate.decide, body)
                path.write_text(json.dumps(as_json([policy_of(tokenizer, 2 * tokens)])))
                counted = median_ms(gate.decide, body)
                app = SafeContextMiddleware(answer, policy=path)
                content = json.dumps(body).encode()
                asgi = median_ms(ask, app, content)
                print(
                    f"{tokenizer:<22}{rule.count(text):>9,}{len(text) // 1_000:>7}"
                    f"{by_bytes:>10.2f}{counted:>10.2f}{asgi:>10.2f}"
                )


if __name__ == "__main__":
    main()
