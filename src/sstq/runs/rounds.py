"""What changes from round to round, as all parties know it without a word: the frame, and the names of clients."""

from __future__ import annotations

import warnings
from typing import Any

from sstq.aggregation import Aggregator, Estimate
from sstq.checks import check_number
from sstq.mechanisms import Mechanism
from sstq.mechanisms.frameunit.bias import FrameBiasWarning
from sstq.randomness.streams import mix_seed

__all__ = ["client_identifier", "mean_of_round", "round_mechanism"]

_ROUNDS, _NAMES = 1 << 32, 1 << 64


def round_mechanism(mechanism: Mechanism, base_seed: int, number: int) -> Mechanism:
    """The mechanism of a round: with a seed of its own for its frame or public coin, so that bias does not pile up.

    PrivUnit, PrivUnitG, vqSGD and Clean have neither, and are the same in every round.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.mechanism("frameunit", dim=10, epsilon=1.0)
        >>> round_mechanism(mechanism, 7, 1) == mechanism.with_seed(sstq.mix_seed(7, 1))
        True
        >>> round_mechanism(sstq.mechanism("turboquant", dim=10), 7, 1).frame.seed == sstq.mix_seed(7, 1)
        True
    """
    return mechanism.with_seed(mix_seed(base_seed, number))


def client_identifier(mechanism: Mechanism, client: int | None, number: int) -> int | None:
    """The name of a client behind a public coin, (2^32·number + client) mod 2^64; None where the coin is private.

    The clients of a round have different names, and a client has a different one in every round, so that a client's
    coin is fresh even where the rounds share a mechanism.

    Args:
        mechanism: of the round.
        client: its number, in [0, 2^64).
        number: of the round, in [0, 2^32).

    Examples:
        >>> import sstq
        >>> client_identifier(sstq.mechanism("frameunit", dim=10, epsilon=1.0, bits=3), client=5, number=2)
        8589934597
    """
    if mechanism.coin == "private":
        return None
    if client is None:
        raise ValueError("client is required: with a public coin both sides name the clients, one integer each")
    number = check_number("round_number", number, 0, _ROUNDS - 1, integer=True)
    # Modulo a power of two, adding is one-to-one: however large the numbers are, two clients do not meet in a round.
    return int((number * (_NAMES // _ROUNDS) + check_number("client", client, 0, _NAMES - 1, integer=True)) % _NAMES)


def mean_of_round(aggregator: Aggregator[Any]) -> Estimate:
    """The mean of a round's messages, one round of many: the bias of its frame averages out over them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrameBiasWarning)
        return aggregator.mean()
