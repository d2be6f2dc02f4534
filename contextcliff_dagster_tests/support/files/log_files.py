"""Logs in the formats of other tools, written by ourselves."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer, open_tokenizer

Json = dict[str, Any]
WORDS = "the ledger of the warehouse lists crates and pallets".split()


@cache
def small_tokenizer(name: str) -> Tokenizer:
    """One tokenizer, whatever the name: the large vocabularies take seconds to load."""
    return open_tokenizer("reference")


def text(number: int, words: int) -> str:
    """A document of its own, some ``words`` long."""
    return f"Document {number}. " + " ".join((WORDS * (words // len(WORDS) + 1))[:words])


def zstandard(content: bytes) -> tuple[int, bytes]:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return 93, sink.getvalue().to_pybytes()


def deflated(content: bytes) -> tuple[int, bytes]:
    packer = zlib.compressobj(wbits=-15)
    return 8, packer.compress(content) + packer.flush()


def stored(content: bytes) -> tuple[int, bytes]:
    return 0, content


def write_zip(
    path: Path,
    members: Mapping[str, bytes],
    pack: Callable[[bytes], tuple[int, bytes]] = zstandard,
    *,
    flags: int = 0,
    declared: int | None = None,
    crc: int | None = None,
) -> Path:
    """A zip file by hand: Python's own writes no Zstandard before 3.14, and never wrong headers."""
    local, central, count = bytearray(), bytearray(), 0
    for name, content in members.items():
        method, packed = pack(content)
        checksum = zlib.crc32(content) if crc is None else crc
        size = len(content) if declared is None else declared
        raw = name.encode()
        common = struct.pack(
            "<HHHHHIIIHH", 20, flags, method, 0, 33, checksum, len(packed), size, len(raw), 0
        )
        central += b"PK\x01\x02\x14\x00" + common + struct.pack("<HHHII", 0, 0, 0, 0, len(local))
        central += raw
        local += b"PK\x03\x04" + common + raw + packed
        count += 1
    end = struct.pack("<HHHHIIH", 0, 0, count, count, len(central), len(local), 0)
    path.write_bytes(bytes(local + central) + b"PK\x05\x06" + end)
    return path


def inspect_head(status: str = "success", **more: Any) -> Json:
    spec = {"run_id": "r", "task": "crates", "model": "openai/some-model"}
    return {"version": 2, "status": status, "eval": spec, **more}


def inspect_sample(number: int, epoch: int = 1, **more: Any) -> Json:
    return {
        "id": number,
        "epoch": epoch,
        "input": text(number, 10 * number) + "\n\nHow many?",
        "target": str(number),
        "output": {
            "completion": str(number),
            "usage": {
                "input_tokens": 10 * number,
                "input_tokens_cache_read": 5,
                "output_tokens": 2,
                "total_tokens": 10 * number + 7,
            },
        },
        "scores": {"exact": {"value": "C" if number < 5 else "I"}},
        "metadata": {},
        **more,
    }


def members_of(head: Json, samples: Sequence[Json]) -> dict[str, bytes]:
    """What a `.eval` file holds of a run that has ended."""
    inside = {"_journal/start.json": json.dumps(head).encode()}
    for sample in samples:
        name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
        inside[name] = json.dumps(sample).encode()
    return {**inside, "header.json": json.dumps(head).encode()}


def write_inspect(path: Path, samples: Sequence[Json], head: Json | None = None) -> Path:
    return write_zip(path, members_of(head or inspect_head(), samples))


def write_inspect_json(path: Path, samples: Sequence[Json], head: Json | None = None) -> Path:
    whole = {**(head or inspect_head()), "samples": list(samples), "reductions": [{"x": 1}]}
    path.write_text(json.dumps(whole, indent=2), encoding="utf-8")
    return path


def lm_eval_row(number: int, filter: str = "none", **more: Any) -> Json:
    document = {"context": text(number, 10 * number), "question": "How many?"}
    return {
        "doc_id": number,
        "doc": document,
        "target": str(number),
        "arguments": {"gen_args_0": {"arg_0": document["context"] + " How many?", "arg_1": {}}},
        "resps": [[str(number)]],
        "filtered_resps": [str(number) if number < 5 else "none of these"],
        "filter": filter,
        "metrics": ["exact_match"],
        "doc_hash": f"{number:064x}",
        "exact_match": float(number < 5),
        **more,
    }


def write_lines(path: Path, rows: Sequence[Json]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_helmet(path: Path, length: int, numbers: Sequence[int], model: str = "org/m") -> Path:
    items = [
        {
            "id": number,
            "question": f"How many of {number}?",
            "answer": [str(number)],
            "popularity": 4_200,
            "output": str(number),
            "parsed_output": str(number),
            "input_len": length - number,
            "output_len": 3,
            "substring_exact_match": number % 2 == 0,
            "rougeL_f1": 0.25,
        }
        for number in numbers
    ]
    lists: dict[str, list[Any]] = {"input_len": [], "substring_exact_match": [], "rougeL_f1": []}
    arguments = {"model_name_or_path": model, "datasets": "kilt_nq", "input_max_length": length}
    path.write_text(
        json.dumps({"args": arguments, "data": items, "metrics": lists}, indent=4), "utf-8"
    )
    return path


def longbench_2_row(number: int, **more: Any) -> Json:
    return {
        "_id": f"id{number}",
        "difficulty": "easy",
        "length": "short",
        "question": "Which?",
        "answer": "A",
        "context": text(number, 300 + 20 * number)[:1_000],
        "response": "The correct answer is (A)",
        "pred": "A" if number < 5 else None,
        "judge": number < 5,
        **more,
    }
