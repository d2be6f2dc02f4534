"""Measure where a language model stops being reliable, and turn it into a safe context cap."""
