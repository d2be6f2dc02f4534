"""The output of commands: tables, JSON, progress, and sanitised terminal text."""
