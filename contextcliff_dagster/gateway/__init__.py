"""Enforcement of the cap: a hook of the LiteLLM proxy, and ASGI middleware.

Belongs here: measuring a request's prompt, and handling one above the cap of `safe-context.json`.
Does not belong here: fields and reading of a policy (`policy`). Like that module, it needs only the
standard library, plus the package of the policy's tokenizer if tokens are counted.
"""
