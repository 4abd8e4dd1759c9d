"""Privacy-loss distributions on a grid, and their sums, with every error on the safe side.

The privacy loss of an outcome with probability p in one world and q in the other is L = log(p/q). With the masses p of
all outcomes, δ(ε) = Σ p·(1 − e^(ε − L))⁺. Losses of independent or adaptively chosen messages add up, so the masses of
their sums are convolutions (Zhu, Dong, Wang: Optimal Accounting of Differential Privacy via Characteristic Function.
AISTATS 2022).

Say that one distribution is above another if its δ(ε) is no less at any ε, negative ones included. It stays so if the
same loss is added to both: that only moves ε, mass by mass. Every step that errs makes a distribution that is above:

* **The grid.** An outcome (p, q) with a loss between two points of the grid becomes two, with losses at these points
  and with p and q in all. (1 − e^ε·q/p)⁺ is convex in q/p, so δ cannot shrink. The variance of a loss grows by at most
  a quarter of the squared step.
* **The ends.** Mass at the far upper end counts as an infinite loss, mass at the lower end as the least loss kept.
* **Rounding.** Masses are given with a relative error below `_MASS_SPARE` and enlarged by it; losses are raised by
  `_LOSS_SPARE`, relatively and absolutely, which exceeds the rounding of the few operations that make them. In sums all
  terms are positive, so each has a relative error below its number of terms times 2⁻⁵², and is enlarged by more.
"""

import math
from dataclasses import dataclass

import numpy as np

from sstq.accounting.bounds import check_delta, furthest
from sstq.array_types import Floats
from sstq.checks import check_argument

_MASS_SPARE = 1e-7
_LOSS_SPARE = 1e-14
# Above the relative error of a sum of twice `_POINTS` products, and far above all that may underflow in one.
_SUM_SPARE = 2.0**-38
_UNDERFLOW = 1e-290
# Convolutions of longer distributions are done on a coarser grid.
_POINTS = 1 << 12


@dataclass(frozen=True)
class Losses:
    """A privacy-loss distribution.

    Attributes:
        step: the step of the grid.
        lowest: the loss of the first mass.
        masses: the masses at the losses lowest, lowest + step, …; none is below its true value.
        infinite: the mass of infinite losses.
    """

    step: float
    lowest: float
    masses: Floats
    infinite: float = 0.0

    @classmethod
    def symmetric(
        cls, losses: Floats, masses: Floats, infinite: float, step: float
    ) -> "Losses":
        """Outcomes with positive losses, each with a mirror image: with mass p at L, the mass at −L is p·e^−L.

        The step is a power of two, so that its multiples are exact. Masses have a relative error below 1e-7. The rest
        of the mass is at 0.
        """
        raised = losses * (1 + _LOSS_SPARE) + _LOSS_SPARE
        below = np.floor(raised / step)
        upper = masses * (np.expm1(below * step - raised) / math.expm1(-step))
        index = below.astype(np.int64)
        length = int(index.max(initial=0)) + 2
        on_grid = np.bincount(index, weights=masses - upper, minlength=length)
        on_grid[1:] += np.bincount(index, weights=upper, minlength=length)[:-1]
        # Index 0 is no loss at all, where the mirror image is the same.
        positive = np.maximum(on_grid[1:], 0.0) * (1 + _MASS_SPARE)
        mirrored = positive * np.exp(-step * np.arange(1, length))
        infinite *= 1 + _MASS_SPARE
        nothing = max(0.0, 1 - float(np.sum(positive) + np.sum(mirrored)) - infinite)
        # All masses are enlarged, so the remainder may be too small by as much.
        both = np.concatenate([mirrored[::-1], [nothing + 2 * _MASS_SPARE], positive])
        return cls(step, -step * (length - 1), both, infinite)

    def times(self, count: int, tail: float) -> "Losses":
        """The sum of `count` independent losses, of which about `tail` counts as infinite; for steps of powers of 2."""
        total = self._cut(tail / count)
        power = total
        left = count - 1
        done = 1
        while left:
            if left & done:
                total = total.plus(power, tail)
                left = left - done
            power = power.plus(power, tail * done / count) if left else power
            done = 2 * done
        return total

    def plus(self, other: "Losses", tail: float) -> "Losses":
        """The sum of two independent losses."""
        first = self
        second = other
        while (
            first.step != second.step
            or max(len(first.masses), len(second.masses)) > _POINTS
        ):
            if first.step > second.step:
                first, second = second, first
            first = first._coarser()
        masses = np.convolve(first.masses, second.masses)
        infinite = first.infinite * (float(second.masses.sum()) + second.infinite)
        infinite = (
            infinite + second.infinite * float(first.masses.sum()) + _UNDERFLOW
        ) * (1 + _SUM_SPARE)
        return Losses(
            first.step,
            first.lowest + second.lowest,
            masses * (1 + _SUM_SPARE),
            infinite,
        )._cut(tail)

    def _cut(self, tail: float) -> "Losses":
        """Without its ends, each of at most this mass."""
        low = int(np.searchsorted(np.cumsum(self.masses), tail, side="right"))
        high = int(np.searchsorted(np.cumsum(self.masses[::-1]), tail, side="right"))
        masses = self.masses[low : len(self.masses) - high].copy()
        masses[0] += self.masses[:low].sum() * (1 + _SUM_SPARE)
        infinite = self.infinite + float(
            self.masses[len(self.masses) - high :].sum()
        ) * (1 + _SUM_SPARE)
        return Losses(self.step, self.lowest + low * self.step, masses, infinite)

    def _coarser(self) -> "Losses":
        """The same on a grid of twice the step: what is between two points is split."""
        odd_start = round(self.lowest / self.step) % 2
        masses = np.pad(
            self.masses, (odd_start, 1 - (odd_start + len(self.masses)) % 2)
        ) * (1 + _SUM_SPARE)
        coarse = masses[::2].copy()
        between = masses[1::2]
        coarse[:-1] += between / (1 + math.exp(self.step))
        coarse[1:] += between / (1 + math.exp(-self.step))
        return Losses(
            2 * self.step, self.lowest - odd_start * self.step, coarse, self.infinite
        )

    def delta(self, epsilon: float) -> float:
        """An upper bound of δ(ε)."""
        losses = self.lowest + self.step * np.arange(len(self.masses))
        above = losses > epsilon
        bound = (
            float(np.sum(self.masses[above] * -np.expm1(epsilon - losses[above])))
            + self.infinite
        )
        return min(1.0, bound * (1 + 2 * _SUM_SPARE))

    def epsilon(self, delta: float, most: float) -> float:
        """The least ε found with δ(ε) ≤ δ; `most` if there is none below."""
        return furthest(
            lambda epsilon: epsilon >= most or self.delta(epsilon) <= delta, most, 0.0
        )


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

    epsilon = check_argument("epsilon", epsilon, of="round_epsilon")
    delta = check_delta(delta, positive=True)

    def excess(log_sigma: float) -> float:
        sigma = math.exp(log_sigma)
        first = float(log_ndtr(0.5 / sigma - epsilon * sigma))
        second = epsilon + float(log_ndtr(-0.5 / sigma - epsilon * sigma))
        return math.exp(first) - math.exp(second) - delta

    return math.exp(brentq(excess, math.log(1e-3), math.log(1e6), xtol=1e-12))
