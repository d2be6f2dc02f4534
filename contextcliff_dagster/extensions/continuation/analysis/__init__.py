"""Analysis of one model's outcomes over context sizes, with passages as units.

Belongs here: statistics over passages measured at every size. Does not belong here: measuring prose
(`prose`), scoring it (`noise`, `scoring`) and showing results (`report`).
"""
