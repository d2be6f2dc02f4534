"""vLLM, in this process or on a server started for the run.

Does not belong here: a running vLLM server, which is an OpenAI-compatible endpoint.
"""
