"""Pictures: the report figure and its panels, confounds, sensitivity, attention, comparison.

Does not belong here: computing the numbers drawn, which `analysis` does.
"""
