"""From the ball onto the sphere."""

import math

import numpy as np

from sstq.array_types import Floats, Floats32, Words
from sstq.randomness.secret import unit_interval


def random_directions(unit: Floats32, words: Words) -> Floats:
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


def mean_chi(dim: int) -> float:
    """E‖g‖ of a standard normal vector g in R^d, √2·Γ((d+1)/2)/Γ(d/2)."""
    from scipy.special import poch

    return math.sqrt(2) * float(poch(dim / 2, 0.5))
