"""Scored records in, a verdict with its uncertainty out.

What belongs here: statistics over eval records (per bin, over the length axis, per model), the
verdict, the safe cap, and the assembly of ``metrics.json`` and ``cliffs.json``. Every function is
pure: data and a seed in, plain values out.

What does not: reading or writing files, pictures and prose (``reporting``), scoring of answers
(``scoring``), anything that knows an engine, and any knowledge of a model beyond its records.
"""
