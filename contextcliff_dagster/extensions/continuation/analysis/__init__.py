"""Analysis of one model's outcomes over context sizes, with passages as units.

This package holds statistics over passages measured at every size. Measuring prose (`prose`),
scoring it (`noise`, `scoring`) and presenting results (`report`) do not belong here.
"""
