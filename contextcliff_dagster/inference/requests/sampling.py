"""How tokens are drawn where a recipe asks for more than the likeliest ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from contextcliff_dagster.contracts import StudyError

_MOST_ROUNDS = 1_000


@dataclass(frozen=True, slots=True)
class Sampling:
    """The same prompt is answered ``rounds`` times, round ``i`` with the seed ``seed + i``.

    ``top_k``: tokens that may be drawn, 0 for all; ``top_p``: their share of the probability. The
    temperature is the recipe's.

    Raises:
        StudyError: a value is out of its bounds.
    """

    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    rounds: int = 1

    def __post_init__(self) -> None:
        for name, holds, bounds in (
            ("top_k", self.top_k >= 0, "0 (all tokens) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("seed", 0 <= self.seed < 2**31 - _MOST_ROUNDS, "0 or more, and below 2,147,482,648"),
            ("rounds", 1 <= self.rounds <= _MOST_ROUNDS, f"from 1 to {_MOST_ROUNDS:,}"),
        ):
            if not holds:
                raise StudyError(f"{name} is {getattr(self, name)}; it should be {bounds}.")

    def of_all_rounds(self) -> dict[str, Any]:
        """What is the same in every round, JSON-ready."""
        fields = asdict(self)
        del fields["seed"], fields["rounds"]
        return fields

    def seed_of(self, round_number: int) -> int:
        """The seed of a round; rounds count from 0."""
        return self.seed + round_number
