"""Rows of the experiment `utilization` in the tables of the core's tests."""

from __future__ import annotations

from contextcliff_dagster_tests.extensions.utilization.test_quick_start import COMMAND, OURS

LINES = {"utilization": "utilization --model reference-short --benchmark ledger --scale 1k"}
VALUES = {
    f"utilization --model reference-short --tokenizer tiktoken:o200k_base {option}": values
    for option, values in {
        "--scale": ("", ",", "x", "0", "-1", "20", "200", "100M", "8k-1k", "1e9", "1k,1000"),
        "--benchmark": ("", "x", "ledger,warehouse", "\x00", "ledger,x"),
        "--formats": ("", "yaml", "jsonl,structured", "x" * 5_000),
        "--evidence": ("", "x", "fixed,fixed"),
        "--verbosity": ("", "x"),
        "--order": ("", "x", "random"),
        "--corruption": ("", "x", "1", "-.1", "nan", "5%:x", "200%", "0,0"),
        "--thought": ("", "maybe"),
        "--question-place": ("", "x"),
        "--match": ("", "x"),
        "--margin": ("0", "1", "nan"),
        "--tokenizer": ("x", "tiktoken:x", "file:nosuch.json"),
    }.items()
}
NOT_RUN = {
    "profile utilization-local": "needs a model, and half an hour of two cores",
    **dict.fromkeys(
        (ours.removeprefix(COMMAND) for ours in OURS if ours.startswith(f"{COMMAND}utilization")),
        "is run at a small scale; extensions/utilization/test_quick_start.py",
    ),
}
