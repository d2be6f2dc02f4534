"""Analysis of one model's records by format: curves, paired tests, divergence.

This package holds the statistics, which treat documents as the independent units. Scoring of
answers and presentation of results do not belong here.
"""
