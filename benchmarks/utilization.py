"""Figures of `utilization` on readers with known answers, without calling a model.

    python benchmarks/utilization.py [--part making|readers|planted|records] [--largest 2M]
        [--runs 200] [--equal 1000] [--jobs 2] [--records 30000] [--seeds 3]

"making": documents of 1M and 2M tokens, from the solver of the scale to the verdicts: JSON lines
and prose rendered, both verified. A process for each; its start counts. "mb": peak resident memory.
Measured: 1M in 4.5 to 9.4 s and 229 to 269 MB (limits 30 s, 1.5 GB), 2M in 6.4 to 13.8 s and 305
to 392 MB (60 s, 3 GB).

"readers": the perfect reader answers 8 questions on each document of 1k to 2M tokens, a seed a
benchmark, asked and scored as the experiment does. The guesser answers 4 questions on each of 240
documents; "chance": the mean of 1 / (plausible answers), where the right one is among them.

"planted": three runs of the planted reader through the engine, a law for each benchmark; "true" is
where the two formats' laws differ by the margin. Then outcomes drawn from planted laws, as in
`utilization_error_rates.py` (more laws, bands, power): how many intervals of the divergence hold
it, their median width in steps of scale; how many equal readers are called different.

"records": tokens a record by format and verbosity, headers counted in; CPU seconds to render and to
parse.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from statistics import mean
from typing import Any, get_args

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import pandas as pd
from length_map import peak_mb
from utilization_error_rates import SCALES, Law, divergence_of_laws, flat, one_divergence, one_equal

from contextcliff_dagster.analysis.statistics.intervals import exact_interval
from contextcliff_dagster.extensions.utilization.analysis.model import analyse_model
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, BenchmarkName
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import generate, parameters_for
from contextcliff_dagster.extensions.utilization.documents import (
    Batch,
    UtilizationSamples,
    make_batch,
    solver_of,
)
from contextcliff_dagster.extensions.utilization.prompts import TEMPLATES, Arm, Cell, cells_of
from contextcliff_dagster.extensions.utilization.readers import parse_law, plausible
from contextcliff_dagster.extensions.utilization.rendering.sentences import (
    FORMATS,
    Format,
    Verbosity,
)
from contextcliff_dagster.extensions.utilization.rendering.structured import parse, render
from contextcliff_dagster.extensions.utilization.scales import parse_scale
from contextcliff_dagster.extensions.utilization.scoring import score_rows
from contextcliff_dagster.extensions.utilization.section import UtilizationSection
from contextcliff_dagster.inference.engines.base import Decoding, Engine, open_engine
from contextcliff_dagster.inference.models.models_file import ModelEntry, get_model
from contextcliff_dagster.inference.requests.recipe import Recipe, SharedText

TOKENIZER = "tiktoken:o200k_base"
PAIR: tuple[Format, Format] = ("jsonl", "prose")
MARGIN = 0.1
LIMITS = {"1M": "30 s, 1,500 MB", "2M": "60 s, 3,000 MB"}
RUNS: dict[BenchmarkName, str] = {
    "warehouse": "jsonl=24000/20, prose=6000/20, top=0.95, chance=0.05",
    "constraints": "jsonl=40000/8, prose=10000/8, top=0.95, chance=0.05",
    "network": "jsonl=30000/8, prose=5000/8, top=1, chance=0",
}
SCALE_LABELS = [scale.label for scale in SCALES]
DRAWN = ((0.95, 0.05, np.inf, 0.0), (1.0, 0.05, 8.0, 0.0), (0.9, 0.1, np.inf, 0.0))


def documents(
    benchmark: BenchmarkName, scale: str, seed: int, questions: int = 4
) -> Iterator[dict[str, Any]]:
    batch = Batch(benchmark, scale, seed, PAIR, [Arm()], questions, "content", TOKENIZER)
    return make_batch(batch, solver_of(TOKENIZER))


def made(benchmark: BenchmarkName, scale: str) -> tuple[list[int], int, float, float]:
    """Make a document; return tokens by format, records, CPU seconds and this process's MB."""
    rows = [(row["length_tokens"], row["records"]) for row in documents(benchmark, scale, 0)]
    return [one for one, _ in rows], rows[0][1], time.process_time(), peak_mb()


