"""What `support.files.vocabularies` opens."""

from contextcliff_dagster_tests.support.files.vocabularies import none_stays_open

__all__ = ["none_stays_open"]
