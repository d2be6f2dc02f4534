"""How far a continuation is from its author, in units of how far authors are from themselves.

Belongs here: the metrics that enter, their scales and covariance over human passages, the distance
and the score made of it. Does not belong here: what scores mean over context sizes (`analysis/`).
"""
