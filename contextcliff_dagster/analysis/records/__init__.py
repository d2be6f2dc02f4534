"""Eval records as statistical samples, and the settings of the analysis.

Belongs here: turning rows of records into samples (replicates to examples, examples to documents),
their categories, what a user may choose.
Does not belong here: any estimate.
"""
