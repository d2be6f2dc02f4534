"""Train the reference models from scratch on a CPU.

    python -m tools.reference_models.train [--model short|long] [--out DIR] [--seed N]

`reference-short` is trained on ledgers of up to 256 tokens. `reference-long` continues from the
finished short model and grows to 1,024 tokens, so that both share architecture, tokenizer and
recipe, and swapping their weights swaps their behaviour.

Recipe: loss on answer tokens alone; many questions a document; lengths grow by 1.4 whenever exact
match at the longest is high; Muon (Jordan et al. 2024) for the layers' matrices, AdamW for the
rest; the learning rate decays linearly to zero at the end. The attention matrices are warm-started
(`network.initial_weights`): without that nothing is learned for a long time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.reference import tokenizer
from contextcliff_dagster.reference.card import REFERENCE_MODELS, weights_path
from contextcliff_dagster.reference.warehouse_documents import (
    MIN_RECORDS,
    ledger_tokens,
    records_for_tokens,
)
from tools.reference_models.batches import draw_batch

if TYPE_CHECKING:
    from torch import Tensor

    from tools.reference_models.network import Architecture

GROWTH = 1.4
WARMUP_STEPS = 20
LONGEST_SHARE = 0.4
"""Share of steps at the longest length reached; the rest are uniform over all shorter ones."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model is trained.

    `training_length` and `start_length` in document tokens; `batch_tokens` document tokens a step;
    `questions` of level 1 and 2 a document at most; `grow_above`: exact match (level 1, moving
    average at the longest length) above which lengths grow; `decay`: share of the steps over which
    the learning rate falls to zero; `ancestor`: the model it continues from.
    """

    training_length: int
    start_length: int
    steps: int
    batch_tokens: int
    questions: tuple[int, int]
    learning_rate: float
    grow_above: float
    decay: float
    ancestor: str | None


RECIPES = {
    "reference-short": Recipe(256, 51, 1_200, 1_024, (16, 4), 4e-3, 0.9, 0.4, None),
    "reference-long": Recipe(1_024, 256, 2_400, 2_048, (24, 6), 3e-3, 0.9, 0.4, "reference-short"),
}


class _Muon:
    """Momentum orthogonalised by five Newton-Schulz steps, all matrices at once.

    torch's own version works matrix by matrix in bfloat16, which a CPU is slow at. Every matrix
    here is (a, b) or (b, a): they are stacked lying down. The update is scaled to AdamW's size.
    """

    def __init__(self, matrices: Sequence[Tensor]) -> None:
        import torch

        self._matrices = matrices
        self._momentum = torch.zeros(len(matrices), *_lying(matrices[0]).shape)

    def step(self, learning_rate: float) -> None:
        """One update from the gradients."""
        import torch

        with torch.no_grad():
            gradient = torch.stack([_lying(matrix.grad) for matrix in self._matrices])
            self._momentum.lerp_(gradient, 0.05)
            x = gradient.lerp(self._momentum, 0.95)
            x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
            for _ in range(5):
                square = x @ x.transpose(1, 2)
                polynomial = torch.baddbmm(square, square, square, beta=-4.775, alpha=2.0315)
                x = torch.baddbmm(x, polynomial, x, beta=3.4445)
            x = x * (learning_rate * 0.2 * max(x.shape[1:]) ** 0.5)
            for matrix, update in zip(self._matrices, x, strict=True):
                _lying(matrix).sub_(update)


def _lying(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T


def train(
    recipe: Recipe, architecture: Architecture, weights: dict[str, Tensor], seed: int
) -> dict[str, Any]:
    """Train `weights` in place; returns the facts of the run (steps, tokens, seconds)."""
    import torch
    from torch.nn.functional import cross_entropy

    from tools.reference_models.network import answer_logits

    # Sharp attention underflows; denormal numbers would slow every product several times over.
    torch.set_flush_denormal(True)
    rng = np.random.default_rng(seed)
    for weight in weights.values():
        weight.requires_grad_(True)
    in_layers = {name for name, w in weights.items() if w.ndim == 2 and ".layers." in name}
    muon = _Muon([weights[name] for name in sorted(in_layers)])
    adam = torch.optim.AdamW(
        [w for name, w in weights.items() if name not in in_layers],
        betas=(0.9, 0.98),
        weight_decay=0.0,
    )
    reach, at_longest = float(recipe.start_length), 0.0
    tokens = questions = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    for step in range(recipe.steps):
        longest = records_for_tokens(reach)
        is_longest = rng.random() < LONGEST_SHARE
        records = longest if is_longest else int(rng.integers(MIN_RECORDS, longest + 1))
        documents = max(1, recipe.batch_tokens // ledger_tokens(records))
        batch = draw_batch(rng, documents, records, recipe.questions)
        logits = answer_logits(weights, architecture, batch)
        losses = [
            cross_entropy(x.flatten(0, -2), torch.from_numpy(q.answer).flatten(), reduction="sum")
            for x, q in zip(logits, batch.questions, strict=True)
        ]
        loss = torch.stack(losses).sum() / sum(q.answer.size for q in batch.questions)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        left = (recipe.steps - step) / recipe.steps
        rate = recipe.learning_rate * min(1.0, (step + 1) / WARMUP_STEPS, left / recipe.decay)
        muon.step(rate)
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        for weight in weights.values():
            weight.grad = None

        tokens += batch.document.size
        questions += sum(q.answer.shape[0] * q.answer.shape[1] for q in batch.questions)
        if records == longest:
            right = logits[0].detach().argmax(-1).numpy() == batch.questions[0].answer
            at_longest = 0.9 * at_longest + 0.1 * float(right.all(-1).mean())
        if at_longest > recipe.grow_above and reach < recipe.training_length:
            reach, at_longest = min(recipe.training_length, reach * GROWTH), 0.5
        if (step + 1) % 50 == 0:
            print(
                f"step {step + 1}/{recipe.steps}  {time.perf_counter() - began:.0f} s  "
                f"lengths to {reach:.0f}  loss {loss.item():.3f}  "
                f"exact match at the longest {at_longest:.3f}",
                flush=True,
            )
    for weight in weights.values():
        weight.requires_grad_(False)
    return {
        "seed": seed,
        "steps": recipe.steps,
        "document_tokens": tokens,
        "questions": questions,
        "wall_seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - began_cpu, 1),
        "threads": torch.get_num_threads(),
        "reached_length": int(reach),
        "torch": torch.__version__,
    }


def train_model(name: str, out: Path, seed: int) -> None:
    """Train a model and write weights, configuration, tokenizer and `training.json` under `out`."""
    from safetensors.torch import load_file, save_file

    from tools.reference_models.network import Architecture, initial_weights

    recipe, architecture = RECIPES[name], Architecture()
    if recipe.ancestor is None:
        weights = initial_weights(architecture, seed)
    else:
        ancestor = out / recipe.ancestor / "model.safetensors"
        if not ancestor.exists():
            raise SystemExit(
                f"{name} continues from {recipe.ancestor}; train that first: {ancestor}"
            )
        weights = load_file(ancestor)
    print(f"{name}: up to {recipe.training_length} tokens, seed {seed}", flush=True)
    facts = {"recipe": asdict(recipe), **train(recipe, architecture, weights, seed)}
    tokenizer.build(out / name)
    tensors = {key: weight.detach().contiguous() for key, weight in weights.items()}
    save_file(tensors, out / name / "model.safetensors", metadata={"format": "pt"})
    config = architecture.config()
    ends = {key: config[key] for key in ("eos_token_id", "pad_token_id")}
    for file, content in (
        ("config.json", config),
        ("generation_config.json", {"do_sample": False, **ends}),
        ("training.json", facts),
    ):
        (out / name / file).write_text(json.dumps(content, indent=2) + "\n")
    print(f"{name}: {facts['wall_seconds']:.0f} s, written to {out / name}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: train one model or, in order of ancestry, both."""
    import torch

    parser = argparse.ArgumentParser(description="Train the reference models from scratch.")
    parser.add_argument("--model", choices=["short", "long"], help="only this one (default: both)")
    parser.add_argument("--out", type=Path, default=weights_path(REFERENCE_MODELS[0]).parent)
    parser.add_argument("--seed", type=int, default=20_26)
    # More threads add in another order: the shipped weights come from one.
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    for name in REFERENCE_MODELS:
        if given.model is None or name == f"reference-{given.model}":
            train_model(name, given.out, given.seed)


if __name__ == "__main__":
    main()
