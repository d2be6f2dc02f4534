"""Analysis of one model's records: runs, effects of axes, interactions, curves, seed planning.

Training, prompts and reports do not belong here.
"""
