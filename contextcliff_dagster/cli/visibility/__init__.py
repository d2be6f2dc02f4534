"""What `contextcliff visibility` needs of its own: studies of its options, and what it prints.

Not here: the command itself (`cli.commands.visibility`).
"""
