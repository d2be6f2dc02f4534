"""What a model no longer takes is lost, what failed on the way is unknown."""

from __future__ import annotations

import numpy as np

from contextcliff_dagster.analysis.contrast import pair_records
from contextcliff_dagster.analysis.regression import find_shrink
from contextcliff_dagster.experiments.length_profile.regression import refused_as_lost
from contextcliff_dagster_tests.support.records.planted_curves import bins_of, flat, plant

ALPHA = 0.001


def test_long_prompts_that_are_refused_count_like_wrong_answers() -> None:
    before = plant(flat(0.9), 1).astype({"failed": float})
    after = before.copy()
    late = after["length_tokens"].gt(2_500)
    after.loc[late, ["score", "failed"]] = np.nan
    after.loc[late, "failure"] = "context_overflow"
    bins = bins_of(before)
    silent = find_shrink(pair_records(before, after, bins), ALPHA)
    assert not silent.shrunk
    lost = find_shrink(pair_records(before, refused_as_lost(after), bins), ALPHA)
    assert lost.shrunk
    assert lost.from_tokens >= 2_000
    after["failure"] = after["failure"].replace("context_overflow", "transport_error")
    assert refused_as_lost(after) is after
