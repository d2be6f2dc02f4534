"""From the records of one model to what they say of formats: curves, paired tests, divergence.

Belongs here: statistics over documents, the units that are independent. Does not belong here: how
answers are scored, and how a result is shown.
"""
