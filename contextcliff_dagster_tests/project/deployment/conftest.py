"""The tiny study, for the tests that run it in other people's executors."""

from contextcliff_dagster_tests.support.tiny_study import store, study

__all__ = ["store", "study"]
