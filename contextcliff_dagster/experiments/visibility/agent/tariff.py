"""Cost and latency that an agent is shown: a fixed tariff on the tokens that were recorded.

Real prices change and real latencies differ between two runs; a prompt that holds them cannot be
made again. These figures are round numbers of a small hosted model, and only their being fixed
matters: what is paid, and how long it took, is in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

from contextcliff_dagster.experiments.visibility.agent.state import Usage

INPUT_USD_PER_MTOK = 0.15
OUTPUT_USD_PER_MTOK = 0.60
SECONDS_A_CALL = 0.4
SECONDS_A_PROMPT_TOKEN = 0.0002
SECONDS_AN_OUTPUT_TOKEN = 0.02


def resources_text(usage: Sequence[Usage | None]) -> str:
    """Return tokens, cost (USD) and mean latency (s) of the steps so far as one line.

    Steps without recorded tokens (None) are left out of all three.
    """
    known = [one for one in usage if one is not None]
    prompt = sum(one.prompt_tokens for one in known)
    output = sum(one.output_tokens for one in known)
    cost = (prompt * INPUT_USD_PER_MTOK + output * OUTPUT_USD_PER_MTOK) / 1e6
    seconds = prompt * SECONDS_A_PROMPT_TOKEN + output * SECONDS_AN_OUTPUT_TOKEN
    latency = SECONDS_A_CALL + seconds / len(known) if known else 0.0
    return f"Used so far: {prompt + output} tokens, ${cost:.4f}, {latency:.1f} s per step."
