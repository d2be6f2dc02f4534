"""Readers of example files, row by row: JSON, JSON Lines, CSV, Parquet, local or downloaded.

Belongs here: formats, and what makes a row an example.
Does not belong here: documents without rows (`extraction`), published benchmarks (`benchmarks`).
"""
