"""Other clients for benchmarks/overhead.py, each run in its own process (and environment).

    python overhead_peers.py bare|inspect_ai|lm-eval URL SAMPLES CHARS DOCUMENTS CONCURRENCY

It imports nothing of this project. Start-up, before the clock starts, covers imports and one
sample. Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORDS = ["warehouse", "ledger", "día", "pallet", "SKU-482", "received", "shipped", '"qty"', "crate"]


def texts(chars: int, documents: int) -> list[str]:
    """Return documents of about ``chars`` characters that differ from the first line."""
    rng = random.Random(0)
    page = " ".join(rng.choices(WORDS, k=chars // 7)) + "\n"
    return [f"Document {number}\n{page}"[: chars - 1] + "\n" for number in range(documents)]


def question(number: int) -> str:
    return f"How many crates does SKU-{number} have? Answer with the number only."


def timed(start_up: Callable[[], Callable[[], int]]) -> dict[str, Any]:
    """Time the function that ``start_up`` returns, and the start-up separately."""
    run = start_up()
    startup_cpu, began = time.process_time(), time.perf_counter()
    answered = run()
    return {
        "answered": answered,
        "startup_cpu_s": startup_cpu,
        "cpu_s": time.process_time() - startup_cpu,
        "wall_s": time.perf_counter() - began,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def bare(url: str, samples: int, chars: int, documents: int, concurrency: int) -> dict[str, Any]:
    """Run aiohttp and orjson, storing nothing: about the least cost of a Python client."""

    def start_up() -> Callable[[], int]:
        import asyncio

        import aiohttp
        import orjson

        page = texts(chars, documents)

        async def ask(session: aiohttp.ClientSession, number: int) -> bool:
            body = {
                "model": "stub",
                "stream": True,
                "stream_options": {"include_usage": True},
                "temperature": 0,
                "max_tokens": 64,
                "messages": [
                    {"role": "user", "content": page[number % documents] + question(number)}
                ],
            }
            kind = {"Content-Type": "application/json"}
            answer, usage = "", None
            async with session.post(
                f"{url}/chat/completions", data=orjson.dumps(body), headers=kind
            ) as response:
                response.raise_for_status()
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        chunk = orjson.loads(line[6:])
                        if chunk["choices"]:
                            answer += chunk["choices"][0]["delta"].get("content") or ""
                        usage = chunk.get("usage") or usage
            return bool(answer and usage)

        async def all_of(numbers: range) -> int:
            left = iter(numbers)
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=concurrency)
            ) as session:

                async def worker() -> int:
                    done = 0
                    for number in left:
                        done += await ask(session, number)
                    return done

                return sum(await asyncio.gather(*(worker() for _ in range(concurrency))))

        asyncio.run(all_of(range(1)))
        return lambda: asyncio.run(all_of(range(samples)))

    return timed(start_up)


def inspect_ai(
    url: str, samples: int, chars: int, documents: int, concurrency: int
) -> dict[str, Any]:
    """Run inspect_ai's OpenAI-compatible provider, with its log on and its live view off."""
    os.environ.update(STUB_API_KEY="none", STUB_BASE_URL=url)
    folder = tempfile.mkdtemp()

    def start_up() -> Callable[[], int]:
        from inspect_ai import Task, eval
        from inspect_ai.dataset import MemoryDataset, Sample
        from inspect_ai.scorer import exact
        from inspect_ai.solver import generate

        page = texts(chars, documents)

        def run(n: int) -> int:
            made = [
                Sample(page[number % documents] + question(number), target="93791508", id=number)
                for number in range(n)
            ]
            logs = eval(
                Task(MemoryDataset(made), solver=generate(), scorer=exact()),
                model="openai-api/stub/stub",
                max_connections=concurrency,
                max_samples=concurrency,
                log_dir=folder,
                log_realtime=False,
                display="none",
                temperature=0,
                max_tokens=64,
            )
            assert logs[0].status == "success", logs[0].error
            results = logs[0].results
            return results.completed_samples if results else 0

        run(1)
        return lambda: run(samples)

    return timed(start_up)


def lm_eval(url: str, samples: int, chars: int, documents: int, concurrency: int) -> dict[str, Any]:
    """Run lm-eval's local-chat-completions, which neither streams nor stores until the end."""
    os.environ.update(OPENAI_API_KEY="none", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    folder = Path(tempfile.mkdtemp())
    os.environ["HF_HOME"] = str(folder / "hf")

    def start_up() -> Callable[[], int]:
        import lm_eval
        from lm_eval.api.task import ConfigurableTask
        from lm_eval.tasks import TaskManager

        manager = TaskManager()  # reads thousands of task files: start-up
        page = texts(chars, documents)

        def task(n: int) -> ConfigurableTask:
            path = folder / f"{n}.jsonl"
            with path.open("w") as lines:
                for number in range(n):
                    text = page[number % documents] + question(number)
                    lines.write(json.dumps({"prompt": text, "target": "93791508"}) + "\n")
            return ConfigurableTask(
                config={
                    "task": f"stub_{n}",
                    "dataset_path": "json",
                    "dataset_kwargs": {"data_files": {"test": str(path)}},
                    "test_split": "test",
                    "output_type": "generate_until",
                    "doc_to_text": "{{prompt}}",
                    "doc_to_target": "{{target}}",
                    "generation_kwargs": {"until": [], "max_gen_toks": 64, "do_sample": False},
                    "metric_list": [{"metric": "exact_match"}],
                }
            )

        def run(task: ConfigurableTask, n: int) -> int:
            result = lm_eval.simple_evaluate(
                model="local-chat-completions",
                model_args=f"model=stub,base_url={url}/chat/completions,"
                f"num_concurrent={concurrency},tokenized_requests=False,max_retries=1,"
                "max_length=1000000",
                tasks=[task],
                task_manager=manager,
                apply_chat_template=True,
                bootstrap_iters=0,
            )
            replies = result["samples"][f"stub_{n}"]
            return sum(line["filtered_resps"] == ["93791508"] for line in replies)

        run(task(1), 1)
        whole = task(samples)
        return lambda: run(whole, samples)

    return timed(start_up)


CLIENTS = {"bare": bare, "inspect_ai": inspect_ai, "lm-eval": lm_eval}

if __name__ == "__main__":
    name, url, *numbers = sys.argv[1:]
    print(json.dumps(CLIENTS[name](url, *map(int, numbers))))
