"""Estimators that know nothing of length curves or verdicts.

Belongs here: intervals of means, intraclass correlation, dispersion, change points, restricted
permutation, direct standardization; arrays in, numbers out.
Does not belong here: anything that names a cap, a cliff or a model.
"""
