"""Whole runs in parts: rounds, shards, and the kernels compiled beforehand."""
