"""Weights of directions: how much of the unit length of a message each direction gets, from its class energy.

In units of a direction's own spread, classes differ by the energy F_j (the mean square of class means, between-class
over total variance) and a message of n people leaves the noise σ²/t_j, if the direction gets the share t_j of the
squared length. What is lost is F_j·σ²/(F_j·t_j + σ²), summed over directions. It is least at t_j = max(0, w − σ²/F_j)
with w such that the shares sum to 1: reverse water-filling. Directions with little energy get nothing: their number
follows, and it grows with ε and with people.

The energies are A/j^decay for the j-th direction. The shape is public knowledge about the kind of directions; the
level A is learned from class sums of a pilot cohort, against their known noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["energy_level", "energy_profile", "length_shares"]

Floats = NDArray[np.float64]

# Levels from 1/50 to 7: below, nothing could be learned; above, noise hardly matters.
_LEVELS = np.geomspace(0.02, 7.4, 238)
# A level of 1 is expected, within a factor of about e^±0.3.
_LOG_SPREAD = 0.3


def energy_profile(count: int, decay: float, level: float = 1.0) -> Floats:
    """A/j^decay for j = 1, …, count."""
    profile: Floats = level * np.arange(1, count + 1, dtype=np.float64) ** -decay
    return profile


def length_shares(energies: Floats, noise: float) -> Floats:
    """Return the shares t_j of least loss, (p,), which sum to 1; p ends before the first direction that gets nothing.

    Examples:
        >>> length_shares(np.array([1.0, 0.5, 0.01]), noise=0.1)
        array([0.55, 0.45])
    """
    needs = np.sort(noise / energies)
    # With the first p directions the level is w = (1 + Σ needs)/p; the largest p whose last need is below it.
    levels = (1 + np.cumsum(needs)) / np.arange(1, len(needs) + 1)
    count = int(np.flatnonzero(needs < levels)[-1]) + 1
    shares: Floats = levels[count - 1] - needs[:count]
    return shares


def energy_level(energies: Floats, noises: Floats, groups: int, decay: float) -> float:
    """Return the most likely level A, from the observed mean square of class means per direction and its noise.

    An observed energy is about (A/j^decay + noise_j)·χ²/groups with `groups` degrees of freedom. Log A is taken as
    normal around 0 beforehand, which decides if the noise is too large.
    """
    expected = energy_profile(len(energies), decay)[None] * _LEVELS[:, None] + noises[None]
    cost = groups / 2 * np.sum(np.log(expected) + energies[None] / expected, axis=1)
    cost += (np.log(_LEVELS) / _LOG_SPREAD) ** 2 / 2
    return float(_LEVELS[np.argmin(cost)])
