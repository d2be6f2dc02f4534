"""Controls: the same questions without the document, or with its evidence alone.

Belongs here: which controls a study asks, their records and their judgement.
Does not belong here: the measured curve, which they never enter.
"""
