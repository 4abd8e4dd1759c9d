"""Directions of equal spread, and how much of the unit length of a message each of them gets.

Directions are the principal ones of public examples, fixed cosines, or the features themselves.

In units of a direction's own spread, classes differ by the energy F_j (the mean square of class means, between-class
over total variance) and a message of n people leaves the noise σ²/t_j, if the direction gets the share t_j of the
squared length. What is lost is F_j·σ²/(F_j·t_j + σ²), summed over directions. It is least at t_j = max(0, w − σ²/F_j)
with w such that the shares sum to 1: reverse water-filling. Directions with little energy get nothing: their number
follows, and it grows with ε and with people.

The energies are A/j^decay for the j-th direction. The shape is public knowledge about the kind of directions; the
level A is learned from class sums of a pilot cohort, against their known noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sstq.array_types import Floats
from sstq.learning.features import FeatureMap, unit_rows

# How fast the energy of classes falls along directions: principal directions, fixed cosines, any others.
_PRINCIPAL_DECAY = 1.0
_COSINE_DECAY = 0.35
_PLAIN_DECAY = 0.0
# Features spread less at high frequencies, about as (1 + frequency)^−0.9.
_COSINE_SPREAD = 0.9
# This many public examples per direction suffice to estimate its spread.
_EXAMPLES_PER_DIRECTION = 5
_LEAST_PUBLIC = 10
_LEAST_SPREAD = 1e-6
# Levels from 1/50 to 7: below, nothing could be learned; above, noise hardly matters.
_LEVELS = np.geomspace(0.02, 7.4, 238)
# A level of 1 is expected, within a factor of about e^±0.3.
_LOG_SPREAD = 0.3


@dataclass(frozen=True)
class Weighted:
    """The first directions, each with its share of the unit length.

    Attributes:
        rows: the directions times the roots of their shares, (p, D).
        weights: the factors between directions and unit features, (p,), by least squares.
        examples: the unit features of the public examples, (n, p); None if there are none.
    """

    rows: Floats
    weights: Floats
    examples: Floats | None


@dataclass(frozen=True)
class Basis:
    """Directions with everything public about them.

    Attributes:
        rows: the directions divided by their spread, (p, D).
        decay: how the energy of classes falls along them (see above).
        centre: the centre of the unit features, (D,).
        public: the public examples along the directions, (n, p); None if there are none.
    """

    rows: Floats
    decay: float
    centre: Floats
    public: Floats | None = None

    def worth(self, noise: float, level: float) -> Floats:
        """The directions worth their noise, for a level of energy, times the roots of their shares of the length."""
        shares = length_shares(energy_profile(len(self.rows), self.decay, level), noise)
        return self.rows[: len(shares)] * np.sqrt(shares)[:, None]

    def sent(self, rows: Floats) -> Weighted:
        """What belongs to the directions that a question has."""
        count = len(rows)
        unweighted = self.rows[:count]
        squares = np.sum(unweighted * unweighted, axis=1)
        roots = np.sum(rows * unweighted, axis=1) / squares
        if self.public is None:
            return Weighted(rows, roots, None)
        along = self.public[:, :count] * roots
        examples = unit_rows(along)
        return Weighted(
            rows,
            float(np.sum(examples * along) / np.sum(along * along)) * roots,
            examples,
        )


def public_basis(mapped: Floats) -> Basis:
    """The principal directions of public features, at most a fifth as many as there are examples."""
    if len(mapped) < _LEAST_PUBLIC:
        raise ValueError(
            f"public must have at least {_LEAST_PUBLIC} examples, got {len(mapped)}: pass more or none"
        )
    examples = unit_rows(mapped)
    centre = examples.mean(axis=0)
    _, lengths, rows = np.linalg.svd(examples - centre, full_matrices=False)
    spread = lengths / math.sqrt(len(examples))
    kept = min(
        len(mapped) // _EXAMPLES_PER_DIRECTION, int(np.sum(spread > _LEAST_SPREAD))
    )
    if not kept:
        raise ValueError(
            f"public must be distinct examples, got {len(mapped)} in one direction"
        )
    rows = rows[:kept] / spread[:kept, None]
    return Basis(rows, _PRINCIPAL_DECAY, centre, (examples - centre) @ rows.T)


def fixed_basis(features: FeatureMap, centre: Floats) -> Basis:
    """Directions that need no examples: the feature map's cosines if it has them, or the features themselves."""
    if not hasattr(features, "cosines"):
        return Basis(np.eye(len(centre)), _PLAIN_DECAY, centre)
    rows, frequency = features.cosines()
    return Basis(
        rows * (1 + frequency[:, None]) ** _COSINE_SPREAD, _COSINE_DECAY, centre
    )


def energy_profile(count: int, decay: float, level: float = 1.0) -> Floats:
    """A/j^decay for j = 1, …, count."""
    return level * np.arange(1, count + 1, dtype=np.float64) ** -decay


def length_shares(energies: Floats, noise: float) -> Floats:
    """The shares t_j of least loss, (p,), which sum to 1; p ends before the first direction that gets nothing."""
    needs = np.sort(noise / energies)
    # With the first p directions the level is w = (1 + Σ needs)/p; the largest p whose last need is below it.
    levels = (1 + np.cumsum(needs)) / np.arange(1, len(needs) + 1)
    count = int(np.flatnonzero(needs < levels)[-1]) + 1
    shares: Floats = levels[count - 1] - needs[:count]
    return shares


def energy_level(energies: Floats, noises: Floats, groups: int, decay: float) -> float:
    """The most likely level A, from the observed mean square of class means per direction and its noise.

    An observed energy is about (A/j^decay + noise_j)·χ²/groups with `groups` degrees of freedom. Log A is taken as
    normal around 0 beforehand, which decides if the noise is too large.
    """
    expected = (
        energy_profile(len(energies), decay)[None] * _LEVELS[:, None] + noises[None]
    )
    cost = groups / 2 * np.sum(np.log(expected) + energies[None] / expected, axis=1)
    cost += (np.log(_LEVELS) / _LOG_SPREAD) ** 2 / 2
    return float(_LEVELS[np.argmin(cost)])
