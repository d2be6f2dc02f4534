"""Results in an experiment tracker: one run for each model of a campaign.

Belongs here: the content to log, and its run. Each tracker has its own script, which needs only
Python and the tracker. It runs as a separate process, so that the tracker leaves nothing in ours
and can be ended if it hangs.
"""
