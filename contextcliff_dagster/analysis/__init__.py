"""Scored records in, a verdict with its uncertainty out.

Belongs here: statistics over eval records, the verdict, the safe cap, and the assembly of
``metrics.json`` and ``cliffs.json``, all pure functions of data and a seed.
Does not belong here: files, pictures and prose (`reporting`), scoring, engines.
"""
