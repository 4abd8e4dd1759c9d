"""One coordinate at a time: densities, codebooks and exact channels."""
