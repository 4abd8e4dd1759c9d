"""One point of a growth curve, in a process of its own: `python -m benchmarks.growth_points '{"axis": "d", …}'`.

A fresh process, because the peak of a process's memory never falls.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sstq
from sstq.messages.files import write_messages

EPSILON, DIM = 3.0, 1000
# The network of the paper's experiments: 20 bits per message.
MESSAGE_DIM, MESSAGE_BITS = 25_450, 4
SHARD = 10_000_000
BATCH = 1000
# A short call is repeated for about this long, and its least time counts.
PATIENCE_SECONDS = 0.3


def build(point: dict[str, Any]) -> sstq.Mechanism:
    """The mechanism of a point; what it does not say has its default."""
    options = {name: point[name] for name in ("bits", "frame_size") if name in point}
    return sstq.mechanism(point["mechanism"], dim=point.get("dim", DIM), epsilon=EPSILON, **options)


def least_seconds(call: Callable[[], object]) -> float:
    """The least time of one call, after one that is not counted if there is time for two."""
    taken: list[float] = []
    while len(taken) < 2 or sum(taken) < PATIENCE_SECONDS:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
        if taken[0] > 20 * PATIENCE_SECONDS:
            break
    return min(taken)


def encode_one(point: dict[str, Any]) -> float:
    """Seconds of encoding one client's vector."""
    mechanism = build(point)
    x = np.random.default_rng(1).standard_normal(mechanism.dim, dtype=np.float32)
    x /= np.linalg.norm(x)
    clients = [7] if mechanism.coin == "public" else None
    return least_seconds(lambda: mechanism.encode(x, clients=clients))


def encode_many(point: dict[str, Any]) -> float:
    """Seconds of encoding many clients, a batch at a time, and adding their messages up."""
    mechanism, clients = build(point), point["clients"]
    x = np.random.default_rng(1).standard_normal((min(BATCH, clients), mechanism.dim), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)

    def stream(count: int) -> None:
        aggregator = mechanism.aggregator()
        for start in range(0, count, BATCH):
            part = x[: count - start]
            ids = np.arange(start, start + len(part)) if mechanism.coin == "public" else None
            aggregator.update(mechanism.encode(part, clients=ids))

    stream(1)
    return least_seconds(lambda: stream(clients))


def write_shards(point: dict[str, Any]) -> float:
    """Write random messages to shards in a folder; returns the seconds."""
    start = time.perf_counter()
    mechanism = sstq.SSTQ(MESSAGE_DIM, EPSILON, bits=MESSAGE_BITS)
    rng = np.random.default_rng(1)
    limits = [(field.limit, field.dtype) for field in mechanism.layout.fields]

    def batches(count: int) -> Iterator[sstq.Messages]:
        for first in range(0, count, 1 << 20):
            size = min(1 << 20, count - first)
            columns = tuple(rng.integers(limit, size=size, dtype=dtype) for limit, dtype in limits)
            yield mechanism.messages_from_columns(columns, None, simulated=True)

    for shard in range(-(-point["messages"] // SHARD)):
        size = min(SHARD, point["messages"] - shard * SHARD)
        write_messages(Path(point["folder"]) / f"{shard}.{point['form']}", batches(size))
    return time.perf_counter() - start


def aggregate(point: dict[str, Any]) -> float:
    """Seconds from shards to the mean and its standard error."""
    mechanism = sstq.SSTQ(MESSAGE_DIM, EPSILON, bits=MESSAGE_BITS)
    warm = mechanism.aggregator()
    warm.update(mechanism.encode(np.full(MESSAGE_DIM, 0.005, np.float32)))
    warm.mean()
    start = time.perf_counter()
    aggregator = mechanism.aggregator()
    for path in sorted(Path(point["folder"]).iterdir()):
        aggregator.update_from_file(path)
    assert aggregator.mean().count == point["messages"]
    return time.perf_counter() - start


TASKS = {function.__name__: function for function in (encode_one, encode_many, write_shards, aggregate)}


def peak_bytes() -> int:
    """The most memory that this process has had at any time."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def measure(point: dict[str, Any]) -> dict[str, float]:
    """Do the point's task in this process: its seconds, and the peak of the memory afterwards."""
    return {"seconds": TASKS[point["task"]](point), "peak_bytes": peak_bytes()}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
