"""Runs of an agent: how each reply leads to the next prompt, and how each step is recorded.

This package contains cached trainings, the sequence of calls in a run, call sources, records and
traces. Prompts and replies belong in `visibility.agent`, conclusions in `visibility.analysis`.
"""
