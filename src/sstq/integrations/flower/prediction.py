"""Predictions for a round: the error of its mean, and how many nodes would reduce it."""

from __future__ import annotations

import math

from sstq.mechanisms import FrameUnit, Mechanism
from sstq.mechanisms.base import ExpectedError

__all__ = ["made_for", "outlook", "predicted_error"]


def made_for(mechanism: Mechanism, clients: int) -> int:
    """The number by which a sum is divided: the clients, or with a trusted aggregator those the noise is made for."""
    return int(getattr(mechanism, "clients", clients)) if mechanism.trust == "aggregator" else clients


def predicted_error(mechanism: Mechanism, clients: int) -> ExpectedError:
    """Return the expected squared error of the mean of this many updates, all equal to one vector of norm clip.

    It is the mechanism's `typical_error`; where there is none, both parts are nan. Behind a trusted aggregator a sum is
    divided by the clients that its noise was made for, so fewer of them shrink the mean.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.mechanism("frameunit", dim=25_450, epsilon=3.0, clip=0.08)
        >>> round(math.sqrt(predicted_error(mechanism, clients=100).total), 2)
        1.1
    """
    try:
        error = mechanism.typical_error(clients)
    except ValueError:  # this mechanism has no closed form
        return ExpectedError(math.nan, math.nan)
    share = clients / made_for(mechanism, clients)
    bias = (1 - share) * mechanism.clip + share * math.sqrt(error.bias2)
    return ExpectedError(bias**2, share**2 * error.variance)


def outlook(mechanism: Mechanism, clients: int) -> str:
    """Describe the error of a round of this many nodes, and how many would make it as small as the update.

    Examples:
        >>> import sstq
        >>> print(outlook(sstq.mechanism("frameunit", dim=2_746, epsilon=3.0), clients=3))
        n = 3, d = 2,746: error 26 × clip; about 3,000 nodes needed for an error of 1 × clip
    """
    error = predicted_error(mechanism, clients)
    text = f"n = {clients:,}, d = {mechanism.dim:,}: error"
    if math.isnan(error.total):
        return f"{text} unknown"
    text = f"{text} {_rounded(math.sqrt(error.total) / mechanism.clip)} × clip"
    room = mechanism.clip**2 - error.bias2
    if mechanism.trust != "local" or not error.total > mechanism.clip**2:
        return text
    if room <= 0:
        remedy = f": pass frames={mechanism.frames_for(clients)}" if isinstance(mechanism, FrameUnit) else ""
        bias = _rounded(math.sqrt(error.bias2) / mechanism.clip)
        return f"{text}; its bias alone is {bias} × clip, which more nodes do not reduce{remedy}"
    return f"{text}; about {_rounded(error.variance * clients / room)} nodes needed for an error of 1 × clip"


def _rounded(value: float) -> str:
    """To two digits, for people."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"
