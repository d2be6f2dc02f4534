"""Designs by simulation: error rates, power, and where the next samples teach most.

Belongs here: true curves, simulated samples, sequential rounds, allocation.
Does not belong here: reading studies or stores (`experiments`).
"""
