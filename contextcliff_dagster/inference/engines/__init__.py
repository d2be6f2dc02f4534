"""The engines: one file or folder for each way to reach a model, and their shared code.

Belongs here: loading or starting a model, counting a prompt, streaming an answer, mapping errors.
Heavy libraries are imported on `start`. `open_engine` looks engines up in `models.engine_table`.
Does not belong here: retries, rate limits and budgets of calls (`execution`)."""
