"""What scores say of the mean over length: the curve that only falls, and the scan for any drop.

Belongs here: cells, the falling process and its posterior, readings of it, the permutation scan.
Does not belong here: what a fitted curve means for a user (`cliff`).
"""
