"""The benchmarks that run in this process: memory, the transform, encoding and aggregation.

Each function takes `quick` (fewer sizes and repeats), and yields lines of its table and remarks on what it
cannot measure here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.harness import Measured, Remark, Result, fastest
from benchmarks.speed.references import (
    NUMPY_OFFSET,
    aligned_zeros,
    blas_on_one_thread,
    foreign_transform,
    kronecker_transform,
    numpy_butterflies,
    paper_in_numpy,
    threads,
    triad,
)
from sstq import kernels
from sstq.kernels.threads import thread_count
from sstq.mechanisms import SSTQ, Mechanism
from sstq.messages.batch import Messages
from sstq.messages.files import read_messages, write_messages
from sstq.planning.comparison import Variant

__all__ = ["aggregate", "bandwidth", "encode", "scaling", "transform", "unit_vectors"]

# The network of the paper's experiments.
DIM, EPSILON, BITS = 25_450, 3.0, 4
MILLION, GIGA = 1e6, 1e9

# One variant for every name of the registry. The last ones rebuild thousands of candidates for a single client.
PEERS = (
    Variant("sstq", "sstq", {"bits": BITS}),
    Variant("frameunit", "frameunit", {}),
    Variant("groupunit, 10 groups", "groupunit", {"groups": 10, "share_people": 0.0}),
    Variant("vqsgd", "vqsgd", {}),
    Variant("sqkr", "sqkr", {}),
    Variant("privunit", "privunit", {}),
    Variant("privunitg", "privunitg", {}),
    Variant("projunit, fast", "projunit", {"projection": "fast"}),
    Variant("rrsc, 3 bits", "rrsc", {"bits": 3}),
    Variant("turboquant, 4 bits", "turboquant", {"bits": 4}),
    Variant("csgm", "csgm", {}),
    Variant("l2-csgm", "l2-csgm", {}),
    Variant("clean", "clean", {}),
)
SLOW_PEERS = (
    Variant("mmrc, 8 bits", "mmrc", {"bits": 8}),
    Variant("compressed-privunitg", "compressed-privunitg", {"bits": 8}),
)


def unit_vectors(count: int, dim: int = DIM) -> NDArray[np.float32]:
    """Return random unit vectors in single precision, always the same.

    Examples:
        >>> unit_vectors(2, dim=3).shape
        (2, 3)
    """
    x = np.random.default_rng(1).standard_normal((count, dim), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x


def bandwidth(quick: bool) -> Iterator[Result]:
    """Memory bandwidth of one thread in NumPy: bytes read and written per second, by the size of the arrays."""
    for bits in (16, 20, 26) if not quick else (16, 20, 24):
        a, b, c = (aligned_zeros(1, 1 << bits) for _ in range(3))
        for array in (a, b, c):
            array.fill(1)  # zeros are not in memory before they are written
        copying, adding = fastest(
            partial(np.copyto, a, b), partial(triad, a, b, c), repeats=5 if bits > 20 else 50 if quick else 200
        )
        size = f"{a.nbytes / 2**20:g} MiB"
        yield Result(f"copy of {size}", 2 * a.nbytes / copying / GIGA, "GB/s", "one array read, one written")
        yield Result(f"triad on 3 × {size}", 5 * a.nbytes / adding / GIGA, "GB/s", "in two passes")


def transform(quick: bool) -> Iterator[Result | Remark]:
    """float32 Walsh–Hadamard transform, one thread: its time, and how many times as long the others take."""
    from sstq.kernels.hadamard import transform_rows_plainly as plain_rows

    foreign = None
    try:
        foreign = foreign_transform()
    except ImportError as error:
        yield Remark(f"not measured: {error}")
    for bits in range(8, 21, 4) if quick else range(8, 25, 2):
        size = 1 << bits
        # Enough rows that the time of the calls does not matter.
        x = aligned_zeros(max(1, (1 << 20) >> bits), size)
        copy = np.empty_like(x)
        ours: Callable[[], object] = partial(kernels.hadamard_transform, x)
        quickly: list[Callable[[], object]] = [ours, partial(np.copyto, copy, x)]
        slowly: list[Callable[[], object]] = [
            partial(numpy_butterflies, x),
            partial(kronecker_transform, x),
            partial(plain_rows, x, bits),
        ]
        if foreign is not None:
            off = aligned_zeros(len(x), size, offset=NUMPY_OFFSET)
            quickly += [partial(foreign, x), partial(kernels.hadamard_transform, off), partial(foreign, off)]
        with threads(1), blas_on_one_thread():
            # Separate from the slow ones, so that there is time for many repeats of nearly equal candidates.
            least, copying, *other = fastest(*quickly, repeats=10 if quick else 60)
            beside, butterflies, kronecker, plain = fastest(ours, *slowly, repeats=5 if quick or bits > 20 else 15)
        label = f"N = 2^{bits}"
        speed = bits * size * len(x) / least / GIGA
        yield Result(f"{label}: one vector", least / len(x) * MILLION, "µs", f"{float(speed):.3g} G additions/s")
        yield Result(f"{label}: copying it", copying / least, "×")
        yield Result(f"{label}: NumPy butterflies", butterflies / beside, "×")
        note = "" if find_spec("threadpoolctl") else "BLAS may use all cores"
        yield Result(f"{label}: BLAS, Kronecker product", kronecker / beside, "×", note)
        yield Result(f"{label}: our kernel without vectors", plain / beside, "×")
        if other:
            foreign_aligned, ours_off, foreign_off = other
            target = 1.1 if 12 <= bits <= 22 else None
            yield Result(f"{label}: fht-cpu", foreign_aligned / least, "×", "rows on cache lines", target=target)
            note = f"rows {NUMPY_OFFSET} bytes past a cache line"
            yield Result(f"{label}: fht-cpu, as NumPy allocates", foreign_off / ours_off, "×", note)


def encode(quick: bool) -> Iterator[Result]:
    """Encoding at d = 25,450, ε = 3, secret randomness: every mechanism in turn, one client and many, all cores."""
    repeats = 3 if quick else 5
    clients = (1, 10) if quick else (1, 10, 100)
    x = unit_vectors(100 if quick else 1000)
    for group, counts in ((PEERS, clients), (SLOW_PEERS, () if quick else (1,))):
        built = [peer.build(DIM, EPSILON, clients=1000) for peer in group]
        for count in counts:
            calls = [partial(_encode, mechanism, x[:count]) for mechanism in built]
            yield from _a_client(group, count, fastest(*calls, repeats=repeats if group is PEERS else 2))
    certified, frameunit = PEERS[0].build(DIM, EPSILON, 1000), PEERS[1].build(DIM, EPSILON, 1000)
    paper = SSTQ(DIM, EPSILON, bits=BITS, kashin="paper")
    rng = np.random.default_rng(2)
    encode_100, encode_100_literally = partial(_encode, certified, x[:100]), partial(_encode, paper, x[:100])
    many, alone, together, literal, naive = fastest(
        partial(_encode, frameunit, x),
        partial(_on, 1, encode_100),
        encode_100,
        partial(_on, 1, encode_100_literally),
        partial(paper_in_numpy, paper, x[0], rng),
        repeats=2 if quick else 5,
    )
    yield Result(f"frameunit: {len(x)} clients", many / len(x) * MILLION, "µs per client")
    note = f"the paper's Algorithm 1 in NumPy takes {1e3 * naive:.3g} ms per client"
    yield Result("sstq, one thread: how many times as fast as NumPy", naive * 100 / alone, "×", note, target=100)
    yield Result("sstq, all cores: the same", naive * 100 / together, "×", f"{thread_count()} threads; NumPy has one")
    yield Result("sstq, the paper's recipe, one thread: the same", naive * 100 / literal, "×")


def _a_client(peers: tuple[Variant, ...], count: int, seconds: list[Measured]) -> Iterator[Result]:
    for peer, taken in zip(peers, seconds, strict=True):
        what = f"{peer.label}: {count} client{'s' * (count > 1)}"
        yield Result(what, taken / count * MILLION, "µs per client")


def _encode(mechanism: Mechanism, x: NDArray[np.float32]) -> Messages:
    clients = np.arange(len(x)) if mechanism.coin == "public" else None
    # With groups, their total has as many numbers.
    return mechanism.encode(x[:, : mechanism.dim], clients=clients, groups=mechanism.groups_in_turn(len(x)))


def scaling(quick: bool) -> Iterator[Result | Remark]:
    """All cores on independent clients, as a multiple of one thread's speed."""
    cores, clients = thread_count(), 16 if quick else 100
    if cores == 1:
        yield Remark("nothing to measure: there is one core to run on, or SSTQ_THREADS is 1")
        return
    repeats = 3 if quick else 40  # both cores have to be undisturbed at the same time
    alone, together = fastest(partial(_on_own_caches, 1), partial(_on_own_caches, cores), repeats=repeats)
    note = f"what the machine allows: {cores} threads that share nothing; fewer than {cores} if they share a core"
    yield Result("NumPy's sine, each thread in its own cache", cores * alone / together, "×", note)
    # Ten times as many for FrameUnit, which then takes as long: a thread needs a tenth of a millisecond to begin.
    x, y = unit_vectors(10 * clients), aligned_zeros(10 * clients, 1 << 14)
    sstq, frameunit = (peer.build(DIM, EPSILON, 1000) for peer in PEERS[:2])
    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "transform, N = 2^14": (len(y), partial(kernels.hadamard_transform, y)),
        "sstq: encoding": (clients, partial(_encode, sstq, x[:clients])),
        "frameunit: encoding": (len(x), partial(_encode, frameunit, x)),
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


def aggregate(quick: bool) -> Iterator[Result | Remark]:
    """Messages of SSTQ into a mean, d = 25,450, one core: million messages per second, by where they come from."""
    mechanism = SSTQ(DIM, EPSILON, bits=BITS)
    rng = np.random.default_rng(1)
    count = 1_000_000 if quick else 8_000_000
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
        *sources, closing = fastest(*calls.values(), aggregator.mean, repeats=3 if quick else 5)
    targets = {"memory": 50.0, "Parquet": 20.0}
    for kind, taken in zip(calls, sources, strict=True):
        yield Result(f"from {kind}", count / taken / MILLION, "million messages/s", target=targets.get(kind))
    yield Result("mean and standard error", 1e3 * closing, "ms", "once, whatever the number of messages")


def _read(mechanism: SSTQ, path: Path) -> None:
    # Not update_from_file, which would skip a file that was already counted.
    aggregator = mechanism.aggregator()
    for batch in read_messages(path, mechanism):
        aggregator.update(batch)
