"""Directions of equal spread: principal directions of public examples, fixed cosines, or the features themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sstq.checks import check_number
from sstq.learning.features import FeatureMap, Floats, unit_rows

__all__ = ["Basis", "fixed_basis", "public_basis"]

# How fast the energy of classes falls along directions: principal directions, fixed cosines, any others.
_PRINCIPAL_DECAY, _COSINE_DECAY, _PLAIN_DECAY = 1.0, 0.35, 0.0
# Features spread less at high frequencies, about as (1 + frequency)^−0.9.
_COSINE_SPREAD = 0.9
# This many public examples per direction suffice to estimate its spread.
_EXAMPLES_PER_DIRECTION = 5
_LEAST_PUBLIC = 10
_LEAST_SPREAD = 1e-6


@dataclass(frozen=True)
class Basis:
    """Directions with everything public about them.

    Attributes:
        rows: the directions divided by their spread, (p, D).
        decay: how the energy of classes falls along them (see `sstq.learning.weights`).
        centre: the centre of the unit features, (D,).
        public: the public examples along the directions, (n, p); None if there are none.
    """

    rows: Floats
    decay: float
    centre: Floats
    public: Floats | None = None

    def weights(self, shares: Floats) -> Floats:
        """The factors between these directions and unit features with these shares, by least squares."""
        if self.public is None:
            return np.sqrt(shares)
        weighted = self.public[:, : len(shares)] * np.sqrt(shares)
        scale = float(np.sum(unit_rows(weighted) * weighted) / np.sum(weighted * weighted))
        return scale * np.sqrt(shares)

    def unit_examples(self, shares: Floats) -> Floats | None:
        """The unit features of the public examples for these shares, (n, p)."""
        return None if self.public is None else unit_rows(self.public[:, : len(shares)] * np.sqrt(shares))


def public_basis(mapped: Floats, most: int | None) -> Basis:
    """The principal directions of public features, at most a fifth as many as there are examples."""
    most = _checked_most(most)
    enough = len(mapped) // _EXAMPLES_PER_DIRECTION
    if len(mapped) < _LEAST_PUBLIC or (most is not None and most > enough):
        needed = max(_LEAST_PUBLIC, _EXAMPLES_PER_DIRECTION * (most or 1))
        wanted = "a covariance" if most is None else f"{most} directions"
        raise ValueError(
            f"public must have at least {needed} examples for {wanted}, got {len(mapped)}; "
            f"pass more, or max_features={max(1, enough)}"
        )
    examples = unit_rows(mapped)
    centre = examples.mean(axis=0)
    _, lengths, rows = np.linalg.svd(examples - centre, full_matrices=False)
    spread = lengths / math.sqrt(len(examples))
    kept = min(most or enough, int(np.sum(spread > _LEAST_SPREAD)))
    if not kept:
        raise ValueError(f"public must be distinct examples, got {len(mapped)} in one direction")
    rows = rows[:kept] / spread[:kept, None]
    return Basis(rows, _PRINCIPAL_DECAY, centre, (examples - centre) @ rows.T)


def fixed_basis(features: FeatureMap, centre: Floats, most: int | None) -> Basis:
    """Directions that need no examples: the feature map's cosines if it has them, or the features themselves."""
    most = _checked_most(most)
    if not hasattr(features, "cosines"):
        return Basis(np.eye(len(centre))[:most], _PLAIN_DECAY, centre)
    rows, frequency = features.cosines()
    return Basis((rows * (1 + frequency[:, None]) ** _COSINE_SPREAD)[:most], _COSINE_DECAY, centre)


def _checked_most(most: int | None) -> int | None:
    return None if most is None else int(check_number("max_features", most, 1, 2**20, integer=True))
