"""Estimators that are independent of length curves and verdicts.

Belongs here: intervals of means, intraclass correlation, dispersion, change points, restricted
permutation, direct standardization. They take arrays and return numbers.
Does not belong here: anything about a cap, a cliff or a model.
"""
