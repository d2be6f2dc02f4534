"""Measures of prose: pure functions of a text that ignore its typography.

This package covers words and sentences, metrics, signs of collapse, verbatim overlap and sentence
embeddings. Distances between texts (`noise`) and the metrics in another tool's result files
(`compat/`) do not belong here.
"""
