"""How long a mechanism takes on this machine: measured on a few messages, or estimated if one takes too long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.mechanisms import RRSC, FrameUnit, Mechanism
from sstq.mechanisms.structured import typical_vector
from sstq.messages.batch import Messages
from sstq.runs.rounds import mean_of_round

# Measuring stops after about this many seconds.
_SECONDS = 0.3
_MOST_MESSAGES, _ADDED = 256, 1 << 15
# Multiplications and additions that a server is taken to do in a second where nothing is measured.
_OPERATIONS_PER_SECOND = 1e9
_MOST_OPERATIONS = 2e9


@dataclass(frozen=True)
class Times:
    """Seconds, on all cores of this machine.

    Attributes:
        encode: for one client's vector.
        decode: for the messages of one round and their mean.
        measured: whether they were measured; otherwise they are estimated from the number of operations.
    """

    encode: float
    decode: float
    measured: bool


def seconds_of(call: Callable[[], Any]) -> tuple[float, Any]:
    """How long the call takes, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def time_encoding(mechanism: Mechanism, most: int) -> tuple[float, Messages]:
    """Seconds per client for a typical vector, and the messages: at most so many, or as there is time for."""
    x = typical_vector(mechanism.dim, mechanism.clip)

    def encode(count: int) -> Messages:
        identifiers = np.arange(count) if mechanism.coin == "public" else None
        return mechanism.encode(np.broadcast_to(x, (count, len(x))), clients=identifiers)

    encode(1)  # compiles and fills caches
    once, _ = seconds_of(lambda: encode(1))
    count = int(np.clip(_SECONDS / max(once, 1e-6), 1, most))
    taken, messages = seconds_of(lambda: encode(count))
    return taken / count, messages


def time_mechanism(mechanism: Mechanism, clients: int) -> Times:
    """Measure a few messages of a typical vector and scale up to all clients.

    Examples:
        >>> import sstq
        >>> times = time_mechanism(sstq.SSTQ(dim=100, epsilon=1.0), clients=1000)
        >>> times.measured, times.encode > 0, times.decode > 0
        (True, True, True)
    """
    # What rebuilding a message's candidates costs, where that is what counts.
    operations = float(mechanism.dim) * mechanism.size**2 if isinstance(mechanism, RRSC) else 0.0
    if operations > _MOST_OPERATIONS:
        each = operations / _OPERATIONS_PER_SECOND
        return Times(each, each * clients, measured=False)

    def add(messages: Messages) -> Any:
        aggregator = mechanism.aggregator()
        aggregator.update(messages)
        return aggregator

    encoding, messages = time_encoding(mechanism, _MOST_MESSAGES)
    added = add(messages)
    mean_of_round(added)
    finishing, _ = seconds_of(lambda: mean_of_round(added))
    syntheses = _frames_used(mechanism, clients) / _frames_used(mechanism, len(messages))
    if not operations:
        # Many messages out of a few: adding them one by one would measure the call, not the work.
        times = _ADDED // len(messages) + 1
        columns = tuple(np.tile(column, (times,) + (1,) * (column.ndim - 1)) for column in messages.columns)
        identifiers = None if messages.clients is None else np.arange(times * len(messages), dtype=np.uint64)
        messages = mechanism.messages_from_columns(columns, identifiers, messages.simulated)
    adding, _ = seconds_of(lambda: add(messages))
    return Times(encoding, adding / len(messages) * clients + finishing * syntheses, measured=True)


def _frames_used(mechanism: Mechanism, clients: int) -> float:
    """The expected number of different frames of so many clients, each of which is one synthesis."""
    frames = mechanism.frames if isinstance(mechanism, FrameUnit) else 1
    return 1.0 if frames == 1 else -frames * math.expm1(clients * math.log1p(-1 / frames))
