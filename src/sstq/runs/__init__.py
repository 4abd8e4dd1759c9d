"""Whole runs in parts: rounds, shards, public groups, and the kernels compiled beforehand."""
