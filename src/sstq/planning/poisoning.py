"""Poisoning: how far malicious clients can move a mean, for each mechanism.

Nobody can tell a lie from noise. If a fraction α of the messages is malicious, with mean m̄, the mean of all moves by
α·‖m̄ − x̄‖ away from x̄, that of the honest clients. There are two kinds of attackers:

* Those who may send any valid message: ‖m̄‖ ≤ R, the largest estimate of a single message. In expectation over the
  honest messages and public coins the shift is at most α·(R + H), where H = max ‖E[x̂]‖, clip if unbiased.
* Those who follow the protocol with data of their choice: they move the expectation by at most 2α·H, if they choose the
  data without regard to the public coin. (Who knows its assigned coordinate can do as much as √d·B instead of clip.)

R/clip is of the order of the root mean square error of a single message, √d/ε. It must be so, up to constants (A. Cheu,
A. Smith, J. Ullman, *Manipulation attacks in local differential privacy*, IEEE S&P 2021).

In means by strata (`sstq.aggregation.strata`) a few messages decide over the mean of a small stratum, and attackers who
may choose their strata gather in some of them. Let A = α·n messages be malicious, x = A/N a stratum, and H honest ones
in a stratum, binomial. With a attackers its mean moves by a share f = a/(a + H) of at most D = max|w| + max|E[w]|, and
x̂ by at most √(d/N)·D·√(Σ f²)/P, the sum being over the strata. As a function of a, up to A, f² lies below the concave
function that is linear up to a* = min(H, A) and f² beyond. So for attackers who do not know the honest counts

    E Σ f² ≤ N·(P[H = 0]·min(1, x) + Σ_h P[H = h]·(x/a*·(a*/(a* + h))² if x ≤ a*, else (x/(x + h))²)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sstq.aggregation.strata import uses_strata
from sstq.checks import check_number
from sstq.mechanisms.base import Mechanism
from sstq.mechanisms.sstq import SSTQ

_LEFT_OUT = 1e-12  # the probability of honest counts of a stratum that are too rare to consider


@dataclass(frozen=True)
class PoisoningBound:
    """How far a fraction α of malicious clients can move a mean; norms are Euclidean, in the vectors' unit.

    Attributes:
        message: R, the largest norm of the estimate of a single valid message.
        shift: how far arbitrary messages move the expected mean away from that of the honest
            clients alone. For strata it is a root mean square over the public coin.
        input_shift: the same for attackers who follow the protocol with data of their choice.
        estimator: "mean" or "strata".
    """

    fraction: float
    message: float
    shift: float
    input_shift: float
    estimator: str


def poisoning_bound(mechanism: Mechanism, fraction: float, clients: int | None = None) -> PoisoningBound:
    """Return how far a fraction of malicious clients can move the mean.

    Args:
        mechanism: any mechanism of the registry.
        fraction: α, the malicious share of all messages, 0 to 1.
        clients: n, the total number of clients; required for SSTQ with a public coin, whose aggregator takes means
            by strata of enough clients, otherwise unused.

    Examples:
        >>> import sstq
        >>> bound = poisoning_bound(sstq.SSTQ(dim=1000, epsilon=3.0, bits=2), fraction=0.01)
        >>> bound.input_shift, round(bound.shift, 2)
        (0.02, 0.7)
    """
    fraction = check_number("fraction", fraction, 0, 1)
    if clients is not None:
        clients = check_number("clients", clients, 1, 2**32, integer=True)
    message, honest = mechanism.largest_message(), mechanism.largest_honest_mean()
    plain = PoisoningBound(fraction, message, fraction * (message + honest), 2 * fraction * honest, "mean")
    if not isinstance(mechanism, SSTQ) or mechanism.coin != "public":
        return plain
    if clients is None:
        raise ValueError("clients must be given: whether the mean is taken by strata depends on it")
    if not uses_strata(clients, mechanism.frame.size):
        return plain
    return replace(plain, shift=_stratified_shift(mechanism, fraction, clients), estimator="strata")


def _stratified_shift(mechanism: SSTQ, fraction: float, clients: int) -> float:
    from scipy.stats import binom

    size = mechanism.frame.size
    honest = binom(round((1 - fraction) * clients), 1 / size)
    count = np.arange(1, int(honest.isf(_LEFT_OUT)) + 1)
    attackers = fraction * clients
    each = attackers / size
    # Where they are fewer than the honest ones on average, some strata with as many attackers as honest ones are best.
    gathered = np.maximum(np.minimum(count, attackers), each)
    control = each * gathered / (gathered + count) ** 2 if fraction else np.zeros(len(count))
    # The counts that are left out could not add more than their probability.
    shares = honest.pmf(0) * min(1.0, each) + float(honest.pmf(count) @ control) + _LEFT_OUT * bool(fraction)
    moved = mechanism.bound * (mechanism.largest_value + mechanism.largest_expected_value)
    not_empty = -math.expm1(clients * math.log1p(-1 / size)) if size > 1 else 1.0
    return math.sqrt(mechanism.dim * shares) * moved / not_empty
