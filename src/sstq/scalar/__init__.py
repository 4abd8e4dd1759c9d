"""Scalar parts of mechanisms: densities of coordinates, codebooks and exact channels."""
