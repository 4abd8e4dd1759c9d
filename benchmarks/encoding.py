"""Speed from a vector to a message: encoding, its stages, randomness, what time tells of the data, memory."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy.special import ndtri

import sstq
from benchmarks.harness import Result, benchmark, fastest, in_turns, run_python, seconds_of
from benchmarks.references import (
    DIM,
    EPSILON,
    MILLION,
    aligned_zeros,
    blas_on_one_thread,
    straightforward_encode,
    threads,
    unit_vectors,
)
from sstq import Mechanism, PrivUnitG, VqSGD, kernels
from sstq.randomness.secret import bit_source

DENSE_CLIENTS = 100


@benchmark
def encoding() -> Iterator[Result]:
    """SSTQ encoding of 100 clients, d = 25,450, b = 4, defaults: speed relative to a NumPy loop (3 clients, scaled)."""
    mechanism, paper = (sstq.SSTQ(dim=DIM, epsilon=3.0, bits=4, kashin=name) for name in ("certified", "paper"))
    clients, naive_clients = 100, 3
    x, rng = unit_vectors(clients), np.random.default_rng(2)

    def ours(count: int) -> None:
        with threads(count):
            mechanism.encode(x)

    def naive(written_down: sstq.SSTQ) -> None:
        for row in x[:naive_clients]:
            straightforward_encode(written_down, row, rng)

    one, two, same, papers = fastest(
        lambda: ours(1), lambda: ours(2), lambda: naive(mechanism), lambda: naive(paper), repeats=5
    )
    for what, reference in ((f"the paper's {paper.kashin.steps + 1} rounds", papers), ("as many steps", same)):
        seconds = reference * clients / naive_clients
        target = 100 if reference is papers else None
        note = f"{one:.3g} and {two:.3g} s; NumPy {seconds:.3g} s"
        yield Result(f"one thread vs NumPy, {what}", seconds / one, "×", note, target=target)
        yield Result(f"two threads vs NumPy, {what}", seconds / two, "×", target=target)
    with threads(1):
        (single,) = fastest(lambda: mechanism.encode(x[0]), repeats=100)
    yield Result("one client alone, one thread", 1e3 * single, "ms", target=1.5, at_most=True)


@benchmark
def frameunit() -> Iterator[Result]:
    """FrameUnit encoding of 100 clients, in plain transforms of size N on as many threads, and beside SSTQ."""
    dim, clients = 10_000, 100
    mechanism, certified = sstq.mechanism("frameunit", dim=dim, epsilon=3.0), sstq.SSTQ(dim=dim, epsilon=3.0)
    x = unit_vectors(clients, dim)
    y = aligned_zeros(clients, mechanism.frame.size)
    for count in (1, 2):
        with threads(count):
            ours, plain, kashin = fastest(
                lambda: mechanism.encode(x), lambda: kernels.hadamard_transform(y), lambda: certified.encode(x)
            )
        what = "one thread" if count == 1 else "two threads"
        note = f"{1e6 * ours / clients:.3g} µs per client; one transform {1e6 * plain / clients:.3g} µs"
        yield Result(f"{what}: encoding", ours / plain, "transforms", note, target=5, at_most=True)
        yield Result(f"{what}: faster than SSTQ", kashin / ours, "×")
    single = sstq.mechanism("frameunit", dim=DIM, epsilon=3.0)
    vector = unit_vectors(1)
    with threads(1):
        (alone,) = fastest(lambda: single.encode(vector), repeats=100)
    yield Result("one client alone, d = 25,450, one thread", 1e3 * alone, "ms", target=0.3, at_most=True)


def place_along(mechanism: PrivUnitG, uniform: np.ndarray, side: np.ndarray) -> np.ndarray:
    """The coordinate along x: from beyond the threshold or from before it, in units of 1/√d."""
    mass, inside = mechanism.cap.mass / 2**62, mechanism.cap.inside / 2**62
    return -ndtri(np.where(side < inside, mass * uniform, mass + (1 - mass) * uniform))


def one_by_one(mechanism: PrivUnitG, x: np.ndarray) -> list[np.ndarray]:
    """PrivUnitG as published with ProjUnit: a vector at a time, np.random.normal, g minus its part along x."""
    sent = []
    for row in x:
        g = np.random.normal(0, 1, len(row))  # noqa: NPY002 (theirs)
        t = place_along(mechanism, *np.random.rand(2, 1))[0]  # noqa: NPY002
        sent.append((g - g.dot(row) * row + t * row) / mechanism.cap.gain)
    return sent


def all_at_once(mechanism: PrivUnitG, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same for all clients at once, with NumPy's fastest generator, whose numbers are no secret."""
    g = rng.standard_normal(x.shape)
    t = place_along(mechanism, *rng.random((2, len(x))))
    g += (t - np.einsum("ij,ij->i", g, x))[:, None] * x
    g /= mechanism.cap.gain
    return g


