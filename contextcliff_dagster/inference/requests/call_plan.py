"""The calls of a measurement: which prompts, in which order, under which keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe, stable_hash
from contextcliff_dagster.inference.requests.shared_document import SharedText, shared_text
from contextcliff_dagster.sampling.sample_source import SampleSource as SampleSource


@dataclass(frozen=True)
class PlannedCall:
    """One call to make: an example, a replicate, and the key under which the ledger keeps it."""

    call_key: str
    example: Example
    length_tokens: int
    bin: str
    rank: int
    replicate: int
    recipe: Recipe
    document_text: Callable[[str], str]

    @property
    def document(self) -> str:
        """The document's text, read when asked for."""
        return self._shared.text

    @property
    def _shared(self) -> SharedText:
        return shared_text(self.example.document_id, self.document_text)

    def prompt(self) -> Prompt:
        """The rendered prompt."""
        return self.recipe.render(self._shared, self.example.question, self.replicate)


def call_key(
    identity_hash: str, recipe: Recipe, example: Example, replicate: int, campaign: str
) -> str:
    """Key of a call: who is asked, what is asked, about which text, and in which campaign.

    The study is not in it: two studies of one store that ask the same thing in campaigns of the
    same name share the answer.
    """
    return stable_hash(
        [
            identity_hash,
            recipe.replicate_hash(replicate),
            example.document_id,
            example.question,
            replicate,
            campaign,
        ]
    )


def plan_calls(
    manifest: SampleSource,
    identity_hash: str,
    recipe: Recipe,
    campaign: str,
    bins: Sequence[str],
    n: int,
) -> list[PlannedCall]:
    """The first ``n`` examples of each bin, times the recipe's replicates.

    Order: bins as given; within a bin in the manifest's order, except that questions over one
    document stand together (servers with a prefix cache then read it once), or, where the recipe
    wants no prefix cache, as far apart as they can: one question of each document, then the next.
    With a cache of a few documents the one is the best of orders, and the other the worst.
    """
    calls: list[PlannedCall] = []
    for name in bins:
        planned = list(manifest.planned(name, n))
        first_seen: dict[str, int] = {}
        for sample in planned:
            first_seen.setdefault(sample.example.document_id, sample.rank)
        planned.sort(key=lambda sample: (first_seen[sample.example.document_id], sample.rank))
        of_bin = [
            PlannedCall(
                call_key=call_key(identity_hash, recipe, sample.example, replicate, campaign),
                example=sample.example,
                length_tokens=sample.length_tokens,
                bin=name,
                rank=sample.rank,
                replicate=replicate,
                recipe=recipe,
                document_text=manifest.document_text,
            )
            for sample in planned
            for replicate in range(recipe.replicates)
        ]
        calls.extend(of_bin if recipe.prefix_cache else _apart(of_bin))
    return calls


def _apart(calls: Sequence[PlannedCall]) -> list[PlannedCall]:
    """The first call of each document, then the second of each, and so on."""
    turn: Counter[str] = Counter()
    turns: list[tuple[int, PlannedCall]] = []
    for call in calls:
        turns.append((turn[call.example.document_id], call))
        turn[call.example.document_id] += 1
    return [call for _, call in sorted(turns, key=lambda item: item[0])]
