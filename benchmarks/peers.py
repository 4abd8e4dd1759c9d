"""Our code beside what others publish, each in its own shape: ratios above 1 are ours being faster."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.special import ndtri

from benchmarks.harness import Result, benchmark, fastest
from benchmarks.speed.measurements import DIM, EPSILON, MILLION, unit_vectors
from benchmarks.speed.references import NUMPY_OFFSET, aligned_zeros, blas_on_one_thread, foreign_transform, threads
from sstq import kernels
from sstq.baselines import PrivUnitG, VqSGD
from sstq.mechanisms import Mechanism
from sstq.randomness.secret import bit_source

CLIENTS = 100


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
    x = unit_vectors(CLIENTS)
    double, rng = x.astype(np.float64), np.random.default_rng(1)
    privunitg, vqsgd = PrivUnitG(DIM, EPSILON), VqSGD(DIM, EPSILON)
    with blas_on_one_thread():
        single, batched, words, *ours, in_numpy, one, two = fastest(
            partial(one_by_one, privunitg, double),
            partial(all_at_once, privunitg, double, rng),
            partial(encode_words, CLIENTS * privunitg.cap.words),
            *(partial(encode, privunitg, x, count, seed) for seed in (None, 1) for count in (1, 2)),
            partial(vertices, x, rng),
            partial(encode, vqsgd, x, 1),
            partial(encode, vqsgd, x, 2),
            repeats=15,
        )
    labels = ("one thread", "two threads", "one thread, seeded", "two threads, seeded")
    for label, taken in zip(labels, ours, strict=True):
        note = f"{taken / CLIENTS * MILLION:.3g} µs per client"
        yield Result(f"privunitg, {label}, vs one at a time", single / taken, "×", note)
        yield Result(f"privunitg, {label}, vs all at once", batched / taken, "×")
    yield Result("privunitg, one thread: share of the system's words", words / ours[0], "")
    yield Result("vqsgd, one thread", in_numpy / one, "×", f"{one / CLIENTS * MILLION:.3g} µs per client")
    yield Result("vqsgd, two threads", in_numpy / two, "×")


def encode_words(count: int) -> None:
    """Read that many secret words on one thread."""
    with threads(1):
        bit_source(None).words(count)


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
