"""Who is alerted, and of what: channels, and the sensor that reports failed runs.

Belongs here: how an alert is sent, and once. Does not belong here: what an experiment finds worth
an alert (`experiments.common.outcomes.Alarm`).
"""
