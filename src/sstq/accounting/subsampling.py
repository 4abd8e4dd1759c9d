"""Amplification by secret participation."""

from __future__ import annotations

import math

from sstq.accounting.limits import check_round_epsilon
from sstq.checks import check_number

__all__ = ["subsampled_epsilon"]


def subsampled_epsilon(epsilon: float, probability: float) -> float:
    """Return ε′ = log(1 + q(e^ε − 1)) of a client that takes part with the secret probability q.

    It holds when nobody who sees the messages can tell whether the client took part: each client tosses a coin of its
    own that it tells nobody, and a client that stays out sends a message all the same, the encoding of a public vector
    such as zero. Then Pr[m | x] = (1 − q)·Pr[M(0) = m] + q·Pr[M(x) = m], which gives the ε′ above for each message,
    with no trust in anybody. The price: the mean of the messages estimates q times the mean of the vectors.

    Warning:
        A server that sees who answered knows the coin. Then a client that answered has spent all of ε, and there is no
        amplification: do not use this function for clients that the server selects or that simply stay silent.

    Args:
        epsilon: ε of the mechanism.
        probability: q, the same for every vector, in [0, 1].

    Examples:
        >>> subsampled_epsilon(1.0, 0.1)
        0.158...
        >>> subsampled_epsilon(1.0, 1.0)
        1.0
    """
    epsilon = check_round_epsilon(epsilon)
    probability = float(check_number("probability", probability, 0, 1))
    # Some units in the last place up, for the rounding of log1p and expm1.
    return min(epsilon, math.log1p(probability * math.expm1(epsilon)) * (1 + 1e-15))
