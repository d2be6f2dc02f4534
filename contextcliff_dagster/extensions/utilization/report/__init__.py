"""The utilization report: a page as data, and its pictures.

Belongs here: wording, tables and drawing of a `results.UtilizationResult`. Does not belong here:
any figure that is not in the result (`analysis`).
"""
