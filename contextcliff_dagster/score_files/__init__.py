"""Scores measured elsewhere: files of records, tables of means by length, and logs.

Belongs here: reading CSV, TSV, JSON Lines, JSON and Parquet by whole columns, and refusing what
cannot be analysed with the file and the row; logs of other evaluation tools (`logs`). Does not
belong here: any statistics.
"""

# mypy: implicit-reexport
# ruff: noqa: F401 - what is imported here is what this package offers

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.columns import stem
from contextcliff_dagster.score_files.logs.answers import LogOptions, UnusableLogError
from contextcliff_dagster.score_files.logs.collect import read_log
from contextcliff_dagster.score_files.logs.members import files_in
from contextcliff_dagster.score_files.reader import (
    chosen,
    need_two_lengths,
    pooled,
    read_scores,
    read_wide_means,
)
from contextcliff_dagster.score_files.records import (
    MeansTable,
    ScoreRecords,
    read_records,
    read_tables,
)
