"""Calibration of the Kashin levels, and of the table of typical coordinates that is shipped.

`python -m benchmarks densities` says how far the shipped table is from a fresh measurement;
`SSTQ_WRITE_TABLE=1 python -m benchmarks densities` puts the fresh one in its place.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import sstq.scalar.densities
from benchmarks.harness import Result, benchmark
from sstq.frames.kashin import (
    CERTIFIED_RESIDUAL,
    default_level,
    least_level,
    make_kashin,
    represent,
)
from sstq.frames.tight import HadamardFrame, default_frame_size
from sstq.inputs.trial_vectors import structured_vectors
from sstq.scalar.densities import KASHIN_TABLE, Density


def misses(dim: int, size: int, factor: float, frames: int) -> tuple[int, int]:
    """How many of how many inputs miss at `factor` times the default level."""
    missed = total = 0
    for seed in range(frames):
        named = structured_vectors(dim, np.random.default_rng(10_000 + seed))
        x = np.concatenate([*named.values()]).astype(np.float32)
        frame = HadamardFrame(dim, size, seed=20_000 + seed)
        _, residuals = represent(
            frame, make_kashin("certified", frame, factor * default_level(dim, size)), x
        )
        missed += int((residuals > CERTIFIED_RESIDUAL).sum())
        total += len(x)
    return missed, total


@benchmark
def levels() -> Iterator[Result]:
    """Inputs that miss the certificate, per mille, at the default Kashin level and at 0.9 and 1.1 of it."""
    default_sizes = [
        (dim, default_frame_size(dim))
        for dim in (16, 25, 51, 100, 204, 409, 700, 819, 1638, 3276, 26_214)
    ]
    other_sizes = [
        (size * 100 // int(100 * rho), size)
        for size in (256, 4096)
        for rho in (1.05, 1.2, 1.5, 2.0, 2.25)
    ]
    for dim, size in default_sizes + other_sizes:
        frames = max(2, min(100, (1 << 19) // size))
        missed = {
            factor: misses(dim, size, factor, frames) for factor in (0.9, 1.0, 1.1)
        }
        at_level, total = missed[1.0]
        beta = default_level(dim, size) / (size / dim) ** 0.5
        note = f"of {total} inputs; {missed[0.9][0]} at 0.9 and {missed[1.1][0]} at 1.1 of the level"
        yield Result(
            f"d = {dim}, ρ = {size / dim:.2f}, β = {beta:.2f}",
            1e3 * at_level / total,
            "‰",
            note,
        )


@benchmark
def tuned_levels() -> Iterator[Result]:
    """Inputs that miss the certificate, per mille, at `least_level` and at 0.05 below it in β."""
    for size in (4096, 16_384):
        for redundancy in (2.5, 3.2, 4.0, 5.0, 8.0, 16.0, 32.0):
            dim = round(size / redundancy)
            level = least_level(dim, size)
            beta = level * np.sqrt(dim / size)
            frames = max(4, (1 << 17) // size)
            missed, total = misses(dim, size, level / default_level(dim, size), frames)
            below, _ = misses(
                dim,
                size,
                (beta - 0.05) / beta * level / default_level(dim, size),
                frames,
            )
            note = f"of {total} inputs; {below} at 0.05 below"
            yield Result(
                f"N = {size}, ρ = {redundancy:g}, β = {beta:.2f}",
                1e3 * missed / total,
                "‰",
                note,
            )


BETAS = (
    1.0,
    1.15,
    1.25,
    1.35,
    1.4,
    1.45,
    1.5,
    1.55,
    1.6,
    1.65,
    1.7,
    1.75,
    1.8,
    1.85,
    1.9,
    1.95,
    2.0,
    2.1,
    2.2,
    2.3,
)
BETAS += (2.4, 2.5, 2.6, 2.8, 3.0, 3.5, 4.0, 5.0, 6.0)
REDUNDANCIES = (
    1.0,
    1.1,
    1.2,
    1.35,
    1.5,
    1.75,
    2.0,
    2.25,
    2.5,
    3.0,
    4.0,
    5.0,
    6.5,
    8.0,
    16.0,
)
HALF_CELLS = 32
SIZE = 1 << 14
# Some coordinates end just below the bound, in an eighth of the last cell: they count as being at it, because a
# constant density over the whole cell would put them too low.
AT_BOUND = 1 - 1 / (8 * HALF_CELLS)
FRAMES = 4
VECTORS = 16


def typical_coordinates(beta: float, redundancy: float) -> NDArray[np.float32]:
    """|t|/β of all coordinates of certified representations of Gaussian directions."""
    dim = round(SIZE / redundancy)
    parts = []
    for seed in range(FRAMES):
        x = np.random.default_rng(seed).standard_normal((VECTORS, dim))
        unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
        frame = HadamardFrame(dim, SIZE, seed=seed)
        recipe = make_kashin("certified", frame, beta * (SIZE / dim) ** 0.5)
        parts.append(np.abs(represent(frame, recipe, unit)[0]).ravel())
    return np.concatenate(parts)


def per_million(samples: NDArray[np.float32]) -> list[int]:
    """The shares of the cells of [0, 1) and of the point 1, in millionths that sum to a million."""
    inside = samples < AT_BOUND
    counts = np.append(
        np.histogram(samples[inside], HALF_CELLS, (0.0, 1.0))[0], np.sum(~inside)
    )
    rounded = np.round(counts * (1e6 / counts.sum())).astype(int)
    rounded[rounded.argmax()] += 1_000_000 - rounded.sum()
    return [int(share) for share in rounded]


@benchmark
def densities() -> Iterator[Result]:
    """Second moments of typical coordinates, measured, against the table that is shipped."""
    measured = []
    for beta in BETAS:
        measured.append([])
        for redundancy in REDUNDANCIES:
            samples = typical_coordinates(beta, redundancy)
            measured[-1].append(per_million(samples))
            if beta in (1.6, 1.8, 2.2) and redundancy in (2.0, 2.5, 4.0):
                moment = beta**2 * float(np.mean(samples.astype(float) ** 2))
                shipped = (
                    beta**2 * Density.kashin(beta, redundancy).moment(2)
                    if _table().exists()
                    else float("nan")
                )
                yield Result(
                    f"β = {beta}, ρ = {redundancy}",
                    moment,
                    "E t²",
                    f"the table says {shipped:.3f}",
                )
    if os.environ.get("SSTQ_WRITE_TABLE"):
        _write(measured)


def _table() -> Path:
    return Path(sstq.scalar.densities.__file__).with_name(KASHIN_TABLE)


def _write(measured: list[list[list[int]]]) -> None:
    """One line a density, so that a change can be read."""
    note = "shares of |t| in equal cells of [0, 1) and, last, at 1, for every beta and redundancy"
    lines = ",\n".join(
        "[" + ",\n ".join(json.dumps(row, separators=(",", ":")) for row in rows) + "]"
        for rows in measured
    )
    head = json.dumps({"note": note, "beta": BETAS, "redundancy": REDUNDANCIES})
    _table().write_text(
        f'{head[:-1]},\n"per_million": [\n{lines}\n]}}\n', encoding="utf-8"
    )
