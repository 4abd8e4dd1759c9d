"""Calibration of the default Kashin levels: how many inputs miss the certificate at, below and above them."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Result, benchmark
from sstq.frames.kashin import CERTIFIED_RESIDUAL, default_level, make_kashin, represent
from sstq.frames.tight import HadamardFrame, default_frame_size
from sstq.mechanisms.trial_vectors import structured_vectors


def misses(dim: int, size: int, factor: float, frames: int) -> tuple[int, int]:
    """How many of how many inputs miss at `factor` times the default level."""
    missed = total = 0
    for seed in range(frames):
        named = structured_vectors(dim, np.random.default_rng(10_000 + seed))
        x = np.concatenate([*named.values()]).astype(np.float32)
        frame = HadamardFrame(dim, size, seed=20_000 + seed)
        _, residuals = represent(frame, make_kashin("certified", frame, factor * default_level(dim, size)), x)
        missed += int((residuals > CERTIFIED_RESIDUAL).sum())
        total += len(x)
    return missed, total


@benchmark
def levels() -> Iterator[Result]:
    """Inputs that miss the certificate, per mille, at the default Kashin level and at 0.9 and 1.1 of it."""
    default_sizes = [
        (dim, default_frame_size(dim)) for dim in (16, 25, 51, 100, 204, 409, 700, 819, 1638, 3276, 26_214)
    ]
    other_sizes = [(size * 100 // int(100 * rho), size) for size in (256, 4096) for rho in (1.05, 1.2, 1.5, 2.0, 2.25)]
    for dim, size in default_sizes + other_sizes:
        frames = max(2, min(100, (1 << 19) // size))
        missed = {factor: misses(dim, size, factor, frames) for factor in (0.9, 1.0, 1.1)}
        at_level, total = missed[1.0]
        beta = default_level(dim, size) / (size / dim) ** 0.5
        note = f"of {total} inputs; {missed[0.9][0]} at 0.9 and {missed[1.1][0]} at 1.1 of the level"
        yield Result(f"d = {dim}, ρ = {size / dim:.2f}, β = {beta:.2f}", 1e3 * at_level / total, "‰", note)
