"""Encoding files of vectors in Ray, one task per file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.integrations.ray.tasks import results_of, shared_mechanism
from sstq.mechanisms import LocalReport, Mechanism
from sstq.runs.shards import Shard, encode_shard

__all__ = ["encode_shards"]


def encode_shards(
    shards: Sequence[Shard],
    mechanism: Mechanism,
    rng: np.random.Generator | None = None,
    *,
    clients: NDArray[np.uint64] | None = None,
) -> Iterator[LocalReport | None]:
    """Encode shards, yielding the local report of each in order, or None if its message file already existed.

    It applies `sstq.runs.shards.encode_shard` to each. Tasks may be run again, and a task that was believed dead
    may finish after all; the message file of a shard is still published once, from one of them. (If a worker dies
    between publishing and reporting, the report is lost.)

    Args:
        shards: the result of `sstq.runs.shards.plan_shards`, in shared folders; the unfinished folder must exist.
            Relative paths are those of this process.
        mechanism: the mechanism to encode with.
        rng: None for secret randomness, a generator for simulations; the result is then the same, bit for bit, as
            without Ray, on processors of the same type.
        clients: with a public coin, the identifiers of the clients of all shards in order.

    Raises:
        ValueError: a shard is refused. Shards before it are finished; some after it may be.

    """

    def calls() -> Iterator[tuple[Any, ...]]:
        for shard in shards:
            ids = None if clients is None else clients[shard.first : shard.first + shard.count]
            there = replace(shard, vectors=shard.vectors.absolute(), messages=shard.messages.absolute())
            yield there, mechanism.to_json(), rng, ids

    for result in results_of(_encode, calls()):
        if isinstance(result, Exception):
            raise result
        yield result


def _encode(
    shard: Shard, mechanism: str, rng: np.random.Generator | None, clients: NDArray[np.uint64] | None
) -> LocalReport | None:
    # Arguments of a task are read-only, for which code would be compiled again; a copy is not.
    ids = None if clients is None else clients.copy()
    return encode_shard(shard, shared_mechanism(mechanism), rng, clients=ids)
