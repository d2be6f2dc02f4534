"""Figures of the length map: speed next to other tools, memory, exactness, preparation.

    python benchmarks/length_map.py                          # all of it; a quarter of an hour
    python benchmarks/length_map.py --megabytes 100 --memory-only

Speed: MB of UTF-8 text per second of wall time on all cores, each contender in a fresh process, one
after the other, repeated; the median counts. Besides the length map:
tiktoken's own batch on two threads, and `datasets.map` with a Hugging Face tokenizer of the same
vocabulary where `datasets` and `transformers` are installed.

Memory: a corpus of that much distinct text is materialized and then counted, each in a process of
its own; the figure is that process's peak resident memory less that of a bare interpreter.

The table of libraries is in MB per CPU second, all threads added up, so that it holds per core.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from length_map_peers import compare_speeds
from natural_text import natural_texts

from contextcliff_dagster.contracts import Document, Example
from contextcliff_dagster.corpora.corpus import Entry, StreamedCorpus, document_id

ENCODINGS = ("cl100k_base", "o200k_base")


class NaturalCorpus(StreamedCorpus):
    """A corpus of this machine's own text, three questions per document."""

    name = "natural"

    def __init__(self, megabytes: float, questions: int = 3) -> None:
        self._megabytes = megabytes
        self._questions = questions

    def fingerprint(self) -> str:
        return "natural"

    def entries(self) -> Iterator[Entry]:
        for number, text in enumerate(natural_texts(self._megabytes)):
            name = document_id(text)
            for question in range(self._questions):
                example = Example(f"e{number}-{question}", name, f"q{question}?", ("a",), "lookup")
                yield Entry(Document(name, text), example, f"document {number}")


PEAK_PROGRAM = """
import resource, sys
try:
    # ru_maxrss of a child begins at its parent's size; VmHWM is the process's own.
    status = open("/proc/self/status").read()
    # Library code mapped from files is left out: the kernel shares it and takes it back at will;
    # of the same libraries it maps 40 or 52 MB, by how they lie in its cache.
    peak = float(status.split("VmHWM:")[1].split()[0])
    mapped = float(status.split("RssFile:")[1].split()[0])
    print((peak - mapped) * 1024 / 1e6)
except OSError:
    scale = 1e6 if sys.platform == "darwin" else 1e3
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale)
"""


def peak_mb() -> float:
    """Return this process's peak resident memory in MB."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(PEAK_PROGRAM)
    return float(printed.getvalue())


def materialize_here(megabytes: float, folder: Path) -> dict[str, Any]:
    """Generate and materialize a corpus; run in a fresh process."""
    from contextcliff_dagster.corpora.materialize import materialize_corpus

    began = time.process_time()
    corpus = materialize_corpus(NaturalCorpus(megabytes), folder)
    return {
        "text_mb": round(corpus.text_bytes / 1e6, 1),
        "documents": corpus.documents,
        "examples": corpus.examples,
        "materialize_cpu_s": round(time.process_time() - began, 1),
        "materialize_peak_mb": round(peak_mb(), 1),
    }


def count_here(tokenizer_name: str, folder: Path) -> dict[str, Any]:
    """Build the length map; run in a fresh process."""
    from contextcliff_dagster.sampling.length_map import build_length_map
    from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

    tokenizer = open_tokenizer(tokenizer_name)
    began = time.process_time()
    lengths = build_length_map(folder, tokenizer, folder / "length_map.parquet")
    return {
        "tokens": lengths.tokens,
        "count_cpu_s": round(time.process_time() - began, 2),
        "peak_mb": round(peak_mb(), 1),
    }


def memory(megabytes: float) -> dict[str, Any]:
    """Measure peak memory of materializing and counting, less a bare interpreter's."""

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    interpreter = float(python("-c", PEAK_PROGRAM))
    with tempfile.TemporaryDirectory() as folder:
        inner = [__file__, "--folder", folder, "--megabytes", str(megabytes)]
        figures: dict[str, Any] = json.loads(python(*inner, "--inner", "materialize"))
        figures["materialize_above_interpreter_mb"] = round(
            figures["materialize_peak_mb"] - interpreter, 1
        )
        figures["interpreter_mb"] = round(interpreter, 1)
        figures["counted"] = {}
        for name in ENCODINGS:
            counted = json.loads(python(*inner, "--inner", f"tiktoken:{name}"))
            counted["above_interpreter_mb"] = round(counted["peak_mb"] - interpreter, 1)
            counted["mb_per_cpu_s"] = round(figures["text_mb"] / counted["count_cpu_s"], 1)
            figures["counted"][name] = counted
    figures["above_interpreter_mb"] = max(
        c["above_interpreter_mb"] for c in figures["counted"].values()
    )
    return figures


