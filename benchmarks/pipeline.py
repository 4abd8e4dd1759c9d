"""Speed of the whole way: where the time of a client and of a message goes, aggregation from files, start-up."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Remark, Result, benchmark, fastest, run_python, seconds_of
from benchmarks.references import BITS, DIM, EPSILON, GIGA, MILLION, aligned_zeros, threads, unit_vectors
from sstq import SSTQ, FrameUnit, kernels
from sstq.frames.kashin import pick
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
