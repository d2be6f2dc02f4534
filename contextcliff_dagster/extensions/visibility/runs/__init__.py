"""Runs of an agent: from each reply to the next prompt, and the record of each step.

This package holds cached trainings, the conversation of a run, sources of calls, records and
traces. Prompts and replies belong to `visibility.agent`, conclusions to `visibility.analysis`.
"""