def speeds(megabytes: float, folder: Path) -> list[dict[str, Any]]:
    """Measure MB per CPU second: the length map, the reference library, and installed rivals."""
    from contextcliff_dagster.sampling.tokenizers.tokenizers import (
        TiktokenTokenizer,
        TokenizerJson,
        tiktoken_encoding,
    )

    texts = list(natural_texts(megabytes))
    size = sum(len(text.encode()) for text in texts) / 1e6
    rows: list[dict[str, Any]] = []

    def timed(vocabulary: str, library: str, count: Callable[[], Sequence[int]]) -> None:
        began = time.process_time()
        counts = list(count())
        spent = time.process_time() - began
        reference = next((r["_counts"] for r in rows if r["vocabulary"] == vocabulary), counts)
        rows.append(
            {
                "vocabulary": vocabulary,
                "library": library,
                "mb_per_cpu_s": round(size / spent, 1),
                "counts_equal_reference": counts == reference,
                "_counts": counts,
            }
        )

    for name in ENCODINGS:
        reference = tiktoken_encoding(name)
        timed(name, "tiktoken", lambda r=reference: [len(r.encode_ordinary(t)) for t in texts])
        ours = TiktokenTokenizer(name)
        ours.compare()
        timed(name, "contextcliff (fastokens)", lambda o=ours: o.count_many(texts))
        with contextlib.suppress(ImportError):
            import bpe_openai

            other = bpe_openai.get_encoding(name)
            timed(name, "bpe-openai", lambda o=other: [len(o.encode_ordinary(t)) for t in texts])
    try:
        import tokenizers
    except ImportError:
        tokenizers = None  # type: ignore[assignment]
    if tokenizers is not None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        from contextcliff_dagster_tests.support.files.vocabularies import KINDS, train

        for kind in KINDS:
            sample = [text[:20_000] for text in islice(texts, 200)]
            hugging = train(kind, folder / f"{kind}.json", sample)
            name = f"tokenizer.json, {kind}"
            timed(name, "tokenizers", lambda h=hugging: hugging_counts(h, texts))
            own = TokenizerJson(kind, folder / f"{kind}.json")
            own.compare()
            by = own.counted_by.split()[0]
            timed(name, f"contextcliff ({by})", lambda o=own: o.count_many(texts))
    for row in rows:
        del row["_counts"]
    return rows


def hugging_counts(tokenizer: Any, texts: list[str]) -> list[int]:
    """Return token counts from ``encode_batch_fast``, 64 texts at a time."""
    return [
        len(one)
        for at in range(0, len(texts), 64)
        for one in tokenizer.encode_batch_fast(texts[at : at + 64], add_special_tokens=False)
    ]


