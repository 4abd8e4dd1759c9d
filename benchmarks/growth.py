"""How time and memory grow with the dimension, the clients, the bits and the messages.

Every point is measured in a process of its own, because the peak of a process's memory never falls:
`python -m benchmarks.growth '{"task": "encode", "mechanism": "sstq", "clients": 10}'`.
"""

import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sstq
from benchmarks.harness import Result, benchmark, fastest, run_python, seconds_of
from benchmarks.references import BITS, DIM, EPSILON
from sstq.messages.files import write_messages

BATCH, SHARD = 1000, 10_000_000
MECHANISMS = {"frameunit": "FrameUnit", "sstq": "SSTQ"}
Point = Mapping[str, Any]


def plan() -> Iterator[tuple[str, list[int], list[Point]]]:
    """The name of each curve, its sizes, and what is measured at each of them."""
    for name, label in MECHANISMS.items():
        task = {"task": "encode", "mechanism": name}
        for what, option, sizes in (
            ("the dimension, one client", "dim", [10**k for k in range(2, 8)]),
            ("the clients, d = 1,000", "clients", [10**k for k in range(6)]),
            ("the bits, 1,000 clients, d = 1,000", "bits", [1, 2, 4, 8]),
        ):
            rest = {"clients": 1000} if option == "bits" else {}
            yield f"{label}: {what}", sizes, [task | rest | {option: size} for size in sizes]
    for form in ("sstq", "parquet"):
        sizes = [10**k for k in range(4, 9)]
        yield (
            f"aggregation of .{form} files: the messages",
            sizes,
            [{"task": "aggregate", "form": form, "messages": size} for size in sizes],
        )


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The exponent of a power law through the upper half of a curve, where constant costs no longer count."""
    upper = len(sizes) // 2 - 1
    return float(np.polyfit(np.log(sizes[upper:]), np.log(seconds[upper:]), 1)[0])


@benchmark
def growth() -> Iterator[Result]:
    """Time as a power of the size, on the upper half of each curve, and the largest peak of memory over the least."""
    for curve, sizes, points in plan():
        seconds, peaks = np.array([json.loads(run_in_a_process(point)) for point in points]).T
        note = f"{seconds[-1]:.3g} s, {peaks[-1] / 2**20:.0f} MiB at {sizes[-1]:,}"
        yield Result(f"{curve}, time", slope(sizes, seconds), "exponent", note)
        yield Result(f"{curve}, memory", peaks.max() / peaks.min(), "times")


def run_in_a_process(point: Point) -> str:
    """The seconds and the peak of a point, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        if point["task"] == "aggregate":
            point = {**point, "folder": folder}
            run_python("-m", "benchmarks.growth", json.dumps({**point, "task": "write"}))
        return run_python("-m", "benchmarks.growth", json.dumps(point))


def encode(point: Point) -> float:
    """Seconds of encoding clients, a batch at a time, and adding their messages up if there are several."""
    options = {"dim": point.get("dim", 1000)} | {name: point[name] for name in ("bits",) if name in point}
    mechanism, clients = sstq.mechanism(point["mechanism"], epsilon=EPSILON, **options), point.get("clients", 1)
    x = np.random.default_rng(1).standard_normal((min(BATCH, clients), mechanism.dim), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)

    def stream() -> None:
        aggregator = mechanism.aggregator()
        for start in range(0, clients, BATCH):
            part = x[: clients - start]
            ids = np.arange(start, start + len(part)) if mechanism.coin == "public" else None
            messages = mechanism.encode(part, clients=ids)
            if clients > 1:
                aggregator.update(messages)

    return min(fastest(stream, repeats=3))


def write(point: Point) -> float:
    """Write random messages of 20 bits, those of the paper's network, to shards in a folder."""
    mechanism, rng = sstq.SSTQ(DIM, EPSILON, bits=BITS), np.random.default_rng(1)

    def batches(count: int) -> Iterator[sstq.Messages]:
        for first in range(0, count, 1 << 20):
            size = min(1 << 20, count - first)
            columns = (rng.integers(f.limit, size=size, dtype=f.dtype) for f in mechanism.layout.fields)
            yield mechanism.messages_from_columns(tuple(columns), None, simulated=True)

    for shard in range(-(-point["messages"] // SHARD)):
        size = min(SHARD, point["messages"] - shard * SHARD)
        write_messages(Path(point["folder"]) / f"{shard}.{point['form']}", batches(size))
    return math.nan


def aggregate(point: Point) -> float:
    """Seconds from shards to the mean and its standard error."""
    mechanism = sstq.SSTQ(DIM, EPSILON, bits=BITS)
    mechanism.aggregator().update(mechanism.encode(np.full((2, DIM), 0.005, np.float32))).mean()
    aggregator = mechanism.aggregator()

    def read() -> None:
        for path in sorted(Path(point["folder"]).iterdir()):
            aggregator.update_from_file(path)
        assert aggregator.mean().count == point["messages"]

    return seconds_of(read)


def measure(point: Point) -> tuple[float, int]:
    """The seconds of a point in this process, and the peak of its memory in bytes, as Linux counts it."""
    seconds = {"encode": encode, "write": write, "aggregate": aggregate}[point["task"]](point)
    # Not that of getrusage, which begins with the peak of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return seconds, 1024 * int(status.split("VmHWM:")[1].split()[0])


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
