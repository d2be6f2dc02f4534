"""Results in an experiment tracker: one run for each model of a campaign.

Belongs here: what is logged, and which run it belongs to. Each tracker has a script of its own,
which needs no more than Python and the tracker: it runs as a process, so that nothing of the
tracker stays in ours, and one that hangs is ended.
"""
