"""Tight frames, families of frames, and bounded (Kashin) representations."""
