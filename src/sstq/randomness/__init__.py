"""Randomness: secret words from the operating system, and public streams from a counter-based generator."""
