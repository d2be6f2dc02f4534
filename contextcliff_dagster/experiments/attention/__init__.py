"""Attention of the last prompt token: what it is spread over as documents grow.

Belongs here: what is asked, and the records of it. Does not belong here: how an engine measures it
(`inference.engines.last_attention`), and what follows from it (`analysis.attention`).
"""
