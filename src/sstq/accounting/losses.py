"""Privacy-loss distributions on a grid, and their composition, with every error on the safe side.

The privacy loss of an outcome with probability p in one world and q in the other is L = log(p/q). With the masses p of
all outcomes, δ(ε) = Σ p·(1 − e^(ε − L))⁺. Losses of independent or adaptively chosen messages add up, so the masses of
their sums are convolutions, and a pair of worlds that is dominated by another for every ε stays so under composition
(Zhu, Dong, Wang: Optimal Accounting of Differential Privacy via Characteristic Function. AISTATS 2022, Theorem 10).

For ε ≥ 0, δ(ε) of a sum of losses grows with every mass and with every loss. So it is enough that no mass and no loss
is below its true value. What may err, and where it is paid for:

* **The grid.** An outcome (p, q) with a loss between two points of the grid becomes two, with losses at these points
  and with p and q in all. Whoever sees which of the two it is knows more, so δ cannot shrink for any ε, nor after
  composition. The variance of a loss grows by at most a quarter of the squared step.
* **Rounding.** Masses are given with a relative error below `_MASS_SPARE` and enlarged by it; losses are raised by
  `_LOSS_SPARE`, relatively and absolutely, which exceeds the rounding of the few operations that make them.
* **The far end.** Mass that is left out counts as an infinite loss: it is added to δ, once for every message.
* **The Fourier transform.** It errs by at most c·log₂N·u in the Euclidean norm, relatively, u = 2⁻⁵³ and c about 7 for
  radix 2 (Higham, Accuracy and Stability of Numerical Algorithms, Theorem 24.2); 32 is used here. A transform of masses
  that sum to 1 is at most 1 everywhere, so its m-th power errs by m times that, and the product by the same again.
  Masses are first tilted to p·e^(θL)/M(θ), M(θ) = Σ p·e^(θL), so that sums near the ε in question are likely; the error
  becomes small relative to δ itself. By Cauchy's inequality it adds at most ‖error‖·‖weights‖ to δ, weights being
  M(θ)^m·e^(−θL)·(1 − e^(ε − L))⁺.
* **The window.** The transform is cyclic: sums beyond its window come in again at the other end, which only adds mass.
  Those above it are also added to δ as a whole, by Chernoff's bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sstq.accounting.bounds import furthest

Floats = NDArray[np.float64]

_MASS_SPARE = 1e-7
_LOSS_SPARE = 1e-14
_FOURIER_ERROR = 32 * 2.0**-53
# Tilted sums outside of the window have less than this probability.
_OUTSIDE = 1e-9
_SIZE_MAX = 1 << 20
_TILTS: Floats = np.geomspace(1e-2, 1e3, 101)


@dataclass(frozen=True)
class Losses:
    """A symmetric privacy-loss distribution: with mass p at a loss L, the mass at −L is p·e^−L; the rest is at 0.

    Attributes:
        step: the step of the grid.
        masses: the masses at the losses step, 2·step, 3·step, …; none is below its true value.
        infinite: the mass of infinite losses.
    """

    step: float
    masses: Floats
    infinite: float

    @classmethod
    def on_grid(cls, losses: Floats, masses: Floats, infinite: float, step: float) -> "Losses":
        """Outcomes with positive losses, and masses of a relative error below 1e-7, split between points of a grid."""
        raised = losses * (1 + _LOSS_SPARE) + _LOSS_SPARE
        below = np.floor(raised / step)
        upper = masses * (np.expm1(below * step - raised) / math.expm1(-step))
        index = below.astype(np.int64)
        # Index 0 is no loss at all: what is left there is not needed.
        length = int(index.max(initial=0)) + 2
        on_grid = np.bincount(index, weights=masses - upper, minlength=length)
        on_grid[1:] += np.bincount(index, weights=upper, minlength=length)[:-1]
        return cls(step, np.maximum(on_grid[1:], 0.0) * (1 + _MASS_SPARE), infinite * (1 + _MASS_SPARE))

    def coarser(self, factor: int) -> "Losses":
        """Return the same distribution on a grid of wider steps."""
        losses = self.step * np.arange(1, len(self.masses) + 1, dtype=np.float64)
        return Losses.on_grid(losses, self.masses, self.infinite, factor * self.step)

    def both_sides(self) -> tuple[int, Floats]:
        """The index of the least loss, and the masses from there on, including negative losses and zero."""
        mirrored = self.masses * np.exp(-self.step * np.arange(1, len(self.masses) + 1))
        nothing = max(0.0, 1 - float(np.sum(self.masses) + np.sum(mirrored)) - self.infinite)
        # All masses are enlarged, so the remainder may be too small by as much.
        return -len(self.masses), np.concatenate([mirrored[::-1], [nothing + 2 * _MASS_SPARE], self.masses])


class Sum:
    """The sum of independent losses: an upper bound of δ(ε), tight near the given δ.

    Args:
        parts: loss distributions on one grid, and how often each occurs.
        delta: the δ near which the bound is tight; it holds everywhere.
    """

    def __init__(self, parts: Sequence[tuple[Losses, int]], delta: float) -> None:
        step = parts[0][0].step
        if any(part.step != step for part, _ in parts):
            raise ValueError("parts must be on one grid")
        self._lost = math.fsum(count * part.infinite for part, count in parts)
        if [count for _, count in parts] == [1]:
            self._masses = parts[0][0].masses
            self._errors = np.zeros(len(self._masses))
            self._losses = step * np.arange(1, len(self._masses) + 1)
        else:
            self._compose(parts, step, delta)

    def _compose(self, parts: Sequence[tuple[Losses, int]], step: float, delta: float) -> None:
        sides = [(*part.both_sides(), count) for part, count in parts]

        def log_moments(tilts: Floats) -> Floats:
            return sum(
                (count * _log_moments(first, masses, step, tilts) for first, masses, count in sides), np.zeros(1)
            )

        spread = math.sqrt(sum(count * _variance(first, masses, step) for first, masses, count in sides))
        tilts = _TILTS / spread
        # The ε of 10⁴·δ by Chernoff's bound; the least tilt that about minimizes it suffices, whatever the far end is.
        reached = (log_moments(tilts) - math.log(min(1e4 * delta, 0.5))) / tilts
        tilt = tilts[np.argmax(reached <= 1.02 * np.min(reached))]
        (log_moment,) = log_moments(np.array([tilt]))
        # Chernoff's bounds on the tilted sum.
        top = np.min((log_moments(tilt + tilts) - log_moment - math.log(_OUTSIDE)) / tilts)
        # All positive losses are in the window, so that those above it are all that δ(ε) may miss.
        bottom = min(0.0, np.max((log_moment - log_moments(tilt - tilts) + math.log(_OUTSIDE)) / tilts))
        size = 1 << math.ceil(math.log2((top - bottom) / step + 2))
        if size > _SIZE_MAX:
            factor = size // _SIZE_MAX
            self._compose([(part.coarser(factor), count) for part, count in parts], factor * step, delta)
            return
        spectrum, length = np.ones(size // 2 + 1, dtype=np.complex128), 0.0
        for first, masses, count in sides:
            indices = first + np.arange(len(masses))
            (exponents,) = _exponents(first, masses, step, np.array([tilt]))
            shares = np.exp(exponents - _log_moments(first, masses, step, np.array([tilt])))
            tilted = np.bincount(indices % size, weights=shares, minlength=size).astype(np.float64, copy=False)
            spectrum *= _power(np.fft.rfft(tilted), count)
            length += count * _norm(tilted)
        indices = math.floor(bottom / step) + np.arange(size)
        indices = indices[indices > 0]
        self._losses = step * indices
        tilted_sums = np.maximum(np.fft.irfft(spectrum, size)[indices % size], 0.0)
        # Far below the ε in question the weights may overflow; a δ that is not a number is no less than 1.
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.exp(log_moment - tilt * self._losses)
            self._masses = tilted_sums * weights
        self._errors = weights * (2 * _FOURIER_ERROR * math.log2(size) * length)
        self._lost += float(weights[-1]) * _OUTSIDE

    def delta(self, epsilon: float) -> float:
        """An upper bound of δ(ε), ε ≥ 0."""
        first = int(np.searchsorted(self._losses, epsilon, side="right"))
        shares = -np.expm1(epsilon - self._losses[first:])
        with np.errstate(over="ignore", invalid="ignore"):
            error = _norm(self._errors[first:] * shares)
            bound = float(np.sum(shares * self._masses[first:])) + error + self._lost
        return bound * (1 + _MASS_SPARE) if bound < 1 else 1.0

    def epsilon(self, delta: float, most: float) -> float:
        """The least ε found with δ(ε) ≤ δ; `most` if there is none below."""
        return furthest(lambda epsilon: epsilon >= most or self.delta(epsilon) <= delta, most, 0.0)


def _exponents(first: int, masses: Floats, step: float, tilts: Floats) -> Floats:
    """The logarithm of p·e^(θL), one row per θ."""
    with np.errstate(divide="ignore"):
        exponents: Floats = np.multiply.outer(tilts, step * (first + np.arange(len(masses)))) + np.log(masses)
    return exponents


def _log_moments(first: int, masses: Floats, step: float, tilts: Floats) -> Floats:
    """The logarithm of M(θ) for each θ."""
    exponents = _exponents(first, masses, step, tilts)
    largest = np.max(exponents, axis=1)
    result: Floats = largest + np.log(np.sum(np.exp(exponents - largest[:, None]), axis=1))
    return result


def _variance(first: int, masses: Floats, step: float) -> float:
    losses = step * (first + np.arange(len(masses)))
    shares = masses / np.sum(masses)
    return float(np.sum(shares * (losses - np.sum(shares * losses)) ** 2))


def _norm(values: Floats) -> float:
    return math.sqrt(np.sum(values**2))


def _power(base: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """A power by squaring: the relative error is at most that of `exponent` products."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base, exponent = base * base, exponent >> 1
    return result
