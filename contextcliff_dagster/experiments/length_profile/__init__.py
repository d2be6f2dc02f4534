"""The length profile: score by natural document length, its cliff and the safe context cap.

Belongs here: the steps from records to profile and report, adaptive rounds, regression, design.
Does not belong here: measurement and preparation, which experiments share (`common`).
"""
