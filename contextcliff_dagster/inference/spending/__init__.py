"""Budgets, and what a call costs.

Belongs here: reservations against a budget, prices per token.
Does not belong here: recording what was spent (`ledger`).
"""
