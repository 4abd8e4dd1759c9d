"""Tight frames, groups of them, and bounded representations in them."""
