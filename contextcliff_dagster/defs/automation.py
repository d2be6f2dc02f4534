"""When assets run by themselves."""

from __future__ import annotations

import dagster as dg

FOLLOW_RECORDS = (
    dg.AutomationCondition.eager()
    # Predictions nearly always have gaps (a pilot, one model of three): plain eager() waits for
    # every partition for ever.
    .without(~dg.AutomationCondition.any_deps_missing())
    .with_label("follow_records")
)
"""For what is cheap and makes no call: follow whatever has been measured.

Assets that cost calls have no condition: they run only when somebody asks.
"""
