"""Benchmark data: seeded records, questions and answers, without side effects.

This package defines the facts of a benchmark. Renderings (`rendering`) and checks of rendered
documents (`verification`) do not belong here.
"""
