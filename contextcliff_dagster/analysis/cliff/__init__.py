"""The verdict, the safe context cap, the baseline and the zones of one model.

Belongs here: decisions drawn from fitted curves.
Does not belong here: the fits (`curves`), times (`latency`), second opinions (`robustness`).
"""
