"""The tiny study of `support.tiny_study`, also measured, for the tests of this folder."""

from contextcliff_dagster_tests.support.measured_stores import measured
from contextcliff_dagster_tests.support.tiny_study import (
    instance,
    prepared,
    run,
    store,
    study,
    unrecorded,
)

__all__ = ["instance", "measured", "prepared", "run", "store", "study", "unrecorded"]
