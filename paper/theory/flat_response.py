"""Section 3 and Appendix B of the paper: SSTQ with flat randomized response.

The second moments are in units of B², B = K·clip/√N being the bound of a coordinate.
"""

from __future__ import annotations

import math
from typing import Unpack

from paper.theory.representations import SettingOptions, check_epsilon, make_setting
from sstq.checks import check_argument, check_number

__all__ = ["flat_mse_bound", "flat_second_moment_bound", "probability_gap"]


def probability_gap(size: int, epsilon: float) -> float:
    """The gap p − q = (e^ε − 1)/(e^ε + M − 1) of randomized response on M tokens (Algorithm 1).

    Examples:
        >>> round(1 / probability_gap(16, 3.0), 2), round(1 / probability_gap(256, 3.0), 1)
        (1.84, 14.4)
    """
    size = check_number("size", size, 2, 2**62, integer=True)
    return 1 / (1 + size / math.expm1(check_epsilon(epsilon)))


def flat_second_moment_bound(epsilon: float, bits: int) -> float:
    """Lemma B.1: E[ỹ² | v] ≤ B²/(p − q)² for every token v and every zero-mean codebook in [−B, B].

    Attained when all codewords are ±B, hence always at b = 1.

    Returns:
        1/(p − q)², the bound in units of B².
    """
    return probability_gap(1 << check_argument("bits", bits), epsilon) ** -2


def flat_mse_bound(
    dim: int, epsilon: float, bits: int, **options: Unpack[SettingOptions]
) -> float:
    """Theorem 3.2: E‖x̂ − x‖² < d²K²/(N(p − q)²)·clip² for every zero-mean codebook and every ‖x‖ ≤ clip.

    The paper has unit vectors and clip = 1; the proof gives the bound minus ‖x‖², whatever the norm. Equal-norm rows
    are not needed: the mean of the squared norms is 1 in any tight frame.

    Examples:
        >>> import numpy as np
        >>> from sstq import SSTQ
        >>> exact = SSTQ(dim=100, epsilon=3.0, bits=4, codebook="uniform").expected_mse(np.full(100, 0.1)).total
        >>> bound = flat_mse_bound(100, 3.0, 4)
        >>> exact < bound < 5 * exact
        True
    """
    return make_setting(dim, **options).scale * flat_second_moment_bound(epsilon, bits)
