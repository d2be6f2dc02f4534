"""A small OpenAI-compatible server over an engine of ours.

Does not belong here: the client side of the same format (`engines.openai`).
"""
