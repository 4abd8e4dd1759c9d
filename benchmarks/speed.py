"""Speed from a vector to a mean: the transform, encoding, all cores, randomness, aggregation, start-up, growth, ε.

Also what the time of encoding tells of the data. Every point of `growth` is measured in a process of its own, because
the peak of a process's memory never falls: `python -m benchmarks.speed '{"mechanism": "sstq", "clients": 10}'`.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

import sstq
from benchmarks.harness import (
    Measured,
    Remark,
    Result,
    benchmark,
    fastest,
    in_turns,
    memory_of,
    run_python,
    seconds_of,
)
from benchmarks.references import (
    BITS,
    DIM,
    EPSILON,
    MILLION,
    aligned_zeros,
    blas_on_one_thread,
    foreign_transform,
    kronecker_transform,
    numpy_butterflies,
    straightforward_encode,
    threads,
    unit_vectors,
)
from sstq import SSTQ, FrameUnit, PrivUnitG, kernels
from sstq.kernels.threads import thread_count
from sstq.messages.files import read_messages, write_messages
from sstq.randomness.secret import bit_source

CLIENTS = 100
NAIVE_CLIENTS = 3


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
        ours = partial(kernels.hadamard_transform, x)
        slowly = (partial(numpy_butterflies, x), partial(kronecker_transform, x))
        with threads(1), blas_on_one_thread():
            # Separate from the slow ones, so that there is time for many repeats of nearly equal candidates.
            least, *other = fastest(
                ours, *([partial(foreign, x)] if foreign else []), repeats=60
            )
            beside, butterflies, kronecker = fastest(
                ours, *slowly, repeats=5 if bits > 20 else 15
            )
        label = f"N = 2^{bits}"
        yield Result(f"{label}: one vector", least / len(x) * MILLION, "µs")
        yield Result(
            f"{label}: NumPy butterflies",
            butterflies / beside,
            "×",
            target=40 if bits == 16 else None,
        )
        yield Result(f"{label}: BLAS, Kronecker product", kronecker / beside, "×")
        for seconds in other:
            target = 1.1 if 12 <= bits <= 22 else None
            yield Result(
                f"{label}: fht-cpu",
                seconds / least,
                "×",
                "rows on cache lines",
                target=target,
            )


@benchmark
def encoding() -> Iterator[Result]:
    """Encoding of 100 clients, d = 25,450: SSTQ beside a NumPy loop (3 clients, scaled), PrivUnitG beside NumPy."""
    mechanism, paper = (
        sstq.SSTQ(dim=DIM, epsilon=EPSILON, bits=BITS, kashin=name)
        for name in ("certified", "paper")
    )
    x = unit_vectors(CLIENTS)
    rng = np.random.default_rng(2)

    def naive(written_down: sstq.SSTQ) -> None:
        for row in x[:NAIVE_CLIENTS]:
            straightforward_encode(written_down, row, rng)

    encode = partial(mechanism.encode, x)
    one, two, same, papers = fastest(
        partial(_on, 1, encode),
        partial(_on, 2, encode),
        partial(naive, mechanism),
        partial(naive, paper),
        repeats=5,
    )
    for what, reference in (
        (f"the paper's {paper.kashin.steps + 1} rounds", papers),
        ("as many steps", same),
    ):
        seconds = reference * CLIENTS / NAIVE_CLIENTS
        target = 100 if reference is papers else None
        yield Result(
            f"SSTQ, one thread vs NumPy, {what}", seconds / one, "×", target=target
        )
        yield Result(
            f"SSTQ, two threads vs NumPy, {what}", seconds / two, "×", target=target
        )
    with threads(1):
        for label, single, most in (
            ("SSTQ", mechanism, 1.5),
            ("FrameUnit", FrameUnit(DIM, EPSILON), 0.3),
        ):
            (alone,) = fastest(partial(single.encode, x[:1]), repeats=100)
            yield Result(
                f"{label}, one client alone, one thread",
                1e3 * alone,
                "ms",
                target=most,
                at_most=True,
            )
    dense = PrivUnitG(DIM, EPSILON)
    double = x.astype(np.float64)
    with blas_on_one_thread(), threads(1):
        in_numpy, ours = fastest(
            partial(privunitg_in_numpy, dense, double, rng), partial(dense.encode, x)
        )
    yield Result(
        "PrivUnitG, one thread vs NumPy with numbers that are no secret",
        in_numpy / ours,
        "×",
        target=1,
    )


def privunitg_in_numpy(
    mechanism: PrivUnitG, x: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A Gaussian vector per client whose part along x is from beyond the threshold, or from before it."""
    mass = mechanism.cap.mass / 2**62
    inside = mechanism.cap.inside / 2**62
    uniform, side = rng.random((2, len(x)))
    along = -ndtri(np.where(side < inside, mass * uniform, mass + (1 - mass) * uniform))
    g = rng.standard_normal(x.shape)
    g += (along - np.einsum("ij,ij->i", g, x))[:, None] * x
    g /= mechanism.cap.gain
    return g


