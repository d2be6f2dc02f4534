"""Agents of known behaviour, to check with what chance the analysis finds what is there.

They read the same prompts as a model and reply as one; none sees the axes. Does not belong here:
searches that a model is compared with (`baselines`).
"""
