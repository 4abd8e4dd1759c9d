"""What changes from round to round, as all parties know it without a word: the frame, and the names of clients."""

from __future__ import annotations

import warnings
from typing import Any

from sstq.aggregation import Aggregator, Estimate
from sstq.schemes import Mechanism
from sstq.schemes.base import check_number
from sstq.schemes.framed import FramedMechanism
from sstq.schemes.frameunit_sums import FrameBiasWarning
from sstq.streams import mix_seed

__all__ = ["client_identifier", "mean_of_round", "round_mechanism"]

_CLIENTS = 1 << 32


def round_mechanism(mechanism: Mechanism, base_seed: int, number: int) -> Mechanism:
    """The mechanism of a round: with a frame of its own, where it has one, so that bias does not pile up.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.mechanism("frameunit", dim=10, epsilon=1.0)
        >>> round_mechanism(mechanism, 7, 1) == mechanism.with_frame_seed(sstq.mix_seed(7, 1))
        True
    """
    if isinstance(mechanism, FramedMechanism):
        return mechanism.with_frame_seed(mix_seed(base_seed, number))
    return mechanism


def client_identifier(mechanism: Mechanism, client: int | None, number: int) -> int | None:
    """The name of a client in a round, different in every round; None where the mechanism's coin is private.

    Examples:
        >>> import sstq
        >>> client_identifier(sstq.mechanism("frameunit", dim=10, epsilon=1.0, bits=3), client=5, number=2)
        8589934597
    """
    if mechanism.coin == "private":
        return None
    if client is None:
        raise ValueError("client is required: with a public coin both sides name the clients, one integer each")
    number = check_number("round_number", number, 0, _CLIENTS - 1, integer=True)
    return int(number * _CLIENTS + check_number("client", client, 0, _CLIENTS - 1, integer=True))


def mean_of_round(aggregator: Aggregator[Any]) -> Estimate:
    """The mean of a round's messages, one round of many: the bias of its frame averages out over them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrameBiasWarning)
        return aggregator.mean()
