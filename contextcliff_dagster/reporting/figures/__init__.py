"""Pictures: the report figure and its panels, confounds, sensitivity, comparison.

Does not belong here: the numbers drawn, which come finished from `analysis`.
"""
