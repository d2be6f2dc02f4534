"""How far the result depends on one choice: definitions, settings, sample sizes.

Belongs here: whatever is reported next to the verdict and never changes it.
Does not belong here: the verdict (`cliff`).
"""
