"""Effect of the call order on vLLM's prefix cache: planned, shuffled, question by question.

    python benchmarks/vllm_prefix_order.py [--documents 20] [--questions 30] [--tokens 2000]

The engine ``vllm`` measures each order in a separate process with its own ledger, one call at a
time, with a cache that holds about four documents. Prints CPU and wall seconds of the calls
alone (start-up apart), the share of prompt tokens that came from the cache, and whether the answers
are the same in every order. Needs vLLM (docs/inference.md).

The model is a Llama with random weights (2 layers, 512 wide), whose answers mean nothing but differ
from prompt to prompt. The reference models are too small: reading costs them little compared with
vLLM's cost per step.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.inference.engines.base import Decoding, EngineSession, open_engine
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import PlannedCall, plan_calls
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster.reference.warehouse_documents import generate_ledger, records_for_tokens

ORDERS = ("ours", "shuffled", "by question", "no cache")
DOCUMENTS_IN_CACHE = 4
RECIPE = Recipe(template="{document}{question}", max_output_tokens=4)
LAYERS, WIDTH, HEADS, BLOCK = 2, 512, 8, 128


class Sample:
    """A sample of ``questions`` on each of ``documents`` ledgers, in one bin, shuffled."""

    def __init__(self, documents: int, questions: int, tokens: int) -> None:
        records = records_for_tokens(tokens)
        self._texts: dict[str, str] = {}
        examples = []
        for seed in range(documents):
            ledger = generate_ledger(seed, records, questions_per_level=questions)
            self._texts[ledger.document_id] = ledger.text
            asked = [question for question in ledger.questions if question.level == 1]
            for number, question in enumerate(asked[:questions]):
                metadata = {"level": 1, "number": number}
                name = f"{seed}-{number}"
                examples.append(
                    Example(
                        name, ledger.document_id, question.question, question.answers,
                        task="lookup", metadata=metadata,
                    )
                )  # fmt: skip
        random.Random(0).shuffle(examples)
        self.examples = examples
        self.length = tokens

    def planned(self, bin: str, n: int) -> list[Any]:
        return [
            _Planned(example, self.length, bin, rank)
            for rank, example in enumerate(self.examples[:n])
        ]

    def document_text(self, document_id: str) -> str:
        return self._texts[document_id]


class _Planned:
    def __init__(self, example: Example, length_tokens: int, bin: str, rank: int) -> None:
        self.example, self.length_tokens, self.bin, self.rank = example, length_tokens, bin, rank


def in_order(calls: list[PlannedCall], order: str) -> list[PlannedCall]:
    """Return ``calls`` as planned ("ours", "no cache"), or in another order."""
    if order == "shuffled":
        return random.Random(1).sample(calls, len(calls))
    if order == "by question":  # the worst for a cache of the most recent: none is ever found
        return sorted(calls, key=lambda c: (c.example.metadata["number"], c.example.document_id))
    return calls


def random_llama(folder: Path) -> None:
    """Write weights from a fixed seed, with the reference models' tokenizer next to them."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    for path in weights_path("reference-short").glob("*token*"):
        shutil.copy(path, folder)
    shutil.copy(weights_path("reference-short") / "chat_template.jinja", folder)
    own = json.loads((weights_path("reference-short") / "config.json").read_text())
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=own["vocab_size"],
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=8192,
        initializer_range=0.3,
        eos_token_id=own["eos_token_id"],
        pad_token_id=own["pad_token_id"],
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def measure(folder: str, order: str, sample: Sample) -> dict[str, Any]:
    """Measure one order in this process."""
    blocks = DOCUMENTS_IN_CACHE * -(-(sample.length + 64) // BLOCK) + 2
    block_bytes = BLOCK * 2 * LAYERS * WIDTH * 4  # keys and values, float32
    entry = ModelEntry.model_validate(
        {
            "name": "random-llama", "engine": "vllm", "weights": folder, "dtype": "float32",
            "window_tokens": sample.length + 200, "concurrency": 1,
            "vllm": {
                "prefix_caching": order != "no cache",
                "kv_cache_gib": blocks * block_bytes / (1 << 30),
                "engine_args": {"block_size": BLOCK},
            },
        }
    )  # fmt: skip
    n = len(sample.examples)
    calls = in_order(plan_calls(sample, "any", RECIPE, "any", ["b00"], n), order)
    decoding = Decoding(RECIPE.max_output_tokens)
    answers: dict[str, str] = {}
    read = cached = 0
    with EngineSession(entry, open_engine(entry)) as session:
        cpu, wall = time.process_time(), time.perf_counter()
        for call in calls:
            answer = session.submit(ask(session.engine, call.prompt(), decoding)).result()
            assert answer.usage is not None
            answers[call.example.example_id] = answer.text
            read += answer.usage.prompt_tokens or 0
            cached += answer.usage.cached_tokens or 0
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu_s": cpu, "wall_s": wall, "cached": cached / read, "answers": answers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "ORDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        sample = Sample(asked.documents, asked.questions, asked.tokens)
        print(json.dumps(measure(*asked.one, sample)))
        return
    with tempfile.TemporaryDirectory() as folder:
        random_llama(Path(folder))
        results = {}
        for order in ORDERS:
            command = [sys.executable, __file__, "--one", folder, order]
            for name in ("documents", "questions", "tokens"):
                command += [f"--{name}", str(getattr(asked, name))]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            results[order] = json.loads(done.stdout.splitlines()[-1])
            print(_line(order, results[order]), flush=True)
    ours = results["ours"]
    alike = all(result["answers"] == ours["answers"] for result in results.values())
    different = len(set(ours["answers"].values()))
    print(f"answers alike in every order: {alike} ({len(ours['answers'])}, {different} different)")
    for order in ("shuffled", "by question", "no cache"):
        cpu, wall = (results[order][key] / ours[key] for key in ("cpu_s", "wall_s"))
        print(f"{order} takes {cpu:.2f} x the CPU time and {wall:.2f} x the time of ours")


def _line(order: str, result: dict[str, Any]) -> str:
    return (
        f"{order:12} {result['cpu_s']:7.1f} CPU s {result['wall_s']:7.1f} s "
        f"{result['cached']:5.0%} of the prompt tokens cached"
    )


if __name__ == "__main__":
    main()
