"""Speed of the kernels: memory, the transform, and all cores."""

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
    threads,
    triad,
    unit_vectors,
)
from sstq import SSTQ, FrameUnit, kernels
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
