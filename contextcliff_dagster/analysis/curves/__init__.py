"""Families of curves over length and their fits: logistic, isotonic, steps, ramps and dips.

Belongs here: likelihoods, fits, confidence bands, the permutation scan for any drop.
Does not belong here: what a fitted curve means for a user (`cliff`).
"""
