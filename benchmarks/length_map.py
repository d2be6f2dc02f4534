"""The length map's figures: memory on a large corpus, speed per core, exactness, preparation time.

    python benchmarks/length_map.py                 # 1 GB of text, made on the fly; some minutes
    python benchmarks/length_map.py --megabytes 100

Memory: a corpus of that much distinct text is generated (never as one file), materialized and then
counted, each in a process of its own; the figure is that process's peak resident memory less that
of a bare interpreter. Speeds are MB of UTF-8 text per CPU second, all threads added up, so they
hold per core.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import Document, Example
from contextcliff_dagster.corpora.corpus import Entry, StreamedCorpus, document_id

ENCODINGS = ("cl100k_base", "o200k_base")


def source_texts(megabytes: float) -> list[str]:
    """Python source files of this environment: real text, and always at hand."""
    texts: list[str] = []
    size = 0
    for folder in (Path(os.__file__).parent, Path(json.__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            with contextlib.suppress(UnicodeDecodeError, OSError):
                text = path.read_text(encoding="utf-8")
                if len(text) > 500:
                    texts.append(text)
                    size += len(text.encode())
            if size > megabytes * 1e6:
                return texts
    return texts


class GeneratedCorpus(StreamedCorpus):
    """Documents of 2 kB to 2 MB, log-uniform, put together from lines of real text."""

    name = "generated"

    def __init__(self, megabytes: float, questions: int = 3) -> None:
        self._bytes = megabytes * 1e6
        self._questions = questions

    def fingerprint(self) -> str:
        return "generated"

    def entries(self) -> Iterator[Entry]:
        rng = random.Random(0)
        lines = [line for text in source_texts(2) for line in text.splitlines(keepends=True)]
        made, number = 0, 0
        while made < self._bytes:
            wanted = int(2_000 * 1_000 ** rng.random())
            parts, size = [f"# document {number}\n"], 0
            while size < wanted:
                at = rng.randrange(len(lines))
                parts += lines[at : at + 50]
                size += sum(map(len, lines[at : at + 50]))
            text = "".join(parts)
            made += len(text.encode())
            name = document_id(text)
            for question in range(self._questions):
                example = Example(f"e{number}-{question}", name, f"q{question}?", ("a",), "lookup")
                yield Entry(Document(name, text), example, f"document {number}")
            number += 1


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
    """Peak resident memory of this process in MB."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(PEAK_PROGRAM)
    return float(printed.getvalue())


def materialize_here(megabytes: float, folder: Path) -> dict[str, Any]:
    """Generate and materialize; to be run in a fresh process."""
    from contextcliff_dagster.corpora.materialize import materialize_corpus

    began = time.process_time()
    corpus = materialize_corpus(GeneratedCorpus(megabytes), folder)
    return {
        "text_mb": round(corpus.text_bytes / 1e6, 1),
        "documents": corpus.documents,
        "examples": corpus.examples,
        "materialize_cpu_s": round(time.process_time() - began, 1),
        "materialize_peak_mb": round(peak_mb(), 1),
    }


def count_here(tokenizer_name: str, folder: Path) -> dict[str, Any]:
    """Build the length map; to be run in a fresh process."""
    from contextcliff_dagster.sampling.length_map import build_length_map
    from contextcliff_dagster.sampling.tokenizers import open_tokenizer

    tokenizer = open_tokenizer(tokenizer_name)
    began = time.process_time()
    lengths = build_length_map(folder, tokenizer, folder / "length_map.parquet")
    return {
        "tokens": lengths.tokens,
        "count_cpu_s": round(time.process_time() - began, 2),
        "peak_mb": round(peak_mb(), 1),
    }


def memory(megabytes: float) -> dict[str, Any]:
    """Peak memory of materializing and of counting, each above a bare interpreter's."""

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    interpreter = float(python("-c", PEAK_PROGRAM))
    with tempfile.TemporaryDirectory() as folder:
        inner = [__file__, "--folder", folder, "--megabytes", str(megabytes)]
        found: dict[str, Any] = json.loads(python(*inner, "--inner", "materialize"))
        found["materialize_above_interpreter_mb"] = round(
            found["materialize_peak_mb"] - interpreter, 1
        )
        found["interpreter_mb"] = round(interpreter, 1)
        found["counted"] = {}
        for name in ENCODINGS:
            counted = json.loads(python(*inner, "--inner", f"tiktoken:{name}"))
            counted["above_interpreter_mb"] = round(counted["peak_mb"] - interpreter, 1)
            counted["mb_per_cpu_s"] = round(found["text_mb"] / counted["count_cpu_s"], 1)
            found["counted"][name] = counted
    found["above_interpreter_mb"] = max(
        c["above_interpreter_mb"] for c in found["counted"].values()
    )
    return found


