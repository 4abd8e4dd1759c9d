"""Speed of the whole way: the transform, all cores, where the time goes, aggregation from files, start-up."""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Remark, Result, benchmark, fastest, run_python, seconds_of
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
    unit_vectors,
)
from sstq import SSTQ, FrameUnit, kernels
from sstq.frames.kashin import pick
from sstq.kernels.threads import thread_count
from sstq.messages.files import read_messages, write_messages
from sstq.randomness.secret import bit_source

# Enough that calls do not matter, few enough for the cache.
CLIENTS = 16

_FIRST_CALL = """
import numpy as np
import sstq
mechanism = sstq.mechanism({name!r}, dim=25_450, epsilon=3.0)
mechanism.encode(np.full(25_450, 0.005))
"""


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


@benchmark
def stages() -> Iterator[Result]:
    """Where the time of a client at d = 25,450 goes (of 16 in a batch), and that of a message; one thread."""
    repeats = 50
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


@benchmark
def aggregate() -> Iterator[Result | Remark]:
    """Messages of SSTQ into a mean, d = 25,450, one core: million messages per second, by where they come from."""
    mechanism = SSTQ(DIM, EPSILON, bits=BITS)
    rng = np.random.default_rng(1)
    count = 8_000_000
    code, index = (rng.integers(f.limit, size=count).astype(f.dtype) for f in mechanism.layout.fields)
    messages = mechanism.messages_from_columns((code, index), None, simulated=True)
    raw, aggregator = messages.to_bytes(), mechanism.aggregator()
    with tempfile.TemporaryDirectory() as folder, threads(1):
        calls: dict[str, Callable[[], object]] = {
            "memory": partial(aggregator.update, messages),
            "packed bytes": lambda: aggregator.update(mechanism.messages_from_bytes(raw, count)),
        }
        for kind, name in (("a framed file", "messages.sstq"), ("Parquet", "messages.parquet")):
            path = Path(folder) / name
            try:
                write_messages(path, messages)
            except ImportError as error:
                yield Remark(f"from {kind}, not measured: {error}")
                continue
            calls[kind] = partial(_read, mechanism, path)
        *sources, closing = fastest(*calls.values(), aggregator.mean, repeats=5)
    targets = {"memory": 50.0, "Parquet": 20.0}
    for kind, taken in zip(calls, sources, strict=True):
        yield Result(f"from {kind}", count / taken / MILLION, "million messages/s", target=targets.get(kind))
    yield Result("mean and standard error", 1e3 * closing, "ms", "once, whatever the number of messages")


def _read(mechanism: SSTQ, path: Path) -> None:
    # Not update_from_file, which would skip a file that was already counted.
    aggregator = mechanism.aggregator()
    for batch in read_messages(path, mechanism):
        aggregator.update(batch)


@benchmark
def startup() -> Iterator[Result]:
    """Fresh processes from their start to their end, files warm: the least of several."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "import sstq": ["-c", "import sstq"],
        "sstq --help": ["-m", "sstq", "--help"],
    }
    seconds = fastest(*(partial(run_python, *arguments) for arguments in commands.values()), repeats=5)
    for what, least in zip(commands, seconds, strict=True):
        target = None if what == "python -c pass" else 500.0
        yield Result(what, 1e3 * least, "ms", target=target, at_most=True)
    names = ("sstq", "frameunit")
    for name, warm in zip(names, fastest(*(partial(_first_call, name) for name in names), repeats=2), strict=True):
        what = f"{name}: process, import and first message"
        yield Result(f"{what}, kernels cached", warm, "s")
        with tempfile.TemporaryDirectory() as folder:
            cold = seconds_of(partial(_first_call, name, NUMBA_CACHE_DIR=folder))
        yield Result(f"{what}, kernels compiled", cold, "s", "once per machine")


def _first_call(name: str, **variables: str) -> None:
    run_python("-c", _FIRST_CALL.format(name=name), SSTQ_QUIET="1", **variables)
