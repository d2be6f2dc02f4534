"""The length profile: score over natural document length, its cliff and the safe context cap.

Belongs here: the steps from records to profile and report, adaptive rounds, regression, design.
Does not belong here: measuring and preparation, which all experiments share (`common`).
"""
