"""The benchmarks of `sstq bench`: speed on this machine, as ratios against references in one process.

`suite` has the measurements; `sstq.lab.bench.harness` times them, `sstq.lab.bench.report` stores and compares their
results.
"""

from __future__ import annotations

from functools import partial

from sstq.lab.bench.harness import Benchmark, Measured, Remark, Result, fastest
from sstq.lab.bench.measurements import aggregate, bandwidth, encode, scaling, transform
from sstq.lab.bench.processes import startup
from sstq.lab.bench.profile import stages
from sstq.lab.bench.report import Change, Run, compare, read_run, write_run

__all__ = ["Change", "Measured", "Remark", "Result", "Run", "compare", "fastest", "read_run", "suite", "write_run"]


def suite(quick: bool = False) -> dict[str, Benchmark]:
    """Return the measurements by name, in the order to call them; `quick` takes fewer sizes and repeats.

    Examples:
        >>> list(suite())
        ['bandwidth', 'transform', 'encode', 'scaling', 'aggregate', 'stages', 'startup']
    """
    measurements = (bandwidth, transform, encode, scaling, aggregate, stages, startup)
    return {measurement.__name__: partial(measurement, quick) for measurement in measurements}
