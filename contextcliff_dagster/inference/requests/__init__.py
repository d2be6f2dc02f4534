"""Requests to models: prompt recipe, shared documents, planned calls, outcomes.

Belongs here: values that describe a call before and after it is made.
Does not belong here: sending calls (`engines`, `execution`)."""