@benchmark
def frameunit() -> Iterator[Result]:
    """FrameUnit encoding of 100 clients, in plain transforms of size N on as many threads, and beside SSTQ."""
    dim = 10_000
    mechanism = FrameUnit(dim, EPSILON)
    certified = SSTQ(dim, EPSILON, bits=4)
    x = unit_vectors(CLIENTS, dim)
    y = aligned_zeros(CLIENTS, mechanism.frame.size)
    for count, what in ((1, "one thread"), (2, "two threads")):
        with threads(count):
            ours, plain, kashin = fastest(
                lambda: mechanism.encode(x),
                lambda: kernels.hadamard_transform(y),
                lambda: certified.encode(x),
            )
        yield Result(
            f"{what}: encoding", ours / plain, "transforms", target=5, at_most=True
        )
        yield Result(f"{what}: faster than SSTQ", kashin / ours, "×")


@benchmark
def scaling() -> Iterator[Result | Remark]:
    """All cores on independent clients, as a multiple of one thread's speed; it takes an idle machine."""
    cores = thread_count()
    if cores == 1:
        yield Remark(
            "nothing to measure: there is one core to run on, or SSTQ_THREADS is 1"
        )
        return
    # Ten times as many for FrameUnit, which then takes as long: a thread needs a tenth of a millisecond to begin.
    x = unit_vectors(10 * CLIENTS)
    calls: dict[str, Callable[[], object]] = {
        "SSTQ, 100 clients": partial(SSTQ(DIM, EPSILON, bits=BITS).encode, x[:CLIENTS]),
        "FrameUnit, 1,000 clients": partial(FrameUnit(DIM, EPSILON).encode, x),
    }
    for what, call in calls.items():
        one, all_of_them = fastest(
            partial(_on, 1, call), partial(_on, cores, call), repeats=40
        )
        yield Result(
            what,
            one / all_of_them,
            "×",
            f"{cores} threads",
            target=1.8 if cores == 2 else None,
        )


def _on(count: int, call: Callable[[], object]) -> None:
    with threads(count):
        call()


@benchmark
def randomness() -> Iterator[Result]:
    """The operating system's random words beside a seeded generator's, alone and in encoding; one thread."""
    count = 1 << 20
    secure, seeded = fastest(
        lambda: bit_source(None).words(count), lambda: bit_source(1).words(count)
    )
    yield Result(
        "operating system",
        count / secure / MILLION,
        "million words/s",
        "three words per message",
    )
    yield Result("seeded", count / seeded / MILLION, "million words/s")
    # vqSGD in few dimensions is the cheapest encoding that there is, so that nothing else hides the randomness.
    for name, dim, clients in (
        ("vqsgd", 2, 200_000),
        ("vqsgd", 64, 50_000),
        ("frameunit", 64, 20_000),
    ):
        mechanism = sstq.mechanism(name, dim=dim, epsilon=EPSILON)
        x = unit_vectors(clients, dim)
        with threads(1):
            secure, seeded = fastest(
                partial(mechanism.encode, x), partial(mechanism.encode, x, rng=1)
            )
        what = f"encoding with secure over seeded words: {name}, d = {dim}"
        yield Result(what, secure / seeded, "× the time", target=2, at_most=True)


