"""Visibility: how an agent's tuning of hyper-parameters depends on the information it is shown.

This package holds tasks with their parameter spaces, landscapes of their scores, searches without a
model, and measures of search behaviour.
"""
