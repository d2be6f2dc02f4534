"""What a command shows: tables, JSON, progress, and what it keeps from the terminal."""
