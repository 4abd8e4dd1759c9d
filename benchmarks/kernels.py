"""Benchmarks of sstq.kernels."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np

from benchmarks.harness import Result, benchmark, fastest
from sstq import kernels

MILLION = 1e6
GIGA = 1e9


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of threads for a while."""
    before = os.environ.get("SSTQ_THREADS")
    os.environ["SSTQ_THREADS"] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSTQ_THREADS"]
        else:
            os.environ["SSTQ_THREADS"] = before


def aligned_zeros(rows: int, size: int) -> np.ndarray:
    """Float32 rows on cache lines: others are slower for every implementation, by chance of the allocator.

    Zeros, so that transforming them again and again stays finite.
    """
    buffer = np.zeros(rows * size + 16, np.float32)
    start = -(buffer.ctypes.data // 4) % 16
    return buffer[start : start + rows * size].reshape(rows, size)


def numpy_butterflies(x: np.ndarray) -> None:
    """Transform the last axis in place, one NumPy operation for all butterflies of a level."""
    half = 1
    while half < x.shape[-1]:
        pairs = x.reshape(*x.shape[:-1], -1, 2, half)
        upper, lower = pairs[..., 0, :], pairs[..., 1, :]
        difference = upper - lower
        upper += lower
        lower[...] = difference
        half *= 2


@benchmark
def transform() -> Iterator[Result]:
    """float32 Walsh–Hadamard transform, one thread: speed relative to others."""
    from sstq.kernels.plain import transform_rows as plain_rows

    fht_cpu = None
    if find_spec("fht_cpu") is not None:
        import fht_cpu
    for bits in (10, 12, 14, 16, 18, 20):
        size = 1 << bits
        x = aligned_zeros(max(1, (1 << 20) >> bits), size)
        copy = np.empty_like(x)
        candidates: list[Callable[[], object]] = [
            lambda x=x: kernels.hadamard_transform(x),
            lambda x=x: plain_rows(x, x.shape[1].bit_length() - 1),
            lambda x=x, copy=copy: np.copyto(copy, x),
            lambda x=x: numpy_butterflies(x[:1]),
        ]
        if fht_cpu is not None:
            candidates.append(lambda x=x: fht_cpu.fht(x, num_threads=1))
        with threads(1):
            ours, plain, memcpy, butterflies, *other = fastest(*candidates, repeats=25)
        speed = bits * size * len(x) / ours / GIGA
        label = f"N = 2^{bits} vs"
        yield Result(
            f"{label} NumPy butterflies",
            butterflies * len(x) / ours,
            "×",
            f"ours: {ours / len(x) * MILLION:.3g} µs, {speed:.3g} G additions/s",
            target=40 if bits == 16 else None,
        )
        yield Result(f"{label} our plain kernel", plain / ours, "×")
        yield Result(f"{label} copying memory", memcpy / ours, "×")
        if other:
            yield Result(f"{label} fht-cpu", other[0] / ours, "×")


def numpy_kashin(
    x: np.ndarray, columns: np.ndarray, signs: np.ndarray, size: int, schedule: np.ndarray
) -> tuple[np.ndarray, float]:
    """Run the same algorithm for one client, in NumPy."""
    a = np.zeros(size, np.float32)
    a[columns] = signs * x
    mask = np.zeros(size, np.float32)
    mask[columns] = np.float32(1 / size)
    numpy_butterflies(a)
    t = np.zeros(size, np.float32)
    for relaxation, cap, box in schedule:
        new = np.clip(t + np.clip(relaxation * a, -cap, cap), -box, box)
        a -= new - t
        t = new
        numpy_butterflies(a)
        a *= mask
        numpy_butterflies(a)
    rebuilt = t.copy()
    numpy_butterflies(rebuilt)
    return t, float(np.linalg.norm(x - signs * rebuilt[columns] / size))


@benchmark
def kashin() -> Iterator[Result]:
    """100 clients, d = 25,450, N = 65,536, 24 steps: speed relative to NumPy (3 clients in NumPy, scaled)."""
    dim, size, clients, steps, numpy_clients = 25_450, 1 << 16, 100, 24, 3
    rng = np.random.default_rng(1)
    columns = np.sort(rng.choice(size, dim, replace=False))
    signs = rng.choice(np.array([-1, 1], np.float32), dim)
    x = rng.standard_normal((clients, dim)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    schedule = np.array([[1.45, np.inf, 1.8]] * steps, np.float32)
    picks = rng.integers(size, size=(clients, 1))

    def ours(count: int) -> None:
        with threads(count):
            kernels.kashin_pick(x, columns, signs, size, schedule, picks)

    def in_numpy() -> None:
        for row in x[:numpy_clients]:
            numpy_kashin(row, columns, signs, size, schedule)

    one, two, reference = fastest(lambda: ours(1), lambda: ours(2), in_numpy, repeats=5)
    reference *= clients / numpy_clients
    step = one / clients / steps * MILLION
    yield Result("one thread vs NumPy", reference / one, "×", f"{one:.3g} s, {step:.3g} µs a client and step")
    yield Result("two threads vs NumPy", reference / two, "×", f"{two:.3g} s; NumPy {reference:.3g} s")


@benchmark
def packing() -> Iterator[Result]:
    """Messages of 20 bits: packed bytes per second."""
    width, count = 20, 2_000_000
    values = np.random.default_rng(1).integers(1 << width, size=count, dtype=np.uint64)
    packed = kernels.pack_bits(values, width)
    pack, unpack = fastest(lambda: kernels.pack_bits(values, width), lambda: kernels.unpack_bits(packed, count, width))
    yield Result("pack", packed.nbytes / pack / GIGA, "GB/s", f"{count / pack / MILLION:.3g} million messages/s")
    yield Result("unpack", packed.nbytes / unpack / GIGA, "GB/s", f"{count / unpack / MILLION:.3g} million messages/s")


@benchmark
def sampling() -> Iterator[Result]:
    """Codes from a 16 × 16 table, one thread: speed relative to a vectorised comparison in NumPy."""
    rng = np.random.default_rng(1)
    table = np.tile(np.arange(1, 17, dtype=np.uint64) << np.uint64(58), (16, 1))
    tokens = rng.integers(16, size=1_000_000)
    words = rng.integers(1 << 62, size=tokens.size, dtype=np.uint64)
    with threads(1):
        ours, reference = fastest(
            lambda: kernels.sample_table(tokens, words, table),
            lambda: (table[tokens] <= words[:, None]).sum(axis=1),
        )
    yield Result("vs NumPy", reference / ours, "×", f"{tokens.size / ours / MILLION:.3g} million messages/s")


@benchmark
def accumulation() -> Iterator[Result]:
    """Messages added to the state of an aggregator, N = 65,536, M = 16, one core."""
    rng = np.random.default_rng(1)
    count = 4_000_000
    index = rng.integers(1 << 16, size=count).astype(np.uint32)
    code = rng.integers(16, size=count).astype(np.uint16)
    table = rng.integers(1 << 20, size=(16, 3))
    state = np.zeros((1 << 16, 4), np.int64)

    def in_numpy() -> None:
        np.bincount(index, minlength=len(state))
        for column in table.T:
            np.bincount(index, column[code], minlength=len(state))

    ours, reference = fastest(lambda: kernels.accumulate(state, index, code, table), in_numpy)
    yield Result("messages", count / ours / MILLION, "million/s", target=30)
    yield Result("vs np.bincount", reference / ours, "×", "four weighted counts, inexact beyond 2^53")
