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
* **Rounding.** Masses are given with a relative error below `_MASS_SPARE` and enlarged by it, which also covers the
  1e-12 per message of tilting below; losses are raised by `_LOSS_SPARE`, relatively and absolutely, which exceeds the
  rounding of the few operations that make them.
* **The far end.** Mass that is left out counts as an infinite loss: it is added to δ, once for every message.
* **The Fourier transform** is of radix 2, because its error has a proof: 32·t·u times Σ m·‖masses‖ for length 2^t, u =
  2⁻⁵³ and m losses. Masses are tilted first, so that this is small relative to δ (docs/proofs.md).
* **The window.** The transform is cyclic: sums beyond its window come in again at the other end, which only adds mass.
  Those above it are also added to δ as a whole, by Chernoff's bound.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sstq.accounting.bounds import furthest

Floats = NDArray[np.float64]
Spectrum = NDArray[np.complex128]

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

    def both_sides(self) -> tuple[NDArray[np.int64], Floats, Floats]:
        """The grid's indices that have mass, including negative ones and zero, with their losses and masses."""
        indices = np.flatnonzero(self.masses) + 1
        masses = self.masses[indices - 1]
        mirrored = masses * np.exp(-self.step * indices)
        nothing = max(0.0, 1 - float(np.sum(masses) + np.sum(mirrored)) - self.infinite)
        # All masses are enlarged, so the remainder may be too small by as much.
        all_masses = np.concatenate([mirrored[::-1], [nothing + 2 * _MASS_SPARE], masses])
        both = np.concatenate([-indices[::-1], [0], indices])
        return both, self.step * both.astype(np.float64), all_masses


class Sum:
    """The sum of `count` independent losses: an upper bound of δ(ε) that holds everywhere, tight near the given δ."""

    def __init__(self, losses: Losses, count: int, delta: float) -> None:
        self._lost = count * losses.infinite
        if count == 1:
            self._masses = losses.masses
            self._errors = np.zeros(len(self._masses))
            self._losses = losses.step * np.arange(1, len(self._masses) + 1)
        else:
            self._compose(losses, count, delta)

    def _compose(self, losses: Losses, count: int, delta: float) -> None:
        step = losses.step
        indices, places, masses = losses.both_sides()

        def log_moment_of_sum(tilts: Floats) -> Floats:
            return count * _log_moments(places, masses, tilts)

        tilts = _TILTS / math.sqrt(count * _variance(places, masses))
        # The ε of 10⁴·δ by Chernoff's bound; the least tilt that about minimizes it suffices, whatever the far end is.
        reached = (log_moment_of_sum(tilts) - math.log(min(1e4 * delta, 0.5))) / tilts
        tilt = tilts[np.argmax(reached <= 1.02 * np.min(reached))]
        (moment,) = _log_moments(places, masses, np.array([tilt]))
        log_moment = count * moment
        # Chernoff's bounds on the tilted sum.
        top = np.min((log_moment_of_sum(tilt + tilts) - log_moment - math.log(_OUTSIDE)) / tilts)
        # All positive losses are in the window, so that those above it are all that δ(ε) may miss.
        bottom = min(0.0, np.max((log_moment - log_moment_of_sum(tilt - tilts) + math.log(_OUTSIDE)) / tilts))
        size = 1 << math.ceil(math.log2((top - bottom) / step + 2))
        if size > _SIZE_MAX:
            self._compose(losses.coarser(size // _SIZE_MAX), count, delta)
            return
        tilted: Floats = np.zeros(size)
        np.add.at(tilted, indices % size, np.exp(tilt * places + np.log(masses) - moment))
        spectrum = _power(_transform(tilted), count)
        indices = math.floor(bottom / step) + np.arange(size)
        indices = indices[indices > 0]
        self._losses = step * indices
        # Backwards is forwards with all roots conjugate.
        sums = _transform(np.conj(spectrum)).real / size
        # Far below the ε in question the weights may overflow; a δ that is not a number is no less than 1.
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.exp(log_moment - tilt * self._losses)
            self._masses = np.maximum(sums[indices % size], 0.0) * weights
        self._errors = weights * (_FOURIER_ERROR * math.log2(size) * count * _norm(tilted))
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


def _log_moments(places: Floats, masses: Floats, tilts: Floats) -> Floats:
    """The logarithm of M(θ) for each θ."""
    exponents = np.multiply.outer(tilts, places) + np.log(masses)
    largest = np.max(exponents, axis=1)
    result: Floats = largest + np.log(np.sum(np.exp(exponents - largest[:, None]), axis=1))
    return result


def _variance(places: Floats, masses: Floats) -> float:
    shares = masses / np.sum(masses)
    return float(np.sum(shares * (places - np.sum(shares * places)) ** 2))


def _norm(values: Floats) -> float:
    return math.sqrt(np.sum(values**2))


def _transform(values: Floats | Spectrum) -> Spectrum:
    """The discrete Fourier transform of 2^t values by radix 2, from transforms of length 1 on, in columns."""
    size, result = len(values), values.reshape(1, -1).astype(np.complex128)
    roots = _roots(size)
    while (done := len(result)) < size:
        even, odd = np.split(result, 2, axis=1)
        odd = odd * roots[:: size // (2 * done), None]
        result = np.concatenate([even + odd, even - odd])
    return result[:, 0]


def _roots(size: int) -> Spectrum:
    """The first half of the roots of unity e^(−2πik/N), from the angles of an eighth of the circle."""
    if size < 8:
        return np.array([1.0, -1j])[: size // 2]
    angles = 2 * np.pi * np.arange(size // 8 + 1) / size
    cosines, sines = np.cos(angles), np.sin(angles)
    quarter = np.concatenate([cosines, sines[-2:0:-1]]) - 1j * np.concatenate([sines, cosines[-2:0:-1]])
    return np.concatenate([quarter, -1j * quarter])


def _power(base: Spectrum, exponent: int) -> Spectrum:
    """A power by squaring: the relative error is at most that of `exponent` products."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base, exponent = base * base, exponent >> 1
    return result
