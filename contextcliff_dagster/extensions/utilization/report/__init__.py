"""The utilization report: a page as data, and its pictures.

This package words, tabulates and draws a `results.UtilizationResult`. It computes no numbers that
are not in the result; those belong to `analysis`.
"""
