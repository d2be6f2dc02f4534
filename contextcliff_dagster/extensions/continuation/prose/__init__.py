"""Measures of prose: pure functions of a text that do not depend on its typography.

Belongs here: words and sentences, metrics, signs of collapse, verbatim overlap and embeddings of
sentences. Does not belong here: distances between texts (`noise`) and the metrics in another
tool's result files (`compat/`).
"""
