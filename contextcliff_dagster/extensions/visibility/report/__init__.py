"""The visibility report: a page as data, its pictures, and descriptions of single runs.

This package describes, tabulates and plots a `results.VisibilityResult` and the records of single
runs. Statistics over several runs that the result lacks belong in `analysis`.
"""
