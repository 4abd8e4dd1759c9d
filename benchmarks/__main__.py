"""Run benchmarks by name, or all of them."""

import sys

# Importing a module registers its benchmarks.
import benchmarks.densities
import benchmarks.frames
import benchmarks.kernels
import benchmarks.levels
import benchmarks.pipeline
import benchmarks.strata
import benchmarks.theory
import benchmarks.training
import benchmarks.tuning  # noqa: F401
from benchmarks.harness import run

run(sys.argv[1:])
