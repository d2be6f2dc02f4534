"""Making the calls of a plan: claims, budget, rate limits, retries, prediction rows.

Does not belong here: what one engine does with one request (`engines`).
"""
