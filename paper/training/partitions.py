"""Partitions: which client holds which examples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_number

__all__ = ["dirichlet_partition", "iid_partition"]

Partition = list[NDArray[np.int64]]


def iid_partition(examples: int, clients: int, seed: int) -> Partition:
    """Return disjoint random parts of (nearly) equal size, one per client.

    Examples:
        >>> [len(part) for part in iid_partition(10, 3, seed=0)]
        [4, 3, 3]
    """
    clients = check_number("clients", clients, 1, examples, integer=True)
    return np.array_split(np.random.default_rng([seed, 1]).permutation(examples), clients)


def dirichlet_partition(labels: NDArray[Any], clients: int, alpha: float, seed: int) -> Partition:
    """Return disjoint parts in which a client's share of each class follows a symmetric Dirichlet distribution.

    The smaller `alpha` is, the fewer classes a client sees (Hsu, Qi and Brown, *Measuring the effects of non-identical
    data distribution for federated visual classification*, 2019). A client without examples takes one from
    the largest part, so that everybody can take part.

    Examples:
        >>> parts = dirichlet_partition(np.repeat(np.arange(3), 100), clients=10, alpha=0.1, seed=0)
        >>> sum(map(len, parts)), min(map(len, parts)) > 0
        (300, True)
    """
    clients = check_number("clients", clients, 1, len(labels), integer=True)
    alpha = check_number("alpha", alpha, 1e-3, 1e6)
    rng = np.random.default_rng([seed, 2])
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        cuts = (np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(members)).astype(np.int64)
        for part, taken in zip(parts, np.split(members, cuts), strict=True):
            part.append(taken)
    joined = [np.concatenate(part) for part in parts]
    for number in range(clients):
        if not len(joined[number]):
            largest = max(range(clients), key=lambda other: len(joined[other]))
            joined[number], joined[largest] = joined[largest][-1:], joined[largest][:-1]
    return joined
