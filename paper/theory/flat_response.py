"""Section 3 and Appendix B of the paper: SSTQ with flat randomized response.

The second moments are in units of B², B = K·clip/√N being the bound of a coordinate.
"""

from __future__ import annotations

import math

from paper.theory.setting import check_epsilon, make_setting
from sstq.checks import check_argument, check_number
from sstq.scalar.codebooks import Codebook

__all__ = ["flat_bias", "flat_mse_bound", "flat_second_moment_bound", "probability_gap"]


def probability_gap(size: int, epsilon: float) -> float:
    """The gap p − q = (e^ε − 1)/(e^ε + M − 1) of randomized response on M tokens (Algorithm 1).

    Args:
        size: M ≥ 2.
        epsilon: ε in [1e-6, 32].

    Examples:
        >>> round(1 / probability_gap(16, 3.0), 2), round(1 / probability_gap(256, 3.0), 1)
        (1.84, 14.4)
    """
    size = check_number("size", size, 2, 2**62, integer=True)
    return 1 / (1 + size / math.expm1(check_epsilon(epsilon)))


def flat_bias(codebook: Codebook, epsilon: float) -> float:
    """Theorem 3.1: E[z/(p − q) | v] = v for a zero-mean codebook, so the estimate is unbiased (and ε-LDP).

    Without Σc = 0 the decoded value is off by q·Σc/(p − q) = Σc/(e^ε − 1), whatever the token.

    Warning:
        Unbiasedness also needs an exact representation, (d/N)Uᵀy = x with all |y_j| ≤ B. At the K = 2 of the paper's
        experiments there is none; its recipe followed by the clamp that privacy requires misses 19–31 % of x. The
        certified representation of this library is exact to 1e-5.

    Args:
        codebook: the codewords in units of B.
        epsilon: ε in [1e-6, 32].

    Returns:
        The bias of a decoded coordinate in units of B.

    Examples:
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> flat_bias(uniform_codebook(3), 3.0)
        0.0
        >>> round(flat_bias(Codebook("lopsided", [-1.0, 0.5, 0.75, 1.0]), 3.0), 4)
        0.0655
    """
    return math.fsum(codebook.values) / math.expm1(check_epsilon(epsilon))


def flat_second_moment_bound(epsilon: float, bits: int) -> float:
    """Lemma B.1: E[ỹ² | v] ≤ B²/(p − q)² for every token v and every zero-mean codebook in [−B, B].

    Attained when all codewords are ±B, hence always at b = 1.

    Args:
        epsilon: ε in [1e-6, 32].
        bits: b in [1, 12].

    Returns:
        1/(p − q)², the bound in units of B².

    Examples:
        >>> round(flat_second_moment_bound(3.0, 4), 3)
        3.379
    """
    return probability_gap(1 << check_argument("bits", bits), epsilon) ** -2


def flat_mse_bound(
    dim: int,
    epsilon: float,
    bits: int,
    *,
    level: float | None = None,
    frame_size: int | None = None,
    clip: float = 1.0,
) -> float:
    """Theorem 3.2: E‖x̂ − x‖² < d²K²/(N(p − q)²)·clip² for every zero-mean codebook and every ‖x‖ ≤ clip.

    The paper has unit vectors and clip = 1; the proof gives the bound minus ‖x‖², whatever the norm. Equal-norm rows
    are not needed (see `row_norm_defect`).

    Args:
        dim: d.
        epsilon: ε in [1e-6, 32].
        bits: b in [1, 12], M = 2^b.
        level: K ≥ √(N/d); the default is the library's, at which representations are exact.
        frame_size: N ≥ d; the default is 2^⌈log₂ 2.5d⌉.
        clip: the bound on ‖x‖.

    Examples:
        >>> import numpy as np
        >>> from sstq import SSTQ
        >>> exact = SSTQ(dim=100, epsilon=3.0, bits=4, codebook="uniform").expected_mse(np.full(100, 0.1)).total
        >>> bound = flat_mse_bound(100, 3.0, 4)
        >>> exact < bound < 5 * exact
        True
    """
    return make_setting(dim, level, frame_size, clip).scale * flat_second_moment_bound(epsilon, bits)
