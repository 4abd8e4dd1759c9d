"""SQKR: one-bit coefficients of a Kashin representation."""
