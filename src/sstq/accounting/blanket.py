"""Shuffled messages: what of their law all clients share hides one of them.

Let μ be a distribution of messages and E = e^ε₀, and let all clients' messages have densities between γ and γE relative
to μ, whatever their vectors are. Put α = (1 − γ)/(E − 1), and α = 1/(E + 1) if that is less, which holds for every
ε₀-LDP mechanism. Then n shuffled messages are (ε, δ)-private for 0 ≤ ε ≤ ε₀ and

    δ = 1/n·E(Z₁ + … + Z_n)⁺,    Z = E − e^ε         with probability α,
                                     1 − E·e^ε       with probability α,
                                     1 − e^ε         with probability 1 − α(E + 1),
                                     0               otherwise, which is α(E − 1),

Z₁, …, Z_n being independent. A two-level draw of one of M candidates, a share κ of them inside, has α = κ/(κE + 1 − κ).

docs/proofs.md has the proof, and why every step errs on the safe side. Computed is the pair of worlds in which a of n
messages are in the first inside set, b in the second and r elsewhere: with c = a + b, (c, r) comes from independent
draws of probabilities 2α and 1 − α(E + 1) and a ~ Bin(c, 1/2), times (r + E·a + b)/n or (r + a + E·b)/n.

References:
    Balle, Bell, Gascón, Nissim: The Privacy Blanket of the Shuffle Model. CRYPTO 2019.
"""

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from sstq.accounting.bounds import round_down
from sstq.accounting.losses import Losses
from sstq.array_types import Floats, Ints
from sstq.exactness import TOTAL, exp_upper, round_up
from sstq.scalar.laws import EitherLaw, Law

# Relative widths of a group of c and of a cell of r.
_CLONES_WIDTH = 0.002
_REST_WIDTH = 0.02
# Steps of the grid per standard deviation, and its length at most.
_STEPS = 40
_POINTS_MAX = 1 << 16
_WEIGHT_SPARE = 1e-9


@dataclass(frozen=True)
class Blanket:
    """Densities between γ and γ·e^ε₀: the ratio e^ε₀ and the mass α of one inside set in what all clients share.

    Attributes:
        ratio: E = e^ε₀.
        inside: α; at most 1/(E + 1).
    """

    ratio: float
    inside: float

    @classmethod
    def of_law(cls, law: Law | EitherLaw) -> Self:
        """The blanket of all densities that a law allows, from its exact integers, both numbers rounded up."""
        return cls.exact(law.ratio(), 1 - _common(law))

    @classmethod
    def two_level(cls, epsilon: float, share: float) -> Self:
        """The blanket of a two-level draw of ε₀ with a share κ of the candidates inside."""
        ratio = exp_upper(epsilon)
        most = (ratio - 1) * Fraction(share)
        return cls.exact(ratio, most / (1 + most))

    @classmethod
    def exact(cls, ratio: Fraction, apart: Fraction) -> Self:
        """The blanket of densities with this ratio, if clients have all but the mass `apart` in common."""
        grown = round_up(ratio)
        inside = round_down(1 / (Fraction(grown) + 1))
        if ratio > 1:
            inside = min(inside, round_up(apart / (ratio - 1)))
        return cls(grown, inside)

    @property
    def elsewhere(self) -> float:
        """The mass 1 − α(E + 1) of what all clients share outside of both inside sets."""
        return float(
            max(Fraction(0), 1 - Fraction(self.inside) * (Fraction(self.ratio) + 1))
        )

    def losses(self, clients: int, tail: float) -> Losses:
        """The privacy losses of n shuffled messages; about `tail` of their mass is left out and counts as infinite."""
        smallest, largest, groups, lost = _clones(self.inside, clients, tail)
        rest, weights, missed = _rest(clients - largest, self, largest, tail)
        first, second, likely = _counts(smallest, groups, tail)
        infinite = self.inside * (self.ratio + 1) * lost
        infinite += float(
            groups
            @ (
                missed * (self.ratio + 1) / 2
                + tail * (weights * (rest + self.ratio)).sum(axis=1)
            )
        )
        keep = (first > second) & (likely > 0)
        rows = np.nonzero(keep)[0]
        first = first[keep]
        second = second[keep]
        likely = likely[keep]
        losses = np.empty((rest.shape[1], len(rows)))
        masses = np.empty((rest.shape[1], len(rows)))
        for column in range(rest.shape[1]):
            others = rest[rows, column]
            in_first = others + self.ratio * first + second
            np.log(
                in_first / (others + first + self.ratio * second), out=losses[column]
            )
            np.multiply(likely * weights[rows, column], in_first, out=masses[column])
        return Losses.symmetric(
            losses.ravel(), masses.ravel(), infinite, _step(losses, masses)
        )


