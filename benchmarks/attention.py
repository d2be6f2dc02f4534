"""Cost of recording attention: time and memory of reading a prompt with and without it.

``python -m benchmarks.attention [--weights FILE_OR_FOLDER | --random-weights] [--dtype T]
[--lengths 1000 4000]`` prints a line for each length. Each prompt is read in its own process, to
measure its own peak memory; figures are medians over ``--rounds``. CPU time is less affected by
other load of the machine than wall time. Without ``--weights``: the reference models,
in the built-in runtime. ``--random-weights``: a Llama of the shape of Qwen2-0.5B without its
vocabulary (24 layers, 14 heads on 2 of keys and values, 64 wide), made in a temporary folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from contextcliff_dagster.inference.engines.base import Decoding, open_engine
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe, SharedText
from contextcliff_dagster.reference.card import weights_path

SENTENCE = "Item 417 of the ledger went to the harbour on a Tuesday morning. "

SHAPE = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 32_768,
}
"""Shape of Qwen2-0.5B (Qwen Team 2024, "Qwen2 Technical Report")."""


@contextmanager
def random_weights(dtype: str) -> Iterator[str]:
    """Yield a temporary folder with a model of `SHAPE` and the reference models' vocabulary."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    own = weights_path("reference-short")
    vocabulary = json.loads((own / "config.json").read_text())["vocab_size"]
    with tempfile.TemporaryDirectory(prefix="random-weights-") as folder:
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=vocabulary, tie_word_embeddings=True, **SHAPE)
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
        model.save_pretrained(folder)
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(own / file, Path(folder))
        yield folder


def entry_of(model: str, dtype: str, window: int) -> ModelEntry:
    """Return the entry of a reference model, or of weights for transformers."""
    fields = {"name": "measured", "weights": model, "dtype": dtype, "engine": "transformers"}
    if model.startswith("reference-"):
        fields = {"name": model, "engine": "reference"}
    else:
        fields["window_tokens"] = window
    return ModelEntry.model_validate(fields)


async def read_once(model: str, dtype: str, tokens: int, attention: bool) -> dict[str, float]:
    """Read one prompt of about ``tokens`` tokens; return seconds, CPU seconds and peak MB."""
    engine = open_engine(entry_of(model, dtype, tokens + 1_000))
    await engine.start()

    def prompt(sentences: int) -> Prompt:
        recipe = Recipe("completion", template="{document}{question}")
        made = recipe.render(SharedText(SENTENCE * sentences), "Where did item 417 go?")
        return replace(made, evidence=((0, len(SENTENCE)), (200, 260)))

    async def count(of: Prompt) -> int:
        counted = await engine.count_prompt_tokens(of)
        assert counted is not None
        return counted.tokens

    a_sentence = (await count(prompt(11)) - await count(prompt(1))) / 10
    whole = prompt(round(tokens / a_sentence))
    # Libraries are loaded by the first prompt; kernels of a GPU are chosen by its length.
    await ask(engine, whole if on_gpu() else prompt(2), Decoding(1, attention=attention))
    before = peak_mb(since_now=True)
    wall, cpu = time.perf_counter(), time.process_time()
    await ask(engine, whole, Decoding(1, attention=attention))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = peak_mb()
    found = {"tokens": await count(whole), "wall_s": wall, "cpu_s": cpu, "mb": after - before}
    await engine.stop()
    return found


def on_gpu() -> bool:
    """Return whether torch is imported and computes on a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


def peak_mb(*, since_now: bool = False) -> float:
    """Return this process's peak memory in MB, on the GPU if it uses one."""
    if on_gpu():
        torch = sys.modules["torch"]
        if since_now:
            torch.cuda.reset_peak_memory_stats()
        return float(torch.cuda.max_memory_allocated()) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(arguments: argparse.Namespace, model: str, tokens: int) -> str:
    """Return one line: medians without and with attention, and the difference."""
    of: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(arguments.rounds):
        for attention in (False, True):
            one = [model, arguments.dtype, str(tokens), str(int(attention))]
            command = [sys.executable, "-m", "benchmarks.attention", "--one", *one]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            of[attention].append(json.loads(done.stdout.splitlines()[-1]))
    cells = [f"{of[True][0]['tokens']:,.0f}"]
    for name, digits in (("wall_s", 2), ("cpu_s", 2), ("mb", 0)):
        plain, shown = (median(row[name] for row in of[kind]) for kind in (False, True))
        adds = f"{shown - plain:+,.0f}" if name == "mb" else f"x{shown / plain:.2f}"
        cells.append(f"{plain:,.{digits}f} -> {shown:,.{digits}f} ({adds})")
    return f"| {model.rpartition('/')[2]} {arguments.dtype} | {' | '.join(cells)} |"


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", action="append", default=[])
    parser.add_argument("--random-weights", action="store_true")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1_000, 4_000])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        model, dtype, tokens, attention = arguments.one
        print(json.dumps(asyncio.run(read_once(model, dtype, int(tokens), attention == "1"))))
        return
    print("| model | tokens | wall s | CPU s | peak MB above the loaded model |")
    print("|---|--:|--:|--:|--:|")
    if arguments.random_weights:
        with random_weights(arguments.dtype) as folder:
            print_lines(arguments, [folder])
    else:
        print_lines(arguments, arguments.weights or ["reference-short", "reference-long"])


def print_lines(arguments: argparse.Namespace, models: list[str]) -> None:
    """Print one line for each model and length."""
    for model in models:
        for tokens in arguments.lengths:
            print(measured(arguments, model, tokens), flush=True)


if __name__ == "__main__":
    main()