def show_making() -> None:
    print("making       scale  records  json tokens  prose tokens  seconds  CPU s     mb  limits")
    for scale, limits in LIMITS.items():
        for benchmark in BENCHMARKS:
            began = time.perf_counter()
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                (lines, prose), records, cpu_s, mb = pool.submit(made, benchmark, scale).result()
            print(
                f"{benchmark:12} {scale:5} {records:8,} {lines:12,} {prose:13,}"
                f" {time.perf_counter() - began:8.1f} {cpu_s:6.1f} {mb:6,.0f}  {limits}",
                flush=True,
            )


async def replies(
    engine: Engine, cells: Sequence[Cell], rows: Sequence[dict[str, Any]], questions: int
) -> list[dict[str, Any]]:
    """Ask and score all questions on the documents, as the experiment does."""
    samples = UtilizationSamples(cells, rows, "content", {})
    texts = {row["document_id"]: row["text"] for row in rows}
    recipe = Recipe(template=TEMPLATES["after", "off"])
    examples, predictions = {}, []
    for cell in cells:
        shared: dict[str, SharedText] = {}
        for planned in samples.planned(cell.key, len(rows) * questions):
            example = planned.example
            examples[example.example_id] = example
            name = example.document_id
            document = shared.setdefault(name, SharedText(texts[name]))
            prompt = recipe.render(document, example.question)
            pieces = [delta async for delta in engine.stream(prompt, Decoding(64))]
            predictions.append(
                {
                    "example_id": example.example_id,
                    "raw_output": "".join(piece.text for piece in pieces),
                    "length_tokens": planned.length_tokens,
                }
            )
    return score_rows(predictions, examples, texts.__getitem__)


def asked_of(
    model: ModelEntry, benchmark: BenchmarkName, scales: Sequence[str], seeds: int, questions: int
) -> pd.DataFrame:
    """Return the scored answers to all questions on both formats of a benchmark."""
    section = UtilizationSection(
        benchmarks=(benchmark,), formats=PAIR, scales=tuple(scales), seeds=seeds
    )

    async def ask() -> list[dict[str, Any]]:
        engine, records = open_engine(model), []
        await engine.start()
        for scale in section.scales:
            cells = [cell for cell in cells_of(section) if cell.scale == scale]
            for seed in range(seeds):
                rows = list(documents(benchmark, scale, seed, questions))
                records += await replies(engine, cells, rows, questions)
        await engine.stop()
        return records

    return pd.DataFrame(asyncio.run(ask()))


def chance_of(benchmark: BenchmarkName, scales: Sequence[str], seeds: int) -> list[float]:
    """Return question -> probability that the guesser answers it correctly."""
    found = []
    for scale, seed in product(scales, range(seeds)):
        for row in documents(benchmark, scale, seed):
            for question in json.loads(row["questions"]):
                options = plausible(question["about"], row["text"])
                found.append((question["answer"] in options) / len(options))
    return found


def show_readers(largest: str) -> None:
    print("\nreader   benchmark    documents      scales  right  of")
    scales = parse_scale(f"1k-{largest}")
    for benchmark in BENCHMARKS:
        answers = asked_of(get_model("reader-perfect"), benchmark, scales, 1, 8)
        right, texts = int(answers["score"].sum()), answers.groupby(["format", "scale"]).ngroups
        span = f"1k to {largest}"
        print(f"perfect  {benchmark:12} {texts:9} {span:>11} {right:6} {len(answers):3}")
    short, seeds, hits, chances = ("1k", "2k", "4k", "8k"), 10, 0, list[float]()
    for benchmark in BENCHMARKS:
        answers = asked_of(get_model("reader-guess"), benchmark, short, seeds, 4)
        chances += chance_of(benchmark, short, seeds)
        hits += int(answers["score"].sum())
    low, high = exact_interval(hits, len(chances), 0.95)
    print(
        f"guess: {hits / len(chances):.4f} [{low:.4f}, {high:.4f}] of {len(chances)} right,"
        f" chance {mean(chances):.4f}",
        flush=True,
    )


