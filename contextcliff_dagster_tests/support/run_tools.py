"""Evaluations by other tools, run where they are installed: their real logs.

    python run_tools.py inspect_ai|lm_eval URL FOLDER QUESTIONS

QUESTIONS is JSON Lines of `id`, `context`, `question`, `answer`. Needs nothing of this project.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def inspect_ai(url: str, folder: Path, questions: list[dict[str, Any]]) -> None:
    """Two epochs in both formats, with one request refused; and a run that fails for that."""
    os.environ.update(STUB_API_KEY="none", STUB_BASE_URL=url)
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.scorer import exact, includes
    from inspect_ai.solver import generate

    samples = [
        Sample(
            f"{row['context']}\n\n{row['question']}",
            target=row["answer"],
            id=row["id"],
            metadata={"context": row["context"]},
        )
        for row in questions
    ]
    runs = (("both", "eval", 0.5), ("both", "json", 0.5), ("failed", "eval", True))
    for name, form, fail in runs:
        scorers = [exact(), includes()]
        eval(
            Task(MemoryDataset(samples), solver=generate(), scorer=scorers, name=name),
            model="openai-api/stub/stub",
            epochs=2,
            fail_on_error=fail,
            log_dir=str(folder / name),
            log_format=form,
            log_realtime=False,
            display="none",
            max_retries=0,
        )


def lm_eval(url: str, folder: Path, questions: list[dict[str, Any]]) -> None:
    """One task with two filters, by the harness's own command line."""
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in questions), encoding="utf-8")
    first = [{"function": "take_first"}]
    digits = [{"function": "regex", "regex_pattern": "(\\d+)"}, *first]
    task = {
        "task": "crates",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{context}}\n\n{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 16, "do_sample": False},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "filter_list": [{"name": "whole", "filter": first}, {"name": "digits", "filter": digits}],
    }
    (folder / "crates.yaml").write_text(json.dumps(task), encoding="utf-8")  # JSON is YAML
    model = (
        f"model=stub,base_url={url}/chat/completions,num_concurrent=2,tokenized_requests=False,"
        "max_retries=1,max_length=1000000"
    )
    offline = {
        "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"),
        "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip
    subprocess.run(
        [
            *(sys.executable, "-m", "lm_eval", "--model", "local-chat-completions"),
            *("--model_args", model, "--tasks", "crates", "--include_path", str(folder)),
            *("--output_path", str(folder / "out"), "--log_samples", "--apply_chat_template"),
        ],
        env=os.environ | offline,
        check=True,
        cwd=folder,
    )


if __name__ == "__main__":
    tool, url, folder, path = sys.argv[1:]
    rows = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]
    {"inspect_ai": inspect_ai, "lm_eval": lm_eval}[tool](url, Path(folder), rows)
