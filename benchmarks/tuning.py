"""Calibration of `sstq.planning.tuning`: how many inputs miss the certificate at the lowered levels, and below."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Result, benchmark
from benchmarks.levels import misses
from sstq.frames.kashin import default_level, least_level


@benchmark
def tuned_levels() -> Iterator[Result]:
    """Inputs that miss the certificate, per mille, at the level of `sstq.planning.tuning` and at 0.05 below it in β."""
    for size in (4096, 16_384):
        for redundancy in (2.5, 3.2, 4.0, 5.0, 8.0, 16.0, 32.0):
            dim = round(size / redundancy)
            level = least_level(dim, size)
            beta = level * np.sqrt(dim / size)
            frames = max(4, (1 << 17) // size)
            missed, total = misses(dim, size, level / default_level(dim, size), frames)
            below, _ = misses(dim, size, (beta - 0.05) / beta * level / default_level(dim, size), frames)
            note = f"of {total} inputs; {below} at 0.05 below"
            yield Result(f"N = {size}, ρ = {redundancy:g}, β = {beta:.2f}", 1e3 * missed / total, "‰", note)
