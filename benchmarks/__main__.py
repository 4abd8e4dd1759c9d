"""Run benchmarks by name, or all of them."""

import sys

# Importing a module registers its benchmarks.
import benchmarks.kernels
import benchmarks.levels
import benchmarks.pipeline  # noqa: F401
from benchmarks.harness import run

run(sys.argv[1:])
