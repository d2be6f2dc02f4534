"""vLLM, in this process or on a server that is started for the run.

Does not belong here: a vLLM server that is running already, which is an OpenAI-compatible endpoint.
"""