def vertices(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The coordinate of vqSGD's vertex in NumPy."""
    cumulative = np.cumsum(np.abs(x), axis=1, dtype=np.float64)
    return np.count_nonzero(cumulative * x.shape[1] ** -0.5 <= rng.random(len(x))[:, None], axis=1)


def encode(mechanism: Mechanism, x: np.ndarray, count: int, rng: int | None = None) -> None:
    """Encode on so many threads."""
    with threads(count):
        mechanism.encode(x, rng=rng)


@benchmark
def dense() -> Iterator[Result]:
    """PrivUnitG and vqSGD, 100 clients, d = 25,450: speed relative to NumPy on one thread."""
    x = unit_vectors(DENSE_CLIENTS)
    double, rng = x.astype(np.float64), np.random.default_rng(1)
    privunitg, vqsgd = PrivUnitG(DIM, EPSILON), VqSGD(DIM, EPSILON)
    with blas_on_one_thread():
        single, batched, words, *ours, in_numpy, one, two = fastest(
            partial(one_by_one, privunitg, double),
            partial(all_at_once, privunitg, double, rng),
            partial(encode_words, DENSE_CLIENTS * privunitg.cap.words),
            *(partial(encode, privunitg, x, count, seed) for seed in (None, 1) for count in (1, 2)),
            partial(vertices, x, rng),
            partial(encode, vqsgd, x, 1),
            partial(encode, vqsgd, x, 2),
            repeats=15,
        )
    labels = ("one thread", "two threads", "one thread, seeded", "two threads, seeded")
    for label, taken in zip(labels, ours, strict=True):
        note = f"{taken / DENSE_CLIENTS * MILLION:.3g} µs per client"
        yield Result(f"privunitg, {label}, vs one at a time", single / taken, "×", note)
        yield Result(f"privunitg, {label}, vs all at once", batched / taken, "×")
    yield Result("privunitg, one thread: share of the system's words", words / ours[0], "")
    yield Result("vqsgd, one thread", in_numpy / one, "×", f"{one / DENSE_CLIENTS * MILLION:.3g} µs per client")
    yield Result("vqsgd, two threads", in_numpy / two, "×")


def encode_words(count: int) -> None:
    """Read that many secret words on one thread."""
    with threads(1):
        bit_source(None).words(count)


@benchmark
def randomness() -> Iterator[Result]:
    """The operating system's random words beside a seeded generator's, alone and in encoding; one thread."""
    count = 1 << 20
    secure, seeded = fastest(lambda: bit_source(None).words(count), lambda: bit_source(1).words(count))
    yield Result("operating system", count / secure / MILLION, "million words/s", "three words per message")
    yield Result("seeded", count / seeded / MILLION, "million words/s")
    # vqSGD in few dimensions is the cheapest encoding that there is, so that nothing else hides the randomness.
    for name, dim, clients in (("vqsgd", 2, 200_000), ("vqsgd", 64, 50_000), ("frameunit", 64, 20_000)):
        mechanism, x = sstq.mechanism(name, dim=dim, epsilon=3.0), unit_vectors(clients, dim)
        with threads(1):
            secure, seeded = fastest(lambda m=mechanism, x=x: m.encode(x), lambda m=mechanism, x=x: m.encode(x, rng=1))
        note = f"{clients / secure / MILLION:.3g} million messages/s"
        what = f"encoding with secure over seeded words: {name}, d = {dim}"
        yield Result(what, secure / seeded, "× the time", note, target=2, at_most=True)


@benchmark
def timing() -> Iterator[Result]:
    """Encoding time of one vector by what it holds, over that of a Gaussian one: least and median of 300."""
    for name, dim, options in (
        ("sstq", 1000, {}),
        ("frameunit", 16_384, {}),
        ("vqsgd", 1000, {}),
        ("sqkr", 1000, {}),
        ("rrsc", 1000, {"bits": 5}),
    ):
        mechanism = sstq.mechanism(name, dim=dim, epsilon=3.0, **options)
        vectors = _telling_vectors(mechanism)
        encode = partial(mechanism.encode, clients=[7]) if mechanism.coin == "public" else mechanism.encode
        with threads(1):
            clocks = [partial(seconds_of, partial(encode, x)) for x in vectors.values()]
            times = np.array(in_turns(*clocks, repeats=300))
        least, median = times.min(axis=1), np.median(times, axis=1)
        for position, what in enumerate(vectors):
            note = f"median {median[position] / median[0]:.3f} ×; {1e6 * least[position]:.0f} µs"
            yield Result(f"{name}: {what}", least[position] / least[0], "×", note)


def _telling_vectors(mechanism: sstq.Mechanism) -> dict[str, np.ndarray]:
    """Vectors of the same shape that a processor might treat differently."""
    dim = mechanism.dim
    gaussian = np.random.default_rng(3).standard_normal(dim)
    gaussian /= np.linalg.norm(gaussian)
    vectors = {
        "a Gaussian vector": gaussian,
        "zero": np.zeros(dim),
        "a spike": np.eye(1, dim)[0],
        "a constant": np.full(dim, dim**-0.5),
        "subnormal numbers": gaussian * 1e-310,
        "numbers that are subnormal in single precision": gaussian * 1e-40,
        "longer than clip": gaussian * 1e30,
    }
    frame = getattr(mechanism, "frame", None)
    if frame is not None:
        vectors["a row of the frame"] = frame.rows(np.array([3]))[0].astype(np.float64)
    return vectors


_MEMORY_PROGRAM = """
import resource, sys
import numpy as np
import sstq
mechanism = sstq.SSTQ(dim=25_450, epsilon=3.0)
row = np.full(25_450, 0.005, dtype=np.float32)
mechanism.encode(row)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
mechanism.encode(np.broadcast_to(row, (int(sys.argv[1]), 25_450)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@benchmark
def memory() -> Iterator[Result]:
    """Peak memory of encoding, d = 25,450, beyond that of one client: it does not grow with the clients."""
    for clients in (200, 1000, 5000):
        kibibytes = int(run_python("-c", _MEMORY_PROGRAM, str(clients)))
        full = clients * DIM * 4 / 2**20
        yield Result(f"{clients} clients", kibibytes / 1024, "MiB", f"their vectors would take {full:.0f} MiB")
