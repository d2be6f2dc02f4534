"""vLLM over a weights folder, in a process of its own: it changes the process that it runs in.

``python -m contextcliff_dagster_tests.support.vllm_greedy FOLDER DTYPE`` reads a JSON list of
prompts (token ids) from stdin and writes the greedy continuations, JSON too, as its last line.
"""

from __future__ import annotations

import json
import os
import sys

NEW_TOKENS = 12


def main(folder: str, dtype: str) -> None:
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        TORCHDYNAMO_DISABLE="1",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_LOGGING_LEVEL="WARNING",
    )
    from vllm import LLM, SamplingParams, TokensPrompt

    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in json.load(sys.stdin)]
    model = LLM(folder, dtype=dtype, enforce_eager=True)
    greedy = SamplingParams(temperature=0, seed=0, max_tokens=NEW_TOKENS)
    answers = model.generate(prompts, greedy, use_tqdm=False)
    print(json.dumps([list(answer.outputs[0].token_ids) for answer in answers]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
