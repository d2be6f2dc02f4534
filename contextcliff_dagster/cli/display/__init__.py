"""The output of commands: tables, JSON, progress, and what is kept from the terminal."""
