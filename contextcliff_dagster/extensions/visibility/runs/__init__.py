"""Runs of an agent: from a reply to the next prompt, and what became of each step.

Here: training with a memory, the conversation of a run, its sources of calls, its records, traces.
Not here: what is written in a prompt and read in a reply (`visibility.agent`), conclusions
(`visibility.analysis`).
"""
