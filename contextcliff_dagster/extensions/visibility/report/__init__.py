"""The visibility report: a page as data, its pictures, and single runs in words.

This package words, tabulates and draws a `results.VisibilityResult` and the records of single runs.
Numbers over several runs that are not in the result belong to `analysis`.
"""
