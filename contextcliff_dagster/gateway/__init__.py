"""The cap where calls are made: a hook of the LiteLLM proxy, and ASGI middleware.

Belongs here: how long the prompt of a request is, and what happens to one above the cap of
`safe-context.json`. Not what a policy holds, nor reading it: that is `policy`. Like that, it needs
Python itself only, and the packages that count tokens where the policy's tokenizer is theirs.
"""
