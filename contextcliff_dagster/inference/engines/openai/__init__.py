"""OpenAI-compatible endpoints.

Belongs here: the HTTP client, wire format, server detection, token counting, error mapping.
Does not belong here: retry and rate limits, which every engine shares (`execution`).
"""
