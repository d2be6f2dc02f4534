"""Measured stores of `support.measured_stores`, for the tests of this folder."""

from contextcliff_dagster_tests.support.measured_stores import few_store, quick_store

__all__ = ["few_store", "quick_store"]
