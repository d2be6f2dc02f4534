"""What is seen of a running measurement: progress, counters, spans.

Does not belong here: measured times, which are results (`requests.outcome`).
"""