def _common(law: Law | EitherLaw) -> Fraction:
    """γ: the mass that all distributions of a message have in common."""
    parts = [_common_of_part(part) for part in law.parts]
    if law.shares is None:
        return min(parts)
    # Frames are drawn almost uniformly: their shares are off by less than 2^−31.
    return sum(map(operator.mul, law.shares, parts), Fraction(-1, 2**31))


def _common_of_part(law: Law) -> Fraction:
    if law.kind == "table":
        return Fraction(sum(map(min, zip(*law.weights, strict=True))), TOTAL)
    if law.kind == "two-level":
        return law.size * law.least()
    return law.cells(0) * Fraction(min(law.weights[0]), TOTAL)


def _clones(
    inside: float, clients: int, tail: float
) -> tuple[Ints, Ints, Floats, float]:
    """The number c of clones in groups: the smallest and largest, the masses Σ B(c)·c/n, and what is left out."""
    from scipy.stats import binom

    others = clients - 1
    chance = 2 * inside
    low, high = _central(others, chance, tail)
    starts = [int(low) + 1]
    while starts[-1] <= high + 1:
        starts.append(starts[-1] + max(1, math.floor(starts[-1] * _CLONES_WIDTH)))
    ends = np.minimum(np.array(starts) - 2, others)
    below = binom.cdf(ends, others, chance)
    above = binom.sf(ends, others, chance)
    # Differences of whichever tail is small, so that they keep their digits.
    masses = np.where(ends[1:] < others * chance, np.diff(below), -np.diff(above))
    return ends[:-1] + 2, ends[1:] + 1, chance * masses, float(below[0] + above[-1])


def _counts(clones: Ints, groups: Floats, tail: float) -> tuple[Floats, Floats, Floats]:
    """Both counts divided by c, and their mass, one row per group, starting from equal counts."""
    from scipy.stats import binom

    reach = math.ceil(math.sqrt(-math.log(tail) / 2 * float(clones[-1]))) + 1
    middle = -(-clones // 2)
    first = middle[:, None] + np.arange(min(reach, int(middle[-1]) + 1))
    second = clones[:, None] - first
    steps = np.maximum(second[:, :-1], 0) / (first[:, :-1] + 1)
    equal = groups * binom.pmf(middle, clones, 0.5)
    likely = np.cumprod(np.concatenate([equal[:, None], steps], axis=1), axis=1)
    return first / clones[:, None], second / clones[:, None], likely


def _rest(
    trials: Ints, blanket: Blanket, clones: Ints, tail: float
) -> tuple[Floats, Floats, Floats]:
    """Messages elsewhere per clone, their weights (one row per group of clones), and the mass left out below."""
    from scipy.stats import binom

    # Below the true value by more than the rounding errors, even if that is almost 1.
    chance = min(1.0, blanket.elsewhere / (1 - 2 * blanket.inside)) * (1 - 2.0**-50)
    low, high = _central(trials, chance, tail)
    # The least likelihood of the second world: a cell should be narrow relative to it.
    fewest = np.maximum(clones / 2 - np.sqrt(-math.log(tail) / 2 * clones), 0.0)
    cells = np.ceil(
        np.max(
            (high - low) / (_REST_WIDTH * (low + clones + (blanket.ratio - 1) * fewest))
        )
    )
    width = np.maximum(np.ceil((high - low) / max(1.0, cells)), 1.0)
    nodes = low[:, None] + width[:, None] * np.arange(
        int(np.max(np.ceil((high - low) / width))) + 1
    )
    all_trials = trials[:, None]
    mean = trials[:, None] * chance
    # E(k − r)⁺ is convex in k, and its second differences are the weights that keep the mean of r.
    partial = nodes * binom.cdf(nodes - 1, all_trials, chance)
    partial -= mean * binom.cdf(nodes - 2, np.maximum(all_trials - 1, 0), chance)
    slopes = np.diff(partial, axis=1) / width[:, None]
    weights = np.diff(slopes, axis=1, prepend=0.0, append=1.0)
    spare = np.where(nodes < mean, 0.0, _WEIGHT_SPARE)
    return (
        nodes / clones[:, None],
        np.maximum(weights, 0.0) + spare,
        binom.cdf(low - 1, trials, chance),
    )


def _central(trials: Any, chance: float, tail: float) -> tuple[Any, Any]:
    """The interval outside of which a binomial number has about `tail` of its mass, by Bernstein's inequality."""
    mean = trials * chance
    log = -math.log(tail)
    reach = np.sqrt(2 * log * mean * (1 - chance)) + log
    return np.maximum(np.floor(mean - reach), 0.0), np.minimum(
        np.ceil(mean + reach), trials
    )


def _step(losses: Floats, masses: Floats) -> float:
    """A fraction of the losses' standard deviation, a power of two so that multiples are exact."""
    spread = math.sqrt(2 * float(np.sum(masses * losses**2)))
    return 2.0 ** math.floor(
        math.log2(max(spread / _STEPS, float(losses.max()) / _POINTS_MAX))
    )
