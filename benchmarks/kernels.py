"""Benchmarks of sstq.kernels."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Result, benchmark, fastest
from benchmarks.speed.measurements import DIM, GIGA, MILLION, unit_vectors
from benchmarks.speed.references import numpy_butterflies, threads
from sstq import kernels
from sstq.frames.kashin import make_kashin
from sstq.frames.tight import HadamardFrame


def numpy_kashin(x: np.ndarray, columns: kernels.SignedColumns, schedule: np.ndarray) -> np.ndarray:
    """Run the same algorithm for one client, in NumPy."""
    a = np.zeros(columns.size, np.float32)
    a[columns.places] = columns.signs * x
    mask = np.zeros(columns.size, np.float32)
    mask[columns.places] = np.float32(1 / columns.size)
    numpy_butterflies(a)
    t = np.zeros(columns.size, np.float32)
    power = product = moved = quotient = 0.0
    for relaxation, stretch, cap, box in schedule:
        rate = np.float32(max(relaxation, min(stretch * quotient, kernels.LONGEST_STEP)))
        new = np.clip(t + np.clip(rate * a, -cap, cap), -box, box)
        quotient = moved / max(2 * product - power + a @ a, kernels.LEAST_REDUCTION)
        power, product, moved = a @ a, a @ (new - t), (new - t) @ (new - t)
        a -= new - t
        t = new
        numpy_butterflies(a)
        a *= mask
        numpy_butterflies(a)
    return t


@benchmark
def kashin() -> Iterator[Result]:
    """100 clients, d = 25,450, N = 65,536, default steps: speed relative to NumPy (3 clients in NumPy, scaled)."""
    clients, numpy_clients = 100, 3
    frame = HadamardFrame(DIM, 1 << 16)
    schedule = make_kashin("certified", frame).schedule(frame)
    columns, steps = kernels.SignedColumns(frame.columns, frame.signs, frame.size), len(schedule)
    x = unit_vectors(clients)
    picks = np.random.default_rng(2).integers(frame.size, size=(clients, 1))

    def ours(count: int) -> None:
        with threads(count):
            kernels.kashin_pick(x, columns, schedule, picks, certify=False)

    def in_numpy() -> None:
        for row in x[:numpy_clients]:
            numpy_kashin(row, columns, schedule)

    one, two, reference = fastest(lambda: ours(1), lambda: ours(2), in_numpy, repeats=5)
    reference *= clients / numpy_clients
    step = one / clients / steps * MILLION
    yield Result("one thread vs NumPy", reference / one, "×", f"{one:.3g} s, {step:.3g} µs per client and step")
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