def preparation(folder: Path) -> dict[str, Any]:
    """Measure CPU seconds to draw a manifest of 1,200 reference documents from scratch."""
    from contextcliff_dagster.corpora.materialize import materialize_corpus
    from contextcliff_dagster.corpora.registry import open_corpus
    from contextcliff_dagster.sampling.bins import BinSpec, make_bins
    from contextcliff_dagster.sampling.draw_manifest import SampleSpec, draw_manifest
    from contextcliff_dagster.sampling.length_map import build_length_map, read_length_map
    from contextcliff_dagster.sampling.manifest import save_manifest
    from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

    marks = {"start": time.process_time()}
    materialize_corpus(open_corpus("reference", {"documents": 1_200, "task": "lookup"}), folder)
    marks["corpus"] = time.process_time()
    build_length_map(folder, open_tokenizer("reference"), folder / "length_map.parquet")
    marks["length map"] = time.process_time()
    lengths = read_length_map(folder / "length_map.parquet")
    columns = lengths["length_tokens"].to_pylist(), lengths["document_id"].to_pylist()
    bins = make_bins(*columns, BinSpec())
    drawn = draw_manifest(folder, folder / "length_map.parquet", bins, SampleSpec(), {})
    save_manifest(drawn, folder / "manifest")
    marks["bins and manifest"] = time.process_time()
    names = list(marks)
    steps = {b: round(marks[b] - marks[a], 2) for a, b in pairwise(names)}
    return {
        "documents": 1_200,
        "cpu_s": round(marks[names[-1]] - marks["start"], 2),
        "steps": steps,
    }


def show(figures: dict[str, Any]) -> None:
    for b in figures.get("peers", ()):
        load, total = f"{b['load']:.1f}", f"{b['text_mb']:,.0f} MB"
        print(
            f"{b['contender']:44} {b['mb_per_s']:7.1f} MB/s wall, {b['mb_per_cpu_s']:6.1f} MB/CPU s"
            f" (median of {b['repeats']}, {b['slowest']:.1f} to {b['fastest']:.1f}; {total}; "
            f"load {load})"
            f"{'' if b['exact'] else '  NOT EXACT'}"
        )
    for m in figures.get("memory", ()):
        print(
            f"{m['text_mb']:,} MB of text, {m['documents']:,} documents, {m['examples']:,} "
            f"examples; peak memory above the bare interpreter's {m['interpreter_mb']} MB:"
        )
        print(
            f"  materialized: {m['materialize_above_interpreter_mb']} MB, "
            f"{m['materialize_cpu_s']} CPU s (finding the text included)"
        )
        for name, c in m["counted"].items():
            print(
                f"  length map, {name}: {c['above_interpreter_mb']} MB, {c['tokens']:,} tokens at "
                f"{c['mb_per_cpu_s']} MB per CPU s"
            )
    for row in figures.get("speeds", ()):
        exact = "" if row["counts_equal_reference"] else "  NOT EXACT"
        speed = f"{row['mb_per_cpu_s']:8.1f} MB/CPU s{exact}"
        print(f"{row['vocabulary']:24} {row['library']:28} {speed}")
    if "preparation" in figures:
        p = figures["preparation"]
        print(f"reference: {p['documents']:,} documents in {p['cpu_s']} CPU s {p['steps']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--megabytes", type=float, nargs="+", default=[100, 2_000], help="text for the memory"
    )
    parser.add_argument("--memory-only", action="store_true")
    parser.add_argument("--peers-only", action="store_true", help="only the speed next to others")
    parser.add_argument("--text", type=float, default=400, help="MB of text for the speed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--inner", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inner == "materialize":
        print(json.dumps(materialize_here(given.megabytes[0], given.folder)))
        return
    if given.inner:
        print(json.dumps(count_here(given.inner, given.folder)))
        return
    figures: dict[str, Any] = {}
    if not given.memory_only:
        with tempfile.TemporaryDirectory() as name:
            figures["text"] = materialize_here(given.text, Path(name))
            figures["peers"] = compare_speeds(Path(name), given.repeats)
    if not given.peers_only:
        figures["memory"] = [memory(megabytes) for megabytes in given.megabytes]
    if not given.memory_only and not given.peers_only:
        with tempfile.TemporaryDirectory() as name:
            figures["speeds"] = speeds(8, Path(name))
        with tempfile.TemporaryDirectory() as name:
            figures["preparation"] = preparation(Path(name))
    if given.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures)


if __name__ == "__main__":
    main()
