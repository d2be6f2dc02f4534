"""The verdict on two formats: what the bands of all benchmarks, and of each, allow to say."""

from __future__ import annotations

from collections.abc import Sequence

from contextcliff_dagster.experiments.utilization.analysis.wording import shown_direction
from contextcliff_dagster.experiments.utilization.rendering.formats import Format
from contextcliff_dagster.experiments.utilization.results import FormatVerdict, ScopeComparison


def verdict_of(
    pooled: ScopeComparison,
    benchmarks: Sequence[ScopeComparison],
    a: Format,
    b: Format,
    *,
    floor: bool = False,
) -> tuple[FormatVerdict, Format | None]:
    """The verdict, and the better format where it names one; the first that applies:

    - ``task_dependent``: two benchmarks whose bands exclude 0 in opposite directions. Each band
      errs in either direction with half the error rate, so where at most three benchmarks are
      truly alike or of one sign this is wrong with at most the error rate.
    - ``floor``: where ``floor`` (both formats begin there, all benchmarks pooled), and no band
      excludes 0.
    - ``no_difference``: the pooled band lies within the margin at every scale compared (two
      one-sided tests at each, Schuirmann 1987), and no benchmark's band leaves it.
    - one is better: the pooled band excludes 0 at a scale or for the mean over scales, and nowhere
      in the other direction.
    - ``undecided``.
    """
    ways = {shown_direction(scope) for scope in benchmarks}
    if {1, -1} <= ways:
        return "task_dependent", None
    if floor and not ways - {0} and not shown_direction(pooled):
        return "floor", None
    parted = any(scope.divergence.status != "not_parted" for scope in benchmarks)
    if pooled.equivalent and not parted:
        return "no_difference", None
    way = shown_direction(pooled)
    if way not in (1, -1):
        return "undecided", None
    better = a if way == 1 else b
    if "prose" not in (a, b):
        return ("first_better" if way == 1 else "second_better"), better
    return ("prose_better" if better == "prose" else "structure_better"), better