def speeds(megabytes: float, folder: Path) -> list[dict[str, Any]]:
    """MB per CPU second of ours, of the reference library, and of the alternatives at hand."""
    from contextcliff_dagster.sampling.tiktoken_ranks import tiktoken_encoding
    from contextcliff_dagster.sampling.tokenizers import TokenizerJson, open_tokenizer

    texts = source_texts(megabytes)
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
        ours = open_tokenizer(f"tiktoken:{name}")
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
        from contextcliff_dagster_tests.sampling.vocabularies import KINDS, train

        for kind in KINDS:
            sample = [text[:20_000] for text in texts[:20]]
            hugging = train(kind, folder / f"{kind}.json", sample)
            name = f"tokenizer.json, {kind}"
            timed(name, "tokenizers", lambda h=hugging: hugging_counts(h, texts))
            own = TokenizerJson(kind, folder / f"{kind}.json")
            timed(name, f"contextcliff ({own.engine})", lambda o=own: o.count_many(texts))
    for row in rows:
        del row["_counts"]
    return rows


def hugging_counts(tokenizer: Any, texts: list[str]) -> list[int]:
    """Counts of ``encode_batch_fast``, 64 texts at a time."""
    return [
        len(one)
        for at in range(0, len(texts), 64)
        for one in tokenizer.encode_batch_fast(texts[at : at + 64], add_special_tokens=False)
    ]


def preparation(folder: Path) -> dict[str, Any]:
    """CPU seconds from nothing to a drawn manifest of 1,200 reference documents."""
    from contextcliff_dagster.corpora.materialize import materialize_corpus
    from contextcliff_dagster.corpora.registry import open_corpus
    from contextcliff_dagster.sampling.bins import BinSpec, make_bins
    from contextcliff_dagster.sampling.length_map import build_length_map, read_length_map
    from contextcliff_dagster.sampling.manifest import SampleSpec, draw_manifest, save_manifest
    from contextcliff_dagster.sampling.tokenizers import open_tokenizer

    marks = {"start": time.process_time()}
    materialize_corpus(open_corpus("reference", {"documents": 1_200, "task": "lookup"}), folder)
    marks["corpus"] = time.process_time()
    build_length_map(folder, open_tokenizer("reference"), folder / "length_map.parquet")
    marks["length map"] = time.process_time()
    lengths = read_length_map(folder / "length_map.parquet")
    columns = lengths["length_tokens"].to_pylist(), lengths["document_id"].to_pylist()
    bins = make_bins(*columns, BinSpec())
    save_manifest(draw_manifest(folder, lengths, bins, SampleSpec(), {}), folder / "manifest")
    marks["bins and manifest"] = time.process_time()
    names = list(marks)
    steps = {b: round(marks[b] - marks[a], 2) for a, b in pairwise(names)}
    return {
        "documents": 1_200,
        "cpu_s": round(marks[names[-1]] - marks["start"], 2),
        "steps": steps,
    }


def show(figures: dict[str, Any]) -> None:
    m = figures["memory"]
    print(
        f"{m['text_mb']:,} MB of text, {m['documents']:,} documents, {m['examples']:,} examples; "
        f"peak memory above the bare interpreter's {m['interpreter_mb']} MB:"
    )
    print(
        f"  materialized: {m['materialize_above_interpreter_mb']} MB, "
        f"{m['materialize_cpu_s']} CPU s (generating included)"
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
        "--megabytes", type=float, default=1_000, help="text to count for the memory"
    )
    parser.add_argument("--memory-only", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--inner", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inner == "materialize":
        print(json.dumps(materialize_here(given.megabytes, given.folder)))
        return
    if given.inner:
        print(json.dumps(count_here(given.inner, given.folder)))
        return
    figures: dict[str, Any] = {"memory": memory(given.megabytes)}
    if not given.memory_only:
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
