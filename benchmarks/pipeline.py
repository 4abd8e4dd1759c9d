"""Benchmarks of the whole way of a vector: encoding, aggregation, randomness, memory, start-up."""

import subprocess
import sys
from collections.abc import Iterator

import numpy as np

import sstq
from benchmarks.harness import Result, benchmark, fastest
from benchmarks.kernels import MILLION, numpy_kashin, threads
from sstq import kernels
from sstq.randomness import bit_source

DIM = 25_450


def unit_vectors(count: int, dim: int = DIM) -> np.ndarray:
    """Random unit vectors in single precision."""
    x = np.random.default_rng(1).standard_normal((count, dim), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x


def straightforward_encode(mechanism: sstq.SSTQ, x: np.ndarray, rng: np.random.Generator) -> tuple[int, int]:
    """The paper's Algorithm 1 for one client as one would write it down in NumPy, with the same number of steps."""
    frame = mechanism.frame
    t, _ = numpy_kashin(x, frame.columns, frame.signs, frame.size, mechanism.kashin.schedule(frame))
    j = int(rng.integers(frame.size))
    words, y = mechanism.codebook.values, t[j] / mechanism.kashin.bound(frame)
    k = min(int(np.searchsorted(words, y, side="right")) - 1, len(words) - 2)
    token = k + int(rng.random() < (y - words[k]) / (words[k + 1] - words[k]))
    probabilities = np.full(len(words), 1 / (np.exp(mechanism.epsilon) + len(words) - 1))
    probabilities[token] *= np.exp(mechanism.epsilon)
    return j, int(rng.choice(len(words), p=probabilities))


@benchmark
def encoding() -> Iterator[Result]:
    """SSTQ encoding of 100 clients, d = 25,450, b = 4, defaults: speed relative to a NumPy loop (3 clients, scaled)."""
    mechanism = sstq.SSTQ(dim=DIM, epsilon=3.0, bits=4)
    clients, naive_clients = 100, 3
    x, rng = unit_vectors(clients), np.random.default_rng(2)

    def ours(count: int) -> None:
        with threads(count):
            mechanism.encode(x)

    def naive() -> None:
        for row in x[:naive_clients]:
            straightforward_encode(mechanism, row, rng)

    one, two, single, reference = fastest(
        lambda: ours(1), lambda: ours(2), lambda: mechanism.encode(x[0]), naive, repeats=5
    )
    reference *= clients / naive_clients
    yield Result("one thread vs NumPy loop", reference / one, "×", f"{one:.3g} s; NumPy {reference:.3g} s")
    yield Result("two threads vs NumPy loop", reference / two, "×", f"{two:.3g} s", target=60)
    yield Result("one client alone", 1e3 * single, "ms")


@benchmark
def frameunit() -> Iterator[Result]:
    """FrameUnit encoding of 100 clients, in plain transforms of size N on as many threads, and beside SSTQ."""
    dim, clients = 10_000, 100
    mechanism, certified = sstq.mechanism("frameunit", dim=dim, epsilon=3.0), sstq.SSTQ(dim=dim, epsilon=3.0)
    x = unit_vectors(clients, dim)
    y = np.zeros((clients, mechanism.frame.size), dtype=np.float32)
    for count in (1, 2):
        with threads(count):
            ours, plain, kashin = fastest(
                lambda: mechanism.encode(x), lambda: kernels.hadamard_transform(y), lambda: certified.encode(x)
            )
        what = "one thread" if count == 1 else "two threads"
        note = f"{1e6 * ours / clients:.3g} µs a client; one transform {1e6 * plain / clients:.3g} µs"
        yield Result(f"{what}: encoding", ours / plain, "transforms", note, target=7, at_most=True)
        yield Result(f"{what}: faster than SSTQ", kashin / ours, "×")
    single = sstq.mechanism("frameunit", dim=DIM, epsilon=3.0)
    vector = unit_vectors(1)
    (alone,) = fastest(lambda: single.encode(vector), repeats=30)
    yield Result("one client alone, d = 25,450", 1e3 * alone, "ms")


@benchmark
def aggregating() -> Iterator[Result]:
    """Messages into a mean, d = 25,450, one core: from memory, from packed bytes, and the closing synthesis."""
    mechanism = sstq.SSTQ(dim=DIM, epsilon=3.0, bits=4)
    few, copies = mechanism.encode(unit_vectors(2000)), 2000
    messages = sstq.Messages.concatenate([few] * copies)
    raw = messages.to_bytes()
    aggregator = mechanism.aggregator()

    def from_bytes() -> None:
        aggregator.update(mechanism.messages_from_bytes(raw, len(messages)))

    with threads(1):
        memory, packed, close = fastest(lambda: aggregator.update(messages), from_bytes, aggregator.mean, repeats=5)
    count = len(messages)
    yield Result("from memory", count / memory / MILLION, "million messages/s", target=30)
    yield Result("from packed bytes", count / packed / MILLION, "million messages/s")
    yield Result("mean and standard error", 1e3 * close, "ms", "once a round")


@benchmark
def randomness() -> Iterator[Result]:
    """Random words: the operating system's beside a seeded generator's."""
    count = 1 << 20
    secure, seeded = fastest(lambda: bit_source(None).words(count), lambda: bit_source(1).words(count))
    yield Result("operating system", count / secure / MILLION, "million words/s", "three words a message")
    yield Result("seeded", count / seeded / MILLION, "million words/s")


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
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", _MEMORY_PROGRAM, str(clients)], capture_output=True, text=True, check=True
        )
        full = clients * DIM * 4 / 2**20
        yield Result(f"{clients} clients", int(done.stdout) / 1024, "MiB", f"their vectors would take {full:.0f} MiB")


@benchmark
def startup() -> Iterator[Result]:
    """A fresh process, files warm: the least of several runs."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "import sstq": ["-c", "import sstq"],
        "sstq --help": ["-m", "sstq", "--help"],
    }

    def process(arguments: list[str]) -> None:
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)  # noqa: S603

    seconds = fastest(*(lambda a=a: process(a) for a in commands.values()), repeats=5)
    for what, least in zip(commands, seconds, strict=True):
        yield Result(what, 1e3 * least, "ms", "" if what == "python -c pass" else "at most 500")