@benchmark
def timing() -> Iterator[Result]:
    """Encoding time of one vector by what it holds, over that of a Gaussian one: least and median of 300."""
    for name, dim, options in (
        ("sstq", 1000, {"bits": 4}),
        ("frameunit", 16_384, {}),
        ("vqsgd", 1000, {}),
        ("sqkr", 1000, {}),
    ):
        mechanism = sstq.mechanism(name, dim=dim, epsilon=EPSILON, **options)
        vectors = _telling_vectors(mechanism)
        with threads(1):
            clocks = [
                partial(seconds_of, partial(mechanism.encode, x))
                for x in vectors.values()
            ]
            times = np.array(in_turns(*clocks, repeats=300))
        least = times.min(axis=1)
        median = np.median(times, axis=1)
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


@benchmark
def aggregate() -> Iterator[Result | Remark]:
    """Messages of SSTQ into a mean, d = 25,450, one core: million messages per second, by where they come from."""
    mechanism = SSTQ(DIM, EPSILON, bits=BITS)
    rng = np.random.default_rng(1)
    count = 8_000_000
    messages = _random_messages(mechanism, count, rng)
    raw = messages.to_bytes()
    aggregator = mechanism.aggregator()
    with tempfile.TemporaryDirectory() as folder, threads(1):
        calls: dict[str, Callable[[], object]] = {
            "memory": partial(aggregator.update, messages),
            "packed bytes": lambda: aggregator.update(
                mechanism.messages_from_bytes(raw, count)
            ),
        }
        for kind, name in (
            ("a framed file", "messages.sstq"),
            ("Parquet", "messages.parquet"),
        ):
            path = Path(folder) / name
            try:
                write_messages(path, messages)
            except ImportError as error:
                yield Remark(f"from {kind}, not measured: {error}")
                continue
            calls[kind] = partial(_read, mechanism, path)
        sources = fastest(*calls.values(), repeats=5)
    targets = {"memory": 50.0, "Parquet": 20.0}
    for kind, taken in zip(calls, sources, strict=True):
        yield Result(
            f"from {kind}",
            count / taken / MILLION,
            "million messages/s",
            target=targets.get(kind),
        )


def _random_messages(
    mechanism: sstq.Mechanism, count: int, rng: np.random.Generator
) -> sstq.Messages:
    columns = (
        rng.integers(f.limit, size=count, dtype=f.dtype)
        for f in mechanism.layout.fields
    )
    return mechanism.messages_from_columns(tuple(columns), simulated=True)


def _read(mechanism: SSTQ, path: Path) -> None:
    # Not update_from_file, which would skip a file that was already counted.
    aggregator = mechanism.aggregator()
    for batch in read_messages(path, mechanism):
        aggregator.update(batch)


_FIRST_MESSAGE = """
import numpy as np
import sstq
sstq.FrameUnit(dim=25_450, epsilon=3.0).encode(np.full(25_450, 0.005))
"""


