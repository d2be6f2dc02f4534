"""vLLM, in this process or on a server that is started for the run.

Does not belong here: a vLLM server of somebody else, which is an OpenAI-compatible endpoint.
"""
