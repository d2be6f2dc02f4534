"""The runs that one campaign takes: those that measure, side by side, and the one that reports."""
