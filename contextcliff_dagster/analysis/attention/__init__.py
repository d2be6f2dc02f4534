"""Attention of the last prompt token over length, and whether it foretells a wrong answer.

Belongs here: entropy and shares over length, tests at equal length, the threshold of entropy.
Does not belong here: how attention is measured (`inference`). Verdict and cap never use it.
"""
