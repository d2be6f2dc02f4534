"""From the outcomes of one model to what they say of context sizes: passages are the units.

Belongs here: statistics over passages that are measured at every size. Does not belong here: how
prose is measured (`prose`), scored (`distance`), and how a result is shown (`report`).
"""
