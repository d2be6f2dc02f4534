"""Tokens per record of each format and verbosity, and what writing and reading them back costs.

    python benchmarks/utilization_rendering.py [--records N] [--seeds N] [--tokenizer NAME]

Records are those of generated benchmarks of about so many records; headers are counted in.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import mean
from typing import Any, get_args

from contextcliff_dagster.experiments.utilization.benchmarks.data import BENCHMARKS
from contextcliff_dagster.experiments.utilization.benchmarks.generate import generate
from contextcliff_dagster.experiments.utilization.benchmarks.sizes import parameters_for
from contextcliff_dagster.experiments.utilization.rendering.formats import FORMATS, Verbosity
from contextcliff_dagster.experiments.utilization.rendering.parse import parse
from contextcliff_dagster.experiments.utilization.rendering.render import render
from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer


def timed(work: Callable[..., Any], *given: Any) -> tuple[Any, float]:
    """What ``work`` returns, and its CPU seconds."""
    started = time.process_time()
    return work(*given), time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=float, default=30_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokenizer", default="tiktoken:o200k_base")
    args = parser.parse_args()
    count = open_any_tokenizer(args.tokenizer).count
    print(f"{args.tokenizer}, {args.seeds} seeds; seconds of CPU to render and to parse\n")
    print("| benchmark | format | verbosity | records | tokens | tokens/record | render | parse |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for benchmark in BENCHMARKS:
        parameters = parameters_for(benchmark, args.records)
        made = [generate(benchmark, seed, parameters) for seed in range(args.seeds)]
        for format in FORMATS:
            for verbosity in get_args(Verbosity):
                rows = []
                for data in made:
                    written, rendering_s = timed(render, data, format, verbosity)
                    read, parsing_s = timed(parse, written.text, benchmark)
                    assert read == list(data.records)
                    rows.append((len(read), count(written.text), rendering_s, parsing_s))
                records, tokens, rendering_s, parsing_s = (
                    mean(one) for one in zip(*rows, strict=True)
                )
                print(
                    f"| {benchmark} | {format} | {verbosity} | {records:,.0f} | {tokens:,.0f} "
                    f"| {tokens / records:.1f} | {rendering_s:.2f} | {parsing_s:.2f} |"
                )


if __name__ == "__main__":
    main()
