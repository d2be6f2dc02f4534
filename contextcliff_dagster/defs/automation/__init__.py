"""What starts or ends runs by itself: schedules, sensors, the daily sentinel, the end of lost runs.

Belongs here: when a run is due, and with which settings. Does not belong here: what a run does
(`defs.assets`), and who is alerted (`defs.alerts`).
"""
