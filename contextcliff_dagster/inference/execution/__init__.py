"""The execution of a plan's calls: claims, budget, rate limits, retries, prediction rows.

Does not belong here: how one engine handles one request (`engines`).
"""
