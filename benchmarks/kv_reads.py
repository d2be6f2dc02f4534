"""Savings from caching documents read by the engine `kvpress`, across policies and budgets.

    python benchmarks/kv_reads.py [--model smollm2-135m] [--policies snapkv] [--budgets 0.2 0.4 0.8]
                                  [--documents 4] [--questions 5]

The documents are beginnings of Python files, as in `make profile-local`. Each question is asked
under each policy and budget, each in its own worker, as in a study: once without disk space for the
cache, so that every worker reads all documents, and once with the default space. Prints how many
documents were read, CPU and wall seconds, and whether the answers are the same. Needs
`make install-kv` and `make local-model`.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from typing import Any

from contextcliff_dagster.inference.engines.base import Decoding, EngineSession
from contextcliff_dagster.inference.engines.kvpress.engine import DISK_VARIABLE
from contextcliff_dagster.inference.execution.single_request import Answer, ask
from contextcliff_dagster.inference.models.kv_variants import KvVariant
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe, SharedText
from contextcliff_dagster_tests.support.files.source_lines import source_documents

RECIPE = Recipe(
    instructions=("Copy the whole line of the text above that begins with: {question}",)
)
BYTES, OUTPUT_TOKENS = (600, 3000), 6


def _prompts(documents: int, questions: int) -> list[Prompt]:
    made = source_documents(documents, BYTES, lines=questions)
    return [RECIPE.render(SharedText(d.text), line.beginning) for d in made for line in d.lines]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _answers(model: str, prompts: list[Prompt]) -> list[Answer]:
    async def work(engine: Any) -> list[Answer]:
        return [await ask(engine, prompt, Decoding(OUTPUT_TOKENS)) for prompt in prompts]

    entry = get_model(model).model_copy(update={"threads": 1})
    with EngineSession(entry) as session:
        return session.submit(work(session.engine)).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--policies", nargs="+", default=["snapkv"])
    parser.add_argument("--budgets", nargs="+", type=float, default=[0.2, 0.4, 0.8])
    parser.add_argument("--documents", type=int, default=4)
    parser.add_argument("--questions", type=int, default=5)
    options = parser.parse_args()
    prompts = _prompts(options.documents, options.questions)
    names = [KvVariant(options.model, p, b).name for p in options.policies for b in options.budgets]
    texts: list[list[str]] = []
    print(f"{len(names)} models, {options.documents} documents, {len(prompts)} questions\n")
    print("| kept | documents read | reading, s | CPU s | wall s |\n|---|--:|--:|--:|--:|")
    for kept, room in (("not", "0"), ("on the disk", "8")):
        os.environ[DISK_VARIABLE] = room
        cpu_s, started = _cpu_s(), time.time()
        with tempfile.TemporaryDirectory() as store:
            os.environ["CONTEXTCLIFF_HOME"] = store
            given = [answer for name in names for answer in _answers(name, prompts)]
        wall_s, cpu_s = time.time() - started, _cpu_s() - cpu_s
        read = [answer for answer in given if answer.usage and not answer.usage.cached_tokens]
        read_s = sum(float(answer.extra["kv_prefill_ms"] or 0) for answer in read) / 1e3
        texts.append([answer.text for answer in given])
        print(f"| {kept} | {len(read)} | {read_s:.1f} | {cpu_s:.0f} | {wall_s:.0f} |", flush=True)
    print(f"\nThe answers are {'the same' if texts[0] == texts[1] else 'NOT the same'}.")


if __name__ == "__main__":
    main()
