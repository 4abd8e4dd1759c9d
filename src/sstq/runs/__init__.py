"""Long runs in parts: rounds, cohorts, shards of files, public groups, and compiling kernels beforehand."""
