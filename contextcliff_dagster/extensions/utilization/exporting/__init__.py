"""Documents for other tools: JSON lines, and a task of inspect_ai over them.

Belongs here: what is written into an exported folder, and runs there alone.
"""
