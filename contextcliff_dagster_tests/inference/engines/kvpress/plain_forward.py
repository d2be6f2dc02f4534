"""Run by the environment of kvpress: the worker's answers against forwards over whole prompts.

Prints the answer without a cache, and the worker's by policy, each with every entry kept.
"""

import json
import sys
import types

package = types.ModuleType("contextcliff_dagster")
package.__path__ = [sys.argv[1]]
sys.modules[package.__name__] = package

import torch  # noqa: E402

from contextcliff_dagster.inference.engines.kvpress.worker import Worker  # noqa: E402

MOST = 12
worker = Worker(json.loads(sys.argv[2]), set())
found = []
for asked in json.loads(sys.argv[3]):
    ids, _ = worker.encode(asked)
    plain: list[int] = []
    with torch.inference_mode():
        while len(plain) < MOST:
            token = int(worker.model(torch.tensor([ids + plain])).logits[0, -1].argmax())
            if token in worker.ends:
                break
            plain.append(token)
    answers = {"plain": worker.tokenizer.decode(plain, skip_special_tokens=True)}
    for policy in json.loads(sys.argv[4]):
        request = {**asked, "id": 1, "policy": policy, "budget": 1.0, "most": MOST, "reuse": False}
        answers[policy] = "".join(piece["text"] for piece in worker.answer(request))
    found.append(answers)
print(json.dumps(found))
