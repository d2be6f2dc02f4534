"""GGUF weights run in this process by llama.cpp.

Does not belong here: a llama.cpp server, which is an OpenAI-compatible endpoint.
"""
