"""The assets of one study, by subject; each function returns them for a given study."""