@benchmark
def startup() -> Iterator[Result]:
    """Fresh processes from their start to their end, files warm: the least of several."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "import sstq": ["-c", "import sstq"],
        "sstq --help": ["-m", "sstq", "--help"],
        "first message of FrameUnit, kernels cached": ["-c", _FIRST_MESSAGE],
    }
    seconds = fastest(
        *(partial(run_python, *arguments) for arguments in commands.values()), repeats=5
    )
    for what, least in zip(commands, seconds, strict=True):
        yield Result(
            what,
            1e3 * least,
            "ms",
            target=500.0 if "sstq" in what else None,
            at_most=True,
        )
    with tempfile.TemporaryDirectory() as folder:
        cold = seconds_of(
            partial(
                run_python, "-c", _FIRST_MESSAGE, SSTQ_QUIET="1", NUMBA_CACHE_DIR=folder
            )
        )
    yield Result(
        "first message of FrameUnit, kernels compiled", cold, "s", "once per machine"
    )


BATCH = 1000
SHARD = 10_000_000
Point = Mapping[str, Any]


def growth_curves() -> Iterator[tuple[str, list[int], list[Point]]]:
    """The name of each curve, its sizes, and what is measured at each of them."""
    for name, label in (("frameunit", "FrameUnit"), ("sstq", "SSTQ")):
        for what, option, sizes in (
            ("the dimension, one client", "dim", [10**k for k in range(2, 8)]),
            ("the clients, d = 1,000", "clients", [10**k for k in range(6)]),
        ):
            yield (
                f"{label}: {what}",
                sizes,
                [{"mechanism": name, option: size} for size in sizes],
            )
    sizes = [10**k for k in range(4, 9)]
    for form in ("sstq", "parquet"):
        points = [{"form": form, "messages": size} for size in sizes]
        yield f"aggregation of .{form} files: the messages", sizes, points


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The exponent of a power law through the upper half of a curve, where constant costs no longer count."""
    upper = len(sizes) // 2 - 1
    return float(np.polyfit(np.log(sizes[upper:]), np.log(seconds[upper:]), 1)[0])


@benchmark
def growth() -> Iterator[Result]:
    """Time as a power of the size, on the upper half of each curve, and the largest peak of memory over the least."""
    for curve, sizes, points in growth_curves():
        seconds, peaks = np.array([in_a_process(point) for point in points]).T
        note = f"{seconds[-1]:.3g} s, {peaks[-1] / 2**20:.0f} MiB at {sizes[-1]:,}"
        yield Result(f"{curve}, time", slope(sizes, seconds), "exponent", note)
        yield Result(f"{curve}, memory", peaks.max() / peaks.min(), "times")


EPSILONS = (1.0, 3.0, 6.0, 12.0)
PEOPLE = 10_000
CATEGORIES = 1024


@benchmark
def growth_in_epsilon() -> Iterator[Result]:
    """Time at ε = 3, 6 and 12 over that at ε = 1, d = 1,000, one thread: encoding, means of 10,000 messages, words."""
    rng = np.random.default_rng(1)
    vectors = unit_vectors(BATCH, 1000)
    kinds: dict[str, tuple[np.ndarray, Callable[[float], sstq.Mechanism]]] = {
        # It has more frames if the noise of so many people is less.
        "FrameUnit": (
            vectors,
            lambda epsilon: FrameUnit(1000, epsilon, clients=PEOPLE),
        ),
        "SSTQ": (vectors, lambda epsilon: SSTQ(1000, epsilon)),
        "Frequencies": (
            rng.integers(CATEGORIES, size=PEOPLE),
            lambda epsilon: sstq.Frequencies(categories=CATEGORIES, epsilon=epsilon),
        ),
    }
    with threads(1):
        for label, (values, make) in kinds.items():
            mechanisms = [make(epsilon) for epsilon in EPSILONS]
            encode = [partial(each.encode, values) for each in mechanisms]
            yield from _over_the_first(f"{label}, encoding", encode, mechanisms)
            mean = [
                partial(_mean, each, _random_messages(each, PEOPLE, rng))
                for each in mechanisms
            ]
            yield from _over_the_first(f"{label}, mean", mean, mechanisms)
        letters = rng.choice(list("abcdefgh"), (200, 8))
        words = np.array(["".join(word) for word in letters])
        clocks = [
            partial(_learning_seconds, epsilon, rng.choice(words, PEOPLE))
            for epsilon in EPSILONS
        ]
        seconds = [Measured.least_of(taken) for taken in in_turns(*clocks, repeats=3)]
        for epsilon, taken in zip(EPSILONS[1:], seconds[1:], strict=True):
            note = f"{1e3 * taken:.3g} ms"
            yield Result(f"words, ε = {epsilon:g}", taken / seconds[0], "×", note)


