"""Scores that somebody measured elsewhere: files of records, and tables of means by length.

Belongs here: reading CSV, TSV, JSON Lines, JSON and Parquet by whole columns, and refusing what
cannot be analysed with the file and the row. Does not belong here: any statistics.
"""

from __future__ import annotations

from contextcliff_dagster.score_files.choice import chosen, need_two_lengths
from contextcliff_dagster.score_files.columns import stem
from contextcliff_dagster.score_files.errors import ScoreFileError
from contextcliff_dagster.score_files.records import ScoreRecords, read_records
from contextcliff_dagster.score_files.tables import MeansTable, read_tables

__all__ = [
    "MeansTable",
    "ScoreFileError",
    "ScoreRecords",
    "chosen",
    "need_two_lengths",
    "read_records",
    "read_tables",
    "stem",
]
