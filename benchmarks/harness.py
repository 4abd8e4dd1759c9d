"""The benchmarks of this folder, by name; timing, tables and JSON are those of `benchmarks.speed.harness`."""

from benchmarks.speed.harness import Benchmark, Measured, Result, fastest, in_turns, seconds_of

__all__ = ["BENCHMARKS", "Measured", "Result", "benchmark", "fastest", "in_turns", "seconds_of"]

BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(function: Benchmark) -> Benchmark:
    """Register a benchmark under its function's name; its docstring titles the table."""
    BENCHMARKS[function.__name__] = function
    return function