def _over_the_first(
    what: str,
    calls: Sequence[Callable[[], object]],
    mechanisms: Sequence[sstq.Mechanism],
) -> Iterator[Result]:
    first, *others = fastest(*calls, repeats=3)
    for mechanism, taken in zip(mechanisms[1:], others, strict=True):
        frames = getattr(mechanism, "frames", 1)
        note = f"{mechanism.message_bits} bits, {frames:,} frames; {1e3 * taken:.3g} ms"
        yield Result(f"{what}, ε = {mechanism.epsilon:g}", taken / first, "×", note)


def _mean(mechanism: sstq.Mechanism, messages: sstq.Messages) -> None:
    aggregator = mechanism.aggregator()
    aggregator.update(messages)
    aggregator.mean()


def _learning_seconds(epsilon: float, words: np.ndarray) -> float:
    """What a study of words takes to learn from its cohorts, without the encoding of their messages."""
    study = sstq.studies.Words(epsilon=epsilon)
    seconds = 0.0
    left = words
    while study.cohorts_left:
        size = next(iter(study.cohort_sizes(len(left)).values()))
        study.question(size)
        messages = study.asked.encode(left[:size], 1)
        left = left[size:]
        seconds += seconds_of(partial(study.learn, messages))
    return seconds


def in_a_process(point: Point) -> tuple[float, int]:
    """The seconds of a point in a new process, and the peak of its memory in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        if "messages" in point:
            _write_shards(Path(folder), **point)
        seconds, peak = json.loads(
            run_python(
                "-m", "benchmarks.speed", json.dumps({**point, "folder": folder})
            )
        )
        return seconds, peak


def _encoding_seconds(
    mechanism: str, dim: int = 1000, clients: int = 1, **_: Any
) -> float:
    """Encode clients, a batch at a time, and add their messages up if there are several."""
    encoder = sstq.mechanism(mechanism, dim=dim, epsilon=EPSILON)
    x = unit_vectors(min(BATCH, clients), dim)

    def stream() -> None:
        aggregator = encoder.aggregator()
        for start in range(0, clients, BATCH):
            messages = encoder.encode(x[: clients - start])
            if clients > 1:
                aggregator.update(messages)

    return min(fastest(stream, repeats=3))


def _write_shards(folder: Path, form: str, messages: int) -> None:
    """Write random messages of 20 bits, those of the paper's network."""
    mechanism = SSTQ(DIM, EPSILON, bits=BITS)
    rng = np.random.default_rng(1)

    def batches(count: int) -> Iterator[sstq.Messages]:
        for first in range(0, count, 1 << 20):
            yield _random_messages(mechanism, min(1 << 20, count - first), rng)

    for first in range(0, messages, SHARD):
        write_messages(
            folder / f"{first}.{form}", batches(min(SHARD, messages - first))
        )


def _aggregating_seconds(folder: str, messages: int, **_: Any) -> float:
    """From shards to the mean and its standard error."""
    mechanism = SSTQ(DIM, EPSILON, bits=BITS)
    mechanism.aggregator().update(
        mechanism.encode(np.full((2, DIM), 0.005, np.float32))
    ).mean()
    aggregator = mechanism.aggregator()

    def read() -> None:
        for path in sorted(Path(folder).iterdir()):
            aggregator.update_from_file(path)
        assert aggregator.mean().count == messages

    return seconds_of(read)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    seconds = (
        _aggregating_seconds(**asked)
        if "messages" in asked
        else _encoding_seconds(**asked)
    )
    print(json.dumps([seconds, memory_of(what="VmHWM")]))
