"""Time the NumPy runtime against transformers on the reference model, one thread each.

    python benchmarks/reference_runtime.py [--samples 20]

Prints, for ledgers of several lengths, the median CPU time of a whole answer (prefill and 12
tokens at most) in milliseconds, and the time to load each. transformers is left out where it is
not installed. onnxruntime was weighed when the runtime was chosen (our feasibility measurements,
one thread: 28 ms at 512 prompt tokens and 325 ms at 2,048 with a plain export, against 24 and 104
in NumPy): it is no faster here, and would need a second weight format.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import importlib.util
import time
from collections.abc import Callable

import numpy as np
from tokenizers import Tokenizer

from contextcliff_dagster.inference.engines.numpy_llama import LlamaModel
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster.reference.tokenizer import END, render_chat
from contextcliff_dagster.reference.warehouse_documents import generate_ledger, records_for_tokens

FOLDER = weights_path("reference-long")
TOKENIZER = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
STOP = TOKENIZER.token_to_id(END)
LENGTHS = (256, 512, 1_024, 2_048, 4_096, 5_900)


def numpy_runtime() -> Callable[[list[int]], list[int]]:
    model = LlamaModel.load(FOLDER)
    return lambda ids: list(model.generate(ids, 12, {STOP}))


def transformers_runtime() -> Callable[[list[int]], list[int]]:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()

    def generate(ids: list[int]) -> list[int]:
        mask = torch.ones(1, len(ids), dtype=torch.long)
        out = model.generate(
            torch.tensor([ids]), attention_mask=mask, max_new_tokens=12, do_sample=False
        )
        tokens: list[int] = out[0, len(ids) :].tolist()
        return tokens[:-1] if tokens[-1] == STOP else tokens

    return generate


def prompts(length: int, samples: int) -> list[list[int]]:
    found = []
    for seed in range(samples):
        ledger = generate_ledger(seed, records_for_tokens(length))
        content = ledger.text + ledger.questions[0].question
        found.append(TOKENIZER.encode(render_chat([{"role": "user", "content": content}])).ids)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20, help="prompts a length")
    samples = parser.parse_args().samples
    runtimes = {"numpy": numpy_runtime}
    if importlib.util.find_spec("transformers") and importlib.util.find_spec("torch"):
        runtimes["transformers"] = transformers_runtime
    answers: dict[str, list[list[int]]] = {}
    print(f"{'':14}{'load s':>8}" + "".join(f"{length:>9,}" for length in LENGTHS) + "  tokens")
    for name, load in runtimes.items():
        began = time.perf_counter()
        generate = load()
        loaded = time.perf_counter() - began
        generate(prompts(256, 1)[0])
        medians, answers[name] = [], []
        for length in LENGTHS:
            times = []
            for ids in prompts(length, samples):
                began = time.process_time()
                answers[name].append(generate(ids))
                times.append(1_000 * (time.process_time() - began))
            medians.append(float(np.median(times)))
        print(f"{name:14}{loaded:8.2f}" + "".join(f"{ms:9.1f}" for ms in medians) + "  ms")
    if len(answers) == 2:
        same = sum(a == b for a, b in zip(*answers.values(), strict=True))
        print(f"{same} of {len(LENGTHS) * samples} answers are the same token for token.")


if __name__ == "__main__":
    main()
