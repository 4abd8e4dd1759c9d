"""What changes from round to round, derived independently by every party: the frame and the clients' identifiers."""

from __future__ import annotations

from typing import Any

from sstq.aggregation import Aggregator, Estimate
from sstq.checks import check_number
from sstq.mechanisms import Mechanism
from sstq.mechanisms.records import RecordMechanism
from sstq.randomness.streams import mix_seed


def round_mechanism(mechanism: Mechanism, base_seed: int, number: int) -> Mechanism:
    """Return the mechanism of a round, with a new seed for its frame or public coin, so that bias averages out.

    Examples:
        >>> import sstq
        >>> round_mechanism(sstq.FrameUnit(10, 1.0), 7, 1) == sstq.FrameUnit(10, 1.0, frame_seed=sstq.mix_seed(7, 1))
        True
    """
    refuse_other_than_vectors(mechanism)
    return mechanism.with_seed(mix_seed(base_seed, number))


def refuse_other_than_vectors(mechanism: Mechanism) -> None:
    """Raise ValueError for a mechanism that is not for model updates: vectors without private groups."""
    if isinstance(mechanism, RecordMechanism):
        raise ValueError(f"mechanism must be for vectors, got {mechanism.name}; use frameunit")
    if mechanism.groups is not None:
        raise ValueError(f"mechanism must be without private groups, got {mechanism.name}; use frameunit")


def client_identifier(mechanism: Mechanism, client: int | None, number: int) -> int | None:
    """Return the identifier of a client for a public coin, (2^32·number + client) mod 2^64, or None for a private coin.

    A client has a different identifier in every round, so its coin is fresh even if rounds share a mechanism.

    Examples:
        >>> import sstq
        >>> client_identifier(sstq.FrameUnit(10, 1.0, bits=3), client=5, number=2)
        8589934597
    """
    if mechanism.coin == "private":
        return None
    if client is None:
        raise ValueError("client must be given: with a public coin both sides need the client's identifier")
    number = check_number("round_number", number, 0, 2**32 - 1, integer=True)
    client = check_number("client", client, 0, 2**64 - 1, integer=True)
    # Adding modulo 2^64 is one-to-one: two clients never share an identifier in a round.
    return (2**32 * number + client) % 2**64


def mean_of_round(aggregator: Aggregator[Any]) -> Estimate:
    """Compute the mean of one round of many, over which the bias of its frame averages out."""
    return aggregator.mean()
