"""Poisoning: how far malicious clients can move a mean, for each mechanism.

Nobody can tell a lie from noise. If a fraction α of the messages is malicious, with mean m̄, the mean of all moves by
α·‖m̄ − x̄‖ away from x̄, that of the honest clients. There are two kinds of attackers:

* Those who may send any valid message: ‖m̄‖ ≤ R, the largest estimate of a single message. In expectation over the
  honest messages the shift is at most α·(R + H), where H = max ‖E[x̂]‖, clip if unbiased.
* Those who follow the protocol with data of their choice: they move the expectation by at most 2α·H.

R/clip is of the order of the root mean square error of a single message, √d/ε. It must be so, up to constants (A. Cheu,
A. Smith, J. Ullman, *Manipulation attacks in local differential privacy*, IEEE S&P 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

from sstq.checks import check_number
from sstq.mechanisms.base import Mechanism


@dataclass(frozen=True)
class PoisoningBound:
    """How far a fraction α of malicious clients can move a mean; norms are Euclidean, in the vectors' unit.

    Attributes:
        message: R, the largest norm of the estimate of a single valid message.
        shift: how far arbitrary messages move the expected mean away from that of the honest
            clients alone.
        input_shift: the same for attackers who follow the protocol with data of their choice.
    """

    fraction: float
    message: float
    shift: float
    input_shift: float


def poisoning_bound(mechanism: Mechanism, fraction: float) -> PoisoningBound:
    """Return how far a fraction of malicious clients can move the mean.

    Args:
        mechanism: any mechanism of the registry.
        fraction: α, the malicious share of all messages, 0 to 1.

    Examples:
        >>> import sstq
        >>> bound = poisoning_bound(sstq.SSTQ(dim=1000, epsilon=3.0, bits=2), fraction=0.01)
        >>> bound.input_shift, round(bound.shift, 2)
        (0.02, 0.7)
    """
    fraction = check_number("fraction", fraction, 0, 1)
    message = mechanism.largest_message()
    honest = mechanism.largest_honest_mean()
    return PoisoningBound(
        fraction, message, fraction * (message + honest), 2 * fraction * honest
    )
