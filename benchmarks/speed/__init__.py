"""The benchmarks of `sstq bench`: speed on this machine, as ratios against references in one process.

`suite` has the measurements; `benchmarks.speed.harness` times them, `benchmarks.speed.report` stores and compares their
results.
"""

from __future__ import annotations

from functools import partial

from benchmarks.speed.harness import Benchmark, Measured, Remark, Result, fastest
from benchmarks.speed.measurements import aggregate, bandwidth, encode, scaling, transform
from benchmarks.speed.processes import startup
from benchmarks.speed.profile import stages
from benchmarks.speed.report import Change, Run, compare, read_run, write_run

__all__ = ["Change", "Measured", "Remark", "Result", "Run", "compare", "fastest", "read_run", "suite", "write_run"]


def suite(quick: bool = False) -> dict[str, Benchmark]:
    """Return the measurements by name, in the order to call them; `quick` takes fewer sizes and repeats.

    Examples:
        >>> list(suite())
        ['bandwidth', 'transform', 'encode', 'scaling', 'aggregate', 'stages', 'startup']
    """
    measurements = (bandwidth, transform, encode, scaling, aggregate, stages, startup)
    return {measurement.__name__: partial(measurement, quick) for measurement in measurements}
