"""Commands that write what others use: an archive, a site, a block for a model card, a policy.

Belongs here: options, and what is printed.
Does not belong here: what such a file holds (`archive`, `reporting`, `policy`).
"""
