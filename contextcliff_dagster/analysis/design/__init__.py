"""Study design by simulation: error rates, power, and the best lengths for the next samples.

Belongs here: true curves, simulated samples, sequential rounds, allocation.
Does not belong here: reading studies or stores (`experiments`).
"""
