"""Run by the environment of kvpress: a pressed cache against all entries under a mask.

Prints the largest difference of the logits with the question at its own positions, and with it
right behind the kept entries; then the worker's first token, and that of all entries.
"""

import json
import sys
import types

package = types.ModuleType("contextcliff_dagster")
package.__path__ = [sys.argv[1]]
sys.modules[package.__name__] = package

import torch  # noqa: E402

from contextcliff_dagster.inference.engines.kvpress.worker import Worker  # noqa: E402

DOCUMENT, QUESTION, KEPT, SINKS = 100, 20, 37, 4
WHOLE = DOCUMENT + QUESTION

worker = Worker(json.loads(sys.argv[2]), set())
torch.manual_seed(0)
ids = torch.randint(300, 1390, (WHOLE,)).tolist()
before = ids[:DOCUMENT]
read = worker.reader.read(before, (), lambda: False)


def logits_from(position: int) -> torch.Tensor:
    cache, _ = worker.reader.press(read, before, "streaming_llm", KEPT)
    question = torch.tensor([ids[DOCUMENT:]])
    places = torch.arange(position, position + QUESTION).unsqueeze(0)
    return worker.model(question, past_key_values=cache, position_ids=places).logits[0]


with torch.inference_mode():
    mask = torch.full((WHOLE, WHOLE), float("-inf")).triu(1)
    mask[DOCUMENT:, SINKS : DOCUMENT - (KEPT - SINKS)] = float("-inf")
    whole = worker.model(torch.tensor([ids]), attention_mask=mask[None, None]).logits[0, DOCUMENT:]
    differences = [(logits_from(n) - whole).abs().max().item() for n in (DOCUMENT, KEPT)]
    cache, _ = worker.reader.press(read, before, "streaming_llm", KEPT)
    token = next(worker._tokens(ids[DOCUMENT:], DOCUMENT, cache))
print(json.dumps([*differences, token, int(whole[-1].argmax())]))
