"""Study design by simulation: error rates, power, and the best place for the next samples.

Belongs here: true curves, simulated samples, sequential rounds, allocation.
Does not belong here: reading studies or stores (`experiments`).
"""
