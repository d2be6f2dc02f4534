"""The command line and the shell it runs in: signals, completion, the first sign of life."""
