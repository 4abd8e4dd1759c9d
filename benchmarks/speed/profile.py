"""Profiles: where the time per client and per message goes, and whether arithmetic, a cache or memory bounds it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.speed.harness import Result, fastest
from benchmarks.speed.measurements import BITS, DIM, EPSILON, GIGA, MILLION, unit_vectors
from benchmarks.speed.references import aligned_zeros, threads
from sstq import kernels
from sstq.frames.kashin import pick
from sstq.mechanisms import SSTQ, FrameUnit
from sstq.randomness.secret import bit_source

__all__ = ["stages"]

# Enough that calls do not matter, few enough for the cache.
CLIENTS = 16


def stages(quick: bool) -> Iterator[Result]:
    """Where the time of a client at d = 25,450 goes (of 16 in a batch), and that of a message; one thread."""
    repeats = 10 if quick else 50
    with threads(1):
        yield from _of_sstq(repeats)
        yield from _of_frameunit(repeats)
        yield from _of_aggregation(repeats)


def _of_sstq(repeats: int) -> Iterator[Result]:
    mechanism = SSTQ(DIM, EPSILON, bits=BITS)
    frame, recipe = mechanism.frame, mechanism.kashin
    x, vectors = unit_vectors(CLIENTS), aligned_zeros(CLIENTS, frame.size)
    index = np.arange(CLIENTS)[:, None]
    copy = np.empty_like(vectors)
    whole, clipping, solving, drawing, transform, copying = fastest(
        partial(mechanism.encode, x),
        partial(kernels.clip_to_ball, x, 1.0),
        partial(pick, frame, recipe, x, index, certify=False),
        lambda: bit_source(None).words(3 * CLIENTS),
        partial(kernels.hadamard_transform, vectors),
        partial(np.copyto, copy, vectors),
        repeats=repeats,
    )
    label = f"sstq, N = {frame.size:,}"
    yield Result(f"{label}: one client", whole / CLIENTS * MILLION, "µs")
    yield Result(f"{label}: clipping", 100 * clipping / whole, "%")
    note = f"{recipe.steps} steps of two transforms"
    yield Result(f"{label}: representation", 100 * solving / whole, "%", note)
    yield Result(f"{label}: randomness from the operating system", 100 * drawing / whole, "%")
    yield Result(f"{label}: one step", solving / recipe.steps / transform, "transforms", "two if nothing were fused")
    yield Result(f"{label}: one transform", transform / copying, "copies of its vector")


def _of_frameunit(repeats: int) -> Iterator[Result]:
    mechanism = FrameUnit(DIM, EPSILON)
    x, vectors = unit_vectors(CLIENTS), aligned_zeros(CLIENTS, mechanism.frame.size)
    whole, checking, transform = fastest(
        partial(mechanism.encode, x),
        partial(mechanism._check_vectors, x),
        partial(kernels.hadamard_transform, vectors),
        repeats=repeats,
    )
    label = f"frameunit, N = {mechanism.frame.size:,}"
    mixing = mechanism.frame.rounds * transform
    yield Result(f"{label}: one client", whole / CLIENTS * MILLION, "µs", f"{float(whole / transform):.3g} transforms")
    yield Result(f"{label}: checking that all is finite", 100 * checking / whole, "%")
    note = f"{mechanism.frame.rounds} transforms; the rest is lengths, selection, randomness and calls"
    yield Result(f"{label}: mixing", 100 * mixing / whole, "%", note)


def _of_aggregation(repeats: int) -> Iterator[Result]:
    rng = np.random.default_rng(1)
    size, count = 1 << 16, 1 << 18
    index = rng.integers(size, size=count).astype(np.uint16)
    code = rng.integers(16, size=count).astype(np.uint8)
    table, state = rng.integers(1 << 20, size=(16, 3)), np.zeros((size, 4), np.int64)
    few = np.zeros((256, 4), np.int64)
    anywhere, in_order, nearby = fastest(
        partial(kernels.accumulate, state, index, code, table),
        partial(kernels.accumulate, state, np.sort(index), code, table),
        partial(kernels.accumulate, few, index & np.uint16(255), code, table),
        repeats=repeats,
    )
    touched = 2 * 32 * count
    note = f"{touched / float(anywhere) / GIGA:.3g} GB/s of sums read and written; they take 2 MiB"
    yield Result("aggregation: a message anywhere", 1e9 * anywhere / count, "ns", note)
    yield Result("aggregation: in the order of the index", in_order / anywhere, "of that")
    yield Result("aggregation: sums of 8 KiB", nearby / anywhere, "of that", "they stay in the first cache")
