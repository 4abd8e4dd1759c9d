"""How long a plan takes on this machine: measured on a few messages, or estimated where even one takes too long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.mechanisms import FrameUnit, Mechanism
from sstq.mechanisms.candidates.rrsc import RRSC
from sstq.mechanisms.structured import typical_vector
from sstq.messages.batch import Messages
from sstq.runs.rounds import mean_of_round

__all__ = ["Times", "time_mechanism"]

# Measuring stops after about this many seconds or messages, whichever comes first.
_SECONDS, _MOST_MESSAGES = 0.3, 256
_ADDED = 1 << 15
# Multiplications and additions that a server is taken to do in a second where nothing is measured.
_OPERATIONS_A_SECOND = 1e9
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


def time_mechanism(mechanism: Mechanism, clients: int) -> Times:
    """Measure a few messages of a typical vector and scale up to all clients.

    Examples:
        >>> import sstq
        >>> times = time_mechanism(sstq.SSTQ(dim=100, epsilon=1.0), clients=1000)
        >>> times.measured, times.encode > 0, times.decode > 0
        (True, True, True)
    """
    operations = _operations_a_message(mechanism)
    if operations > _MOST_OPERATIONS:
        each = operations / _OPERATIONS_A_SECOND
        return Times(each, each * clients, measured=False)
    x = typical_vector(mechanism.dim, mechanism.clip)

    def encode(count: int) -> Messages:
        identifiers = np.arange(count) if mechanism.coin == "public" else None
        return mechanism.encode(np.broadcast_to(x, (count, len(x))), clients=identifiers)

    def decode(messages: Messages) -> Any:
        aggregator = mechanism.aggregator()
        aggregator.update(messages)
        return aggregator

    def repeated(messages: Messages) -> Messages:
        """Many messages out of a few: adding them one by one would measure the call, not the work."""
        times = _ADDED // len(messages) + 1
        columns = tuple(np.tile(column, (times,) + (1,) * (column.ndim - 1)) for column in messages.columns)
        identifiers = None if messages.clients is None else np.arange(times * len(messages), dtype=np.uint64)
        return mechanism.messages_from_columns(columns, identifiers, messages.simulated)

    # The first calls compile and fill caches; the second tell how many messages there is time for.
    mean_of_round(decode(encode(2)))
    once, _ = _timed(lambda: encode(2))
    count = int(np.clip(_SECONDS / max(once / 2, 1e-6), 2, _MOST_MESSAGES))
    encoding, messages = _timed(lambda: encode(count))
    decoded = decode(messages)
    finishing, _ = _timed(lambda: mean_of_round(decoded))
    syntheses = _frames_used(mechanism, clients) / _frames_used(mechanism, count)
    added = messages if operations else repeated(messages)
    adding, _ = _timed(lambda: decode(added))
    return Times(encoding / count, adding / len(added) * clients + finishing * syntheses, measured=True)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _operations_a_message(mechanism: Mechanism) -> float:
    """What rebuilding a message's candidates costs, where that is what counts."""
    return float(mechanism.dim) * mechanism.size**2 if isinstance(mechanism, RRSC) else 0.0


def _frames_used(mechanism: Mechanism, clients: int) -> float:
    """The expected number of different frames of so many clients, each of which is one synthesis."""
    frames = mechanism.frames if isinstance(mechanism, FrameUnit) else 1
    return 1.0 if frames == 1 else -frames * math.expm1(clients * math.log1p(-1 / frames))
