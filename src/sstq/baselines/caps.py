"""The cap of PrivUnit and PrivUnitG: a density of two levels around a secret direction.

Let P be rotation-invariant on R^d (uniform on the sphere, or Gaussian) and u a unit vector. The cap {v: ⟨v, u⟩ ≥ γ} has
the mass A under P. The randomizer draws from P restricted to the cap with probability p and from P restricted to the
rest otherwise, so that its density relative to P is p/A inside and (1 − p)/(1 − A) outside, positive everywhere. It is
ε-LDP when

    p/A · (1 − A)/(1 − p) ≤ e^ε.

With D = E_P[⟨v,u⟩; ⟨v,u⟩ ≥ γ] the expectation of v is m·u, m = D·(p − A)/(A(1 − A)), hence v/m is unbiased. For a given
cap p is as large as privacy allows; then m = D·(e^ε − 1)/(1 + A(e^ε − 1)), and since dD/dA = γ, m is largest
where m = γ.

A and p are integers of 2^62, so that the bound is checked in exact arithmetic and the side is drawn exactly. The place
within the side is a double from an inverse distribution function: that part is private up to floating point only.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NoReturn, Self

import numpy as np

from sstq.extending import (
    TOTAL,
    Floats,
    Floats32,
    Words,
    channel_words,
    check_near,
    check_number,
    draw_around,
    exp_lower,
    log_upper,
    open_interval,
)

# A gain that was computed by another library of special functions may differ in the last digits.
_GAIN_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Cap:
    """The two levels of the density, and how to draw from it.

    `mass` is A, at most one half, and `inside` p, both in units of 2^-62; `gain` is m, with E[v] = m·u.

    On the sphere, d ≥ 2, ⟨v, u⟩² ~ Beta(1/2, (d − 1)/2) and
    D = (1 − γ²)^((d−1)/2)·Γ(d/2)/(√π·Γ((d−1)/2)·(d − 1)); the squared error of v/m is 1/m² − 1 exactly.

    Otherwise P = N(0, I/d), D = φ(g)/√d with g = γ√d, and the squared error of v/m is E‖v‖²/m² − 1. E‖v‖² = 1 + γ·m
    depends on γ too, so that the best threshold is a little below m: (μ − g)(2d + gμ) = μ with μ = m√d.
    """

    dim: int
    mass: int
    inside: int
    gain: float
    on_sphere: bool = True

    def __post_init__(self) -> None:
        check_number("mass", self.mass, 1, TOTAL // 2, integer=True)
        check_number("inside", self.inside, self.mass + 1, TOTAL - 1, integer=True)
        gain = _gain(self.dim, self.mass, self.inside, self.on_sphere)
        check_near("gain", self.gain, gain, _GAIN_TOLERANCE)

    @classmethod
    def optimal(cls, dim: int, epsilon: float, on_sphere: bool = True) -> Self:
        """The cap of least error for this ε."""
        from scipy.optimize import brentq

        def excess(log_mass: float) -> float:
            """The sign of m − γ, or of what replaces it off the sphere: negative for a cap that is too small."""
            mass = math.exp(log_mass)
            odds = math.expm1(epsilon)
            gain = _partial_mean(dim, mass, on_sphere) * odds / (1 + mass * odds)
            threshold = _threshold(dim, mass, on_sphere)
            if on_sphere:
                return gain - threshold
            mu = gain * math.sqrt(dim)
            g = threshold * math.sqrt(dim)
            return (mu - g) * (2 * dim + g * mu) - mu

        best = brentq(excess, -math.log(TOTAL), math.log(0.5), xtol=1e-15, rtol=1e-15)
        return cls.of_mass(
            dim, epsilon, min(round(math.exp(best) * TOTAL), TOTAL // 2), on_sphere
        )

    @classmethod
    def of_mass(
        cls, dim: int, epsilon: float, mass: int, on_sphere: bool = True
    ) -> Self:
        """The cap of a given mass, with all that ε allows inside."""
        odds = exp_lower(epsilon) * mass / (TOTAL - mass)
        inside = math.floor(TOTAL * odds / (1 + odds))
        return cls(dim, mass, inside, _gain(dim, mass, inside, on_sphere), on_sphere)

    def law(self) -> NoReturn:
        """ValueError: outcomes are continuous."""
        raise ValueError("a cap has no integer weights for its outcomes")

    def privacy_loss(self) -> float:
        """The logarithm of the ratio of the two levels of the density, rounded up to a double."""
        return log_upper(
            Fraction(
                self.inside * (TOTAL - self.mass), self.mass * (TOTAL - self.inside)
            )
        )

    @cached_property
    def threshold(self) -> float:
        """γ: the cap is where ⟨v, u⟩ ≥ γ."""
        return _threshold(self.dim, self.mass / TOTAL, self.on_sphere)

    @property
    def power(self) -> float:
        """E‖v‖²: 1 on the sphere, 1 + γ·m off it."""
        return 1.0 if self.on_sphere else 1 + self.threshold * self.gain

    @property
    def power_along(self) -> float:
        """E⟨v, u⟩² on the sphere, 1/d + (1 − 1/d)·γ·m."""
        return (1 + (self.dim - 1) * self.threshold * self.gain) / self.dim

    @property
    def words(self) -> int:
        """How many secret words one draw takes."""
        return 2 + 2 * (self.dim // 2)

    def draw(self, directions: Floats, words: Words) -> Floats32:
        """A vector v for each direction u, (n, d), from the last `words` of each row of secret words."""
        first = words.shape[1] - self.words
        mass = self.mass / TOTAL
        uniforms = open_interval(words[:, first + 1])
        inside = channel_words(words[:, first]) < np.uint64(self.inside)
        upper = np.where(inside, mass * uniforms, mass + (1 - mass) * uniforms)
        # A coordinate is found from the mass beyond it, on the side where that is small and therefore precise.
        positive = upper <= 0.5
        tail = np.minimum(np.where(positive, upper, (1 - mass) * (1 - uniforms)), 0.5)
        along, across = _along_and_across(self.dim, tail, self.on_sphere)
        signed = np.where(positive, along, -along)
        return draw_around(
            directions, signed, across, words, first + 2, to_length=self.on_sphere
        )


def _gain(dim: int, mass: int, inside: int, on_sphere: bool) -> float:
    contrast = Fraction((inside - mass) * TOTAL, mass * (TOTAL - mass))
    return _partial_mean(dim, mass / TOTAL, on_sphere) * float(contrast)


def _threshold(dim: int, mass: float, on_sphere: bool) -> float:
    return float(_along_and_across(dim, np.array([mass]), on_sphere)[0][0])


def _partial_mean(dim: int, mass: float, on_sphere: bool) -> float:
    """D = E_P[⟨v, u⟩; ⟨v, u⟩ ≥ γ] of a cap of that mass, at most 1/2."""
    from scipy.special import betainccinv, betaincinv, poch

    if not on_sphere:
        return math.exp(-dim * _threshold(dim, mass, on_sphere) ** 2 / 2) / math.sqrt(
            2 * math.pi * dim
        )
    half = (dim - 1) / 2
    # cos² and sin² of the angle each from its own inverse: either may be too small to be 1 minus the other.
    squared = betainccinv(0.5, half, 2 * mass)
    log_sine = (
        math.log1p(-squared)
        if squared < 0.5
        else math.log(betaincinv(half, 0.5, 2 * mass))
    )
    return (
        float(poch(half, 0.5))
        * math.exp(half * log_sine)
        / (math.sqrt(math.pi) * 2 * half)
    )


def _along_and_across(dim: int, tail: Floats, on_sphere: bool) -> tuple[Floats, Floats]:
    """The coordinate t ≥ 0 along u that has the given mass, at most 1/2, beyond it, and the length of the others.

    Off the sphere the second number is the scale of the normal numbers across u.
    """
    from scipy.special import betainccinv, betaincinv, ndtri

    if not on_sphere:
        return -ndtri(tail) / math.sqrt(dim), np.full(len(tail), 1 / math.sqrt(dim))
    half = (dim - 1) / 2
    return np.sqrt(betainccinv(0.5, half, 2 * tail)), np.sqrt(
        betaincinv(half, 0.5, 2 * tail)
    )
