"""An estimate takes time for each example and model: the asset's is the command's, too."""

from __future__ import annotations

import pytest

from contextcliff_dagster.inference.execution import cost_estimate
from contextcliff_dagster.inference.execution.cost_estimate import CostEstimate
from contextcliff_dagster.run.study import prepare_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

pytestmark = pytest.mark.usefixtures("unrecorded")


def test_a_prepared_study_is_estimated_once(
    study: Study, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, real = list[CostEstimate](), cost_estimate.estimate

    def estimate(*given: object, **more: object) -> CostEstimate:
        made.append(real(*given, **more))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(cost_estimate, "estimate", estimate)
    assert prepare_study(study, store=store).estimate is made[0]
    assert len(made) == 1
    # What is frozen already needs no run, and so no asset that estimates.
    assert prepare_study(study, store=store).estimate == made[0]
    assert len(made) == 2