def engine_run(benchmark: BenchmarkName, text: str) -> str:
    model = get_model("reader-planted").model_copy(update={"model_id": text})
    answers = asked_of(model, benchmark, SCALE_LABELS, 10, 4)
    sums = answers.groupby("format")[["length_tokens", "scale_tokens"]].sum()
    a, b = (law_of(text, one, sums.length_tokens[one] / sums.scale_tokens[one]) for one in PAIR)
    found = analyse_model(answers).comparisons[0].pooled.divergence
    low, high = found.low_tokens or 0, found.high_tokens or np.inf
    true = divergence_of_laws(a, b)
    held = "held" if low < true <= high else "missed"
    return f"{benchmark:12} {true:8,.0f} [{low:,.0f}, {high:,.0f}] {held:6}  {text}"


def law_of(text: str, format: Format, tokens_per_token: float) -> Law:
    """Return the chance of a right answer over scales, given the tokens of ``format``."""
    law = parse_law(text)
    return np.vectorize(lambda scale: law.right(format, scale * tokens_per_token), [np.float64])


def show_planted(pool: ProcessPoolExecutor, runs: int, equal: int) -> None:
    print("\nplanted, through the engine: true, interval")
    for line in pool.map(engine_run, RUNS, RUNS.values()):
        print(line, flush=True)
    print("\ndrawn: top chance slope documents alike  held of  median width, steps")
    for (law, benchmarks), alike in product(product(DRAWN, (1, 3)), (0.0, 0.3)):
        one = partial(one_divergence, law, alike, benchmarks)
        held, widths, *_ = zip(*pool.map(one, range(runs), chunksize=10), strict=True)
        print(
            f"{law[0]:10} {law[1]:6} {law[2]:5} {10 * benchmarks:9} {alike:5} {sum(held):5}"
            f" {runs:3} {np.log2(np.median(widths)):21.1f}",
            flush=True,
        )
    print("\nequal: flat at  alike  called different of")
    for chance, alike in product((0.98, 0.9, 0.5, 0.2), (0.0, 0.3)):
        one_of = partial(equal_run, chance, alike)
        different = pool.map(one_of, range(equal), chunksize=20)
        print(f"{chance:14} {alike:6} {sum(different):17} {equal}", flush=True)


def equal_run(chance: float, alike: float, run: int) -> bool:
    return one_equal(flat(chance), alike, run)[0]


def timed(work: Callable[..., Any], *given: Any) -> tuple[Any, float]:
    """Run ``work``; return its result and CPU seconds."""
    began = time.process_time()
    return work(*given), time.process_time() - began


def show_records(about: float, seeds: int) -> None:
    print("\nbenchmark    format   verbosity    records     tokens  a record  render  parse")
    count = solver_of(TOKENIZER).count
    for benchmark in BENCHMARKS:
        made = [
            generate(benchmark, seed, parameters_for(benchmark, about)) for seed in range(seeds)
        ]
        for format, verbosity in product(FORMATS, get_args(Verbosity)):
            rows = []
            for data in made:
                written, rendering_s = timed(render, data, format, verbosity)
                read, parsing_s = timed(parse, written.text, benchmark)
                assert read == list(data.records)
                rows.append((len(read), count(written.text), rendering_s, parsing_s))
            records, tokens, rendering_s, parsing_s = map(mean, zip(*rows, strict=True))
            print(
                f"{benchmark:12} {format:8} {verbosity:11} {records:8,.0f} {tokens:10,.0f}"
                f" {tokens / records:9.1f} {rendering_s:7.2f} {parsing_s:6.2f}",
                flush=True,
            )


PARTS = ("making", "readers", "planted", "records")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="all by default")
    parser.add_argument("--largest", default="2M", help="scale of the perfect reader")
    parser.add_argument("--runs", type=int, default=200, help="divergences of each law")
    parser.add_argument("--equal", type=int, default=1_000, help="equal readers of each law")
    parser.add_argument("--records", type=float, default=30_000, help="of a document, about")
    parser.add_argument("--seeds", type=int, default=3, help="documents of the part records")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    parts = given.part or PARTS
    if "making" in parts:
        show_making()
    if "readers" in parts:
        show_readers(given.largest)
    if "planted" in parts:
        with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
            show_planted(pool, given.runs, given.equal)
    if "records" in parts:
        show_records(given.records, given.seeds)


if __name__ == "__main__":
    main()
