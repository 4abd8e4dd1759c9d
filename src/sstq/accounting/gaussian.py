"""Gaussian noise that a trusted server adds once, as a baseline for comparisons."""

import math

from sstq.accounting.bounds import check_delta
from sstq.checks import check_argument


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the least standard deviation of (ε, δ)-private Gaussian noise at sensitivity 1.

    From Balle and Wang: Improving the Gaussian Mechanism for Differential Privacy. ICML 2018, Theorem 8. The number is
    only for comparisons, in floating point: nothing here adds such noise to data.

    Examples:
        >>> round(1 / gaussian_sigma(1.0, 1e-6), 4)
        0.2367
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    epsilon, delta = check_argument("epsilon", epsilon, of="round_epsilon"), check_delta(delta, positive=True)

    def excess(log_sigma: float) -> float:
        sigma = math.exp(log_sigma)
        first = float(log_ndtr(0.5 / sigma - epsilon * sigma))
        second = epsilon + float(log_ndtr(-0.5 / sigma - epsilon * sigma))
        return math.exp(first) - math.exp(second) - delta

    return math.exp(brentq(excess, math.log(1e-3), math.log(1e6), xtol=1e-12))
