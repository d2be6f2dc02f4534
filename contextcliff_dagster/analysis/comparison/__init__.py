"""Two measurements compared: models, campaigns, or a run and its baseline.

Belongs here: pairing, tests of a difference, the regression test.
Does not belong here: the profile of a single model (`profile`).
"""
