"""Speed of the kernels: memory, the transform, Kashin steps, packing, sampling, adding up, and all cores."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Remark, Result, benchmark, fastest
from benchmarks.references import (
    BITS,
    DIM,
    EPSILON,
    GIGA,
    MILLION,
    NUMPY_OFFSET,
    aligned_zeros,
    blas_on_one_thread,
    foreign_transform,
    kronecker_transform,
    numpy_butterflies,
    numpy_kashin,
    threads,
    triad,
    unit_vectors,
)
from sstq import SSTQ, FrameUnit, kernels
from sstq.frames.kashin import make_kashin
from sstq.frames.tight import HadamardFrame
from sstq.kernels.threads import thread_count


@benchmark
def bandwidth() -> Iterator[Result]:
    """Memory bandwidth of one thread in NumPy: bytes read and written per second, by the size of the arrays."""
    for bits in (16, 20, 26):
        a, b, c = (aligned_zeros(1, 1 << bits) for _ in range(3))
        for array in (a, b, c):
            array.fill(1)  # zeros are not in memory before they are written
        copying, adding = fastest(partial(np.copyto, a, b), partial(triad, a, b, c), repeats=5 if bits > 20 else 200)
        size = f"{a.nbytes / 2**20:g} MiB"
        yield Result(f"copy of {size}", 2 * a.nbytes / copying / GIGA, "GB/s", "one array read, one written")
        yield Result(f"triad on 3 × {size}", 5 * a.nbytes / adding / GIGA, "GB/s", "in two passes")


@benchmark
def transform() -> Iterator[Result | Remark]:
    """float32 Walsh–Hadamard transform, one thread: its time, and how many times as long the others take."""
    foreign = None
    try:
        foreign = foreign_transform()
    except ImportError as error:
        yield Remark(f"not measured: {error}")
    for bits in range(8, 25, 2):
        size = 1 << bits
        # Enough rows that the time of the calls does not matter.
        x = aligned_zeros(max(1, (1 << 20) >> bits), size)
        copy = np.empty_like(x)
        ours: Callable[[], object] = partial(kernels.hadamard_transform, x)
        quickly: list[Callable[[], object]] = [ours, partial(np.copyto, copy, x)]
        slowly = (partial(numpy_butterflies, x), partial(kronecker_transform, x))
        if foreign is not None:
            off = aligned_zeros(len(x), size, offset=NUMPY_OFFSET)
            quickly += [partial(foreign, x), partial(kernels.hadamard_transform, off), partial(foreign, off)]
        with threads(1), blas_on_one_thread():
            # Separate from the slow ones, so that there is time for many repeats of nearly equal candidates.
            least, copying, *other = fastest(*quickly, repeats=60)
            beside, butterflies, kronecker = fastest(ours, *slowly, repeats=5 if bits > 20 else 15)
        label = f"N = 2^{bits}"
        speed = bits * size * len(x) / least / GIGA
        yield Result(f"{label}: one vector", least / len(x) * MILLION, "µs", f"{float(speed):.3g} G additions/s")
        yield Result(f"{label}: copying it", copying / least, "×")
        yield Result(f"{label}: NumPy butterflies", butterflies / beside, "×")
        note = "" if find_spec("threadpoolctl") else "BLAS may use all cores"
        yield Result(f"{label}: BLAS, Kronecker product", kronecker / beside, "×", note)
        if other:
            foreign_aligned, ours_off, foreign_off = other
            target = 1.1 if 12 <= bits <= 22 else None
            yield Result(f"{label}: fht-cpu", foreign_aligned / least, "×", "rows on cache lines", target=target)
            note = f"rows {NUMPY_OFFSET} bytes past a cache line"
            yield Result(f"{label}: fht-cpu, as NumPy allocates", foreign_off / ours_off, "×", note)


@benchmark
def calls() -> Iterator[Result]:
    """One public call of the float32 transform on one vector, as NumPy allocates it: speed relative to fht-cpu."""
    foreign = foreign_transform()
    for bits in range(4, 21, 2):
        x = aligned_zeros(1, 1 << bits, offset=NUMPY_OFFSET)
        times = max(1, (1 << 14) >> bits)

        def repeat(call: Callable[[np.ndarray], object], times: int = times, x: np.ndarray = x) -> None:
            for _ in range(times):
                call(x)

        with threads(1):
            ours, theirs = fastest(
                partial(repeat, kernels.hadamard_transform), partial(repeat, foreign), repeats=300 if bits < 18 else 40
            )
        yield Result(f"N = 2^{bits}", theirs / ours, "×", f"{ours / times * MILLION:.3g} µs")


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


@benchmark
def scaling() -> Iterator[Result | Remark]:
    """All cores on independent clients, as a multiple of one thread's speed."""
    cores, clients = thread_count(), 100
    if cores == 1:
        yield Remark("nothing to measure: there is one core to run on, or SSTQ_THREADS is 1")
        return
    repeats = 40  # both cores have to be undisturbed at the same time
    alone, together = fastest(partial(_on_own_caches, 1), partial(_on_own_caches, cores), repeats=repeats)
    note = f"what the machine allows: {cores} threads that share nothing; fewer than {cores} if they share a core"
    yield Result("NumPy's sine, each thread in its own cache", cores * alone / together, "×", note)
    # Ten times as many for FrameUnit, which then takes as long: a thread needs a tenth of a millisecond to begin.
    x, y = unit_vectors(10 * clients), aligned_zeros(10 * clients, 1 << 14)
    sstq, frameunit = SSTQ(DIM, EPSILON, bits=BITS), FrameUnit(DIM, EPSILON)
    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "transform, N = 2^14": (len(y), partial(kernels.hadamard_transform, y)),
        "sstq: encoding": (clients, partial(sstq.encode, x[:clients])),
        "frameunit: encoding": (len(x), partial(frameunit.encode, x)),
    }
    for what, (count, call) in calls.items():
        one, all_of_them = fastest(partial(_on, 1, call), partial(_on, cores, call), repeats=repeats)
        target = 1.8 if cores == 2 else None
        yield Result(what, one / all_of_them, "×", f"{cores} threads, {count:,} clients", target=target)


def _on_own_caches(count: int) -> None:
    """The same arithmetic in each thread, on separate numbers and without the interpreter."""

    def work(own: NDArray[np.float64]) -> None:
        result = np.empty_like(own)
        for _ in range(50):
            np.sin(own, out=result)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, [np.linspace(0, 1, 1 << 14) for _ in range(count)]))


def _on(count: int, call: Callable[[], object]) -> None:
    with threads(count):
        call()
