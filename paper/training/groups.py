"""Groups of clients of fixed size, so that a round computed in pieces is the same bit for bit.

Matrix products of floating-point numbers are rounded in an order that depends on the shapes of the matrices. So every
engine computes gradients and losses for the same groups; what is added up over the groups are integers, or numbers in
the order of the groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms import Mechanism
from sstq.runs.rounds import client_identifier

__all__ = ["CLIENTS_AT_A_TIME", "client_groups", "mean_of_groups", "round_identities"]

CLIENTS_AT_A_TIME = 256
"""The number of clients per group."""


def client_groups(clients: int) -> Iterator[slice]:
    """Yield the groups of this many clients; all are full but the last.

    Examples:
        >>> list(client_groups(300))
        [slice(0, 256, None), slice(256, 300, None)]
    """
    for start in range(0, clients, CLIENTS_AT_A_TIME):
        yield slice(start, min(start + CLIENTS_AT_A_TIME, clients))


def mean_of_groups(values: Sequence[float], clients: int) -> float:
    """Return the mean over clients from the mean of each group, in the order of `client_groups`.

    Examples:
        >>> mean_of_groups([1.0, 2.0], clients=512)
        1.5
    """
    shares = [(group.stop - group.start) / clients for group in client_groups(clients)]
    return math.fsum(value * share for value, share in zip(values, shares, strict=True))


def round_identities(mechanism: Mechanism, clients: int, round_number: int) -> NDArray[np.uint64] | None:
    """Return the identifiers of clients 0, 1, … in a round; None if the coin is private.

    They are those of `sstq.runs.rounds.client_identifier`.

    Examples:
        >>> import sstq
        >>> round_identities(sstq.mechanism("frameunit", dim=10, epsilon=1.0, bits=3), clients=2, round_number=1)
        array([4294967296, 4294967297], dtype=uint64)
    """
    first = client_identifier(mechanism, 0, round_number)
    return None if first is None else np.uint64(first) + np.arange(clients, dtype=np.uint64)
