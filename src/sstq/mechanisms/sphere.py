"""From the ball onto the sphere, and public normal vectors."""

import math

import numpy as np
from numpy.typing import NDArray

from sstq.randomness.secret import unit_interval

GAUSSIAN_EXCESS = 13.0
"""By how much the norm of a Gaussian vector or matrix may exceed its typical one.

For any of 2^64 clients (and 2^12 candidates each) it does so by more with probability e^(−13²/2)·2^76 < 1e-13.
"""


def random_directions(unit: NDArray[np.float32], words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Random unit vectors s·x/‖x‖ whose expectation is x: the sign s is −1 with probability (1 − ‖x‖)/2.

    A mechanism that is unbiased on the sphere is then unbiased on the ball, and E‖x̂‖² is that of a unit vector. The
    sign is drawn before the mechanism sees the vector, so privacy does not depend on it. Zero becomes ±e₁, fairly.
    """
    # Squares of single-precision numbers neither overflow nor underflow in double precision.
    directions = unit.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", directions, directions))
    zero = norms == 0
    directions[zero, 0] = 1.0
    # Rounding may leave a clipped row a hair longer than 1: its probability is then below zero, and it is not flipped.
    flipped = unit_interval(words) < (1 - norms) / 2
    directions *= (np.where(flipped, -1.0, 1.0) / np.where(zero, 1.0, norms))[:, None]
    return directions


def gaussians(words: NDArray[np.uint64], offset: float = 0.5) -> NDArray[np.float32]:
    """Two public standard normal numbers per word, in single precision: (…, w) words to (…, 2w) numbers.

    The Box–Muller formula: the high half h of the word gives the radius √(−2·ln((h + offset)/2^32)), the low half l the
    angle 2π·l/2^32; cosine, then sine.
    """
    # The sum may round up to 2^32, and the radius is then a harmless 0; it is never infinite.
    uniform = ((words >> np.uint64(32)).astype(np.float32) + np.float32(offset)) * np.float32(2.0**-32)
    angle = (words & np.uint64(0xFFFFFFFF)).astype(np.float32) * np.float32(2 * math.pi / 2**32)
    radius = np.sqrt(np.float32(-2) * np.log(uniform))
    numbers = np.empty((*words.shape, 2), dtype=np.float32)
    np.multiply(radius, np.cos(angle), out=numbers[..., 0])
    np.multiply(radius, np.sin(angle), out=numbers[..., 1])
    return numbers.reshape(*words.shape[:-1], -1)


def mean_chi(dim: int) -> float:
    """E‖g‖ of a standard normal vector g in R^d, √2·Γ((d+1)/2)/Γ(d/2)."""
    from scipy.special import poch

    return math.sqrt(2) * float(poch(dim / 2, 0.5))
