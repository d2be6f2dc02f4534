"""The engines: one file or folder per way of reaching a model, and what they share.

Belongs here: loading or starting a model, counting a prompt, streaming an answer, mapping errors.
Heavy libraries are imported on `start`. `open_engine` resolves the table of `models.engine_table`.
Does not belong here: retries, rate limits and budget of calls (`execution`).
"""
