"""One contender per process: the length map, tiktoken's batch, `datasets.map`; same text and cores.

    python benchmarks/length_map_peers.py CONTENDER FOLDER [tokenizer.json]

FOLDER holds a materialized corpus. The length map is timed in full, including reading the corpus
and loading the vocabulary. The others are timed on counting alone, with texts in memory and the
vocabulary loaded; slow ones count only a part of the text.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ENCODING = "o200k_base"
CONTENDERS: dict[str, tuple[str, float]] = {
    "length map": ("contextcliff, length map, all included", float("inf")),
    "ours": ("contextcliff, counting alone", float("inf")),
    "tiktoken": ("tiktoken, encode_ordinary_batch, 2 threads", 64),
    "datasets": ("datasets.map, HF tokenizer, rayon's threads", 24),
    "datasets 2": ("datasets.map, HF tokenizer, num_proc=2", 24),
}
"""Contender's name -> its description, and the MB of text that it counts."""


def compare_speeds(folder: Path, repeats: int) -> list[dict[str, Any]]:
    """Run the contenders in turn ``repeats`` times; return medians, and if all counts agree."""
    names = list(CONTENDERS)
    if not all(importlib.util.find_spec(name) for name in ("datasets", "transformers")):
        print("datasets or transformers is not installed: without datasets.map", file=sys.stderr)
        names = names[:3]
    else:
        subprocess.run([sys.executable, __file__, "convert", folder], check=True)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn in range(repeats):
        for name in names:
            if name.startswith("datasets") and turn >= 3:
                continue
            load = os.getloadavg()[0]
            command = [sys.executable, __file__, name, str(folder)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            runs[name].append({**json.loads(done.stdout.splitlines()[-1]), "load": load})
            print(f"{name}: {runs[name][-1]}", file=sys.stderr)
    checks = {
        name: [run["check"] for run in results if run["check"]] for name, results in runs.items()
    }
    return [_summary(name, results, checks) for name, results in runs.items()]


def _summary(name: str, runs: list[dict[str, Any]], checks: dict[str, Any]) -> dict[str, Any]:
    rates = sorted(run["mb"] / run["wall_s"] for run in runs)
    return {
        "contender": CONTENDERS[name][0],
        "text_mb": runs[0]["mb"],
        "mb_per_s": round(statistics.median(rates), 1),
        "slowest": round(rates[0], 1),
        "fastest": round(rates[-1], 1),
        "mb_per_cpu_s": round(statistics.median(run["mb"] / run["cpu_s"] for run in runs), 1),
        "repeats": len(runs),
        "load": round(statistics.median(run["load"] for run in runs), 1),
        "exact": all(check == checks["tiktoken"][0] for check in checks[name]),
    }


def documents(folder: Path, megabytes: float) -> Iterator[str]:
    """Return the corpus's texts until they just exceed ``megabytes``."""
    import pyarrow.parquet as pq

    size = 0
    with pq.ParquetFile(folder / "documents.parquet") as file:
        for group in range(file.num_row_groups):
            for text in file.read_row_group(group, columns=["text"])["text"].to_pylist():
                if size >= megabytes * 1e6:
                    return
                yield text
                size += len(text.encode())


class Clock:
    """Clock of wall and CPU seconds, including child processes."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), self._cpu()

    @staticmethod
    def _cpu() -> float:
        return sum(os.times()[:4])

    def read(self) -> dict[str, float]:
        wall, cpu = self._began
        return {"wall_s": time.perf_counter() - wall, "cpu_s": self._cpu() - cpu}


def check(counts: list[int]) -> dict[str, int]:
    """Return the counts on which all contenders must agree, of the documents that all count."""
    return {"documents": len(counts), "tokens": sum(counts), "last": counts[-1]}


def of_shared(folder: Path, counts: list[int]) -> dict[str, int]:
    shared = sum(1 for _ in documents(folder, min(mb for _, mb in CONTENDERS.values())))
    return check(counts[:shared])


def length_map(folder: Path) -> dict[str, Any]:
    from contextcliff_dagster.sampling.length_map import build_length_map
    from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

    clock = Clock()
    summary = build_length_map(folder, open_tokenizer(f"tiktoken:{ENCODING}"), folder / "map")
    cost = clock.read()
    mb = sum(len(text.encode()) for text in documents(folder, float("inf"))) / 1e6
    return {**cost, "mb": mb, "check": None, "counted_by": summary.counted_by}


def ours(folder: Path, texts: list[str]) -> tuple[dict[str, float], list[int]]:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import TiktokenTokenizer

    tokenizer = TiktokenTokenizer(ENCODING)
    tokenizer.compare()
    clock = Clock()
    counts = tokenizer.count_many(texts)
    return clock.read(), counts


def tiktoken(folder: Path, texts: list[str]) -> tuple[dict[str, float], list[int]]:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import tiktoken_encoding

    encoding = tiktoken_encoding(ENCODING)
    encoding.encode_ordinary_batch(["warm", "up"], num_threads=2)
    counts: list[int] = []
    clock = Clock()
    for at in range(0, len(texts), 512):  # all at once would keep all their tokens
        counts += map(len, encoding.encode_ordinary_batch(texts[at : at + 512], num_threads=2))
    return clock.read(), counts


def datasets(folder: Path, texts: list[str], processes: int) -> tuple[dict[str, float], list[int]]:
    import datasets as library
    from transformers import PreTrainedTokenizerFast

    library.disable_caching()
    library.disable_progress_bars()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    tokenizer(["warm", "up"], add_special_tokens=False)
    table = library.Dataset.from_dict({"text": texts})

    def lengths(batch: dict[str, list[str]]) -> dict[str, list[int]]:
        ids = tokenizer(batch["text"], add_special_tokens=False, return_attention_mask=False)
        return {"tokens": [len(one) for one in ids["input_ids"]]}

    clock = Clock()
    mapped = table.map(
        lengths,
        batched=True,
        batch_size=256,
        num_proc=processes if processes > 1 else None,
        remove_columns=["text"],
    )
    return clock.read(), list(mapped["tokens"])


def convert(folder: Path) -> None:
    """Write the same vocabulary as tokenizer.json, with transformers' converter."""
    from transformers.convert_slow_tokenizer import TikTokenConverter

    from contextcliff_dagster.sampling.tokenizers.tokenizers import rank_file, tiktoken_encoding

    ranks = folder / f"{ENCODING}.tiktoken"
    ranks.write_bytes(rank_file(ENCODING))
    pattern = tiktoken_encoding(ENCODING)._pat_str
    made = TikTokenConverter(vocab_file=str(ranks), pattern=pattern).converted()
    made.save(str(folder / "tokenizer.json"))


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    if name == "convert":
        convert(folder)
        return
    if name == "length map":
        print(json.dumps(length_map(folder)))
        return
    texts = list(documents(folder, CONTENDERS[name][1]))
    if name.startswith("datasets"):
        cost, counts = datasets(folder, texts, 2 if name.endswith("2") else 1)
    else:
        cost, counts = (ours if name == "ours" else tiktoken)(folder, texts)
    mb = sum(len(text.encode()) for text in texts) / 1e6
    print(json.dumps({**cost, "mb": mb, "check": of_shared(folder, counts)}))


if __name__ == "__main__":
    main()
