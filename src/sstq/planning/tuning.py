"""SSTQ, tuned: its level and redundancy for a channel, and the code bits, channels and strata that the planner weighs.

The error of an unbiased channel at level β = K/√ρ is MSE/d = β²·E[w²] − 1/d, E[w²] being that of the decoded coordinate
in units of the bound, under the density of typical coordinates at that level. At small ε the channel's noise dominates,
which grows with β²: the lowest level that still has exact representations is best, and a more redundant frame allows a
lower one, down to √(π/2). Each doubling of N costs one bit of the index and twice the time of encoding. At large ε the
coordinates themselves dominate, and E[t²] falls as the level rises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.strata import uses_strata
from sstq.checks import check_number
from sstq.frames.kashin import least_level, represent
from sstq.frames.tight import default_frame_size
from sstq.mechanisms import SSTQ
from sstq.planning.offers import Family, Offer, Terms, fewest_bits, frameunit_error
from sstq.scalar.channels import decoded_second_moment
from sstq.scalar.densities import Density

# Levels above the least that are tried, upward until the error rises.
_HIGHER = (1.8, 2.0, 2.2, 2.5, 3.0, 4.0)
# Frames up to this many times the default are tried; of those within the slack of the best, the smallest is taken.
_LARGEST_FACTOR = 4
_SLACK = 0.005

_MOST_CODE_BITS = 10
# The optimal channel of three bits has up to 15 % less error than the best flat one (near ε = 1 in small dimensions). A
# fourth bit is not worth it, and where the flat one is best with four bits there is nothing left to gain.
_OPTIMAL_BITS = 3
_OPTIMAL_GAIN = 0.2
# From two dimensions on SSTQ has at least 1.5 times the squared error of FrameUnit over frames: measured for d from 2
# to 10^6 and ε from 0.01 to 20, the least at small ε and d ≥ 500.
_LEAST_OVER_FRAMEUNIT = 1.4
# Coordinates that the moments of typical representations are taken over.
_COORDINATES = 1 << 16


@dataclass(frozen=True)
class Tuned:
    """The mechanism with the chosen frame size and level, the default one, and the predicted MSE/d of both."""

    mechanism: SSTQ
    default: SSTQ
    mse: float
    default_mse: float

    @property
    def gain(self) -> float:
        """The share of the default's error that is saved."""
        return 1 - self.mse / self.default_mse


def predicted_error(mechanism: SSTQ) -> float:
    """The MSE/d of one typical unit vector, without a representation; the decoder must be unbiased."""
    beta = mechanism.kashin.bound(mechanism.frame)
    typical = Density.kashin(beta, mechanism.frame.redundancy)
    power = decoded_second_moment(mechanism.channel, mechanism.codebook, mechanism.decoder.values, typical)
    return beta**2 * power - 1 / mechanism.dim


def tune(
    dim: int,
    epsilon: float,
    bits: int = 4,
    *,
    channel: str = "flat",
    codebook: str | None = None,
    decoder: str | None = None,
    message_bits: int | None = None,
) -> Tuned:
    """Choose N and K of an unbiased SSTQ with a Hadamard frame for the least predicted error.

    Args:
        dim: d.
        epsilon: ε.
        bits: b, of the code.
        channel: as in `sstq.SSTQ`.
        codebook: as in `sstq.SSTQ`.
        decoder: as in `sstq.SSTQ`; a biased one is refused.
        message_bits: the most bits of a message, index included; by default two more than with the default frame.

    Examples:
        >>> tuned = tune(1000, 3.0, 2)
        >>> tuned.mechanism.frame.size, tuned.mechanism.message_bits, round(tuned.mse, 2), round(tuned.gain, 2)
        (16384, 16, 1.83, 0.08)
    """
    given: dict[str, Any] = {"bits": bits, "channel": channel, "codebook": codebook, "decoder": decoder}
    options = {name: value for name, value in given.items() if value is not None}
    default = SSTQ(dim, epsilon, **options)
    dim, bits = default.dim, default.bits
    if default.decoder.name != "unbiased":
        raise ValueError(f"decoder must be 'unbiased' to be tuned, got {default.decoder.name!r}: a bias is no variance")
    least = 1 << (dim - 1).bit_length()
    most = default_frame_size(dim) * _LARGEST_FACTOR
    if message_bits is not None:
        floor = (least - 1).bit_length() + bits
        most = min(most, least << check_number("message_bits", message_bits, floor, 64, integer=True) - floor)

    def best_level(size: int) -> tuple[float, SSTQ]:
        """The least error with a frame, and its mechanism."""
        lowest, best = least_level(dim, size), (math.inf, default)
        higher = (beta * math.sqrt(size / dim) for beta in _HIGHER)
        for level in (lowest, *(level for level in higher if level > lowest)):
            mechanism = SSTQ(dim, epsilon, frame_size=size, level=level, **options)
            error = predicted_error(mechanism)
            if error >= best[0]:
                break
            best = error, mechanism
        return best

    found = [best_level(least << doublings) for doublings in range((most // least).bit_length())]
    default_error, lowest = predicted_error(default), min(error for error, _ in found)
    enough = max(lowest, min((1 + _SLACK) * lowest, default_error))
    mse, chosen = next((error, mechanism) for error, mechanism in found if error <= enough)
    return Tuned(chosen, default, mse, default_error)


def private_families(terms: Terms, epsilon: float) -> list[Family]:
    """The flat channel with its best bits, and the optimal one, both on tuned frames; none if the bits are too few."""
    most = min(_MOST_CODE_BITS, terms.room - (terms.dim - 1).bit_length())  # which the index leaves
    tuned = _Tuned(terms, epsilon, most)
    return [] if most < 1 else [tuned.flat_offer, tuned.optimal_offer]


def strata_families(terms: Terms, epsilon: float) -> list[Family]:
    """Assigned indices with the flat channel, averaged by strata: for clients that are known to be alike."""
    if terms.alike is None:
        return []
    most = min(_MOST_CODE_BITS, terms.room)
    candidates = [Strata.of(terms.dim, epsilon, bits, terms.alike) for bits in range(1, most + 1)]
    enough = (1 + terms.slack) * min(candidate.variance for candidate in candidates)
    return [next(candidate for candidate in candidates if candidate.variance <= enough).offer]


@dataclass(frozen=True)
class _Tuned:
    """Flat and optimal channels on tuned frames. Tuning and solving take a second or so each."""

    terms: Terms
    epsilon: float
    most_bits: int

    def flat_offer(self, clients: int, best: float, thorough: bool) -> Offer | None:
        return self._flat.shared(clients) if self._may_win(clients, best, thorough) else None

    def optimal_offer(self, clients: int, best: float, thorough: bool) -> Offer | None:
        if not self._may_win(clients, best, thorough) or (1 - _OPTIMAL_GAIN) * self._flat.variance / clients >= best:
            return None
        tried = self._candidates[:_OPTIMAL_BITS]
        if len(tried) == 1 or self._flat.arguments["bits"] > len(tried):
            return None
        gains = self._optimal.variance * (1 + self.terms.slack) <= self._flat.variance
        return self._optimal.shared(clients) if gains else None

    def _may_win(self, clients: int, best: float, thorough: bool) -> bool:
        if thorough or self.terms.dim == 1:
            return True
        return best * clients > _LEAST_OVER_FRAMEUNIT * frameunit_error(self.terms.dim, self.epsilon)

    @cached_property
    def _flat(self) -> Offer:
        return fewest_bits(self._candidates, self.terms.slack)

    @cached_property
    def _candidates(self) -> list[Offer]:
        """The flat channel for one client with each number of bits of the code, until more of them are worse."""
        dim = self.terms.dim
        found: list[Offer] = []
        for bits in range(1, self.most_bits + 1):
            tuned = tune(dim, self.epsilon, bits, message_bits=min(self.terms.room, 64))
            size, recipe = tuned.mechanism.frame.size, tuned.mechanism.kashin
            options = {"bits": bits, "frame_size": size, "level": recipe.level, "steps": recipe.steps}
            label, variance = f"SSTQ, flat channel, b = {bits}", max(tuned.mse * dim, 0.0)
            found.append(Offer(label, tuned.mechanism, options, 0.0, variance))
            if bits > _OPTIMAL_BITS and found[-1].variance > found[-2].variance:
                break
        return found

    @cached_property
    def _optimal(self) -> Offer:
        """The optimal channel for one client on the frame of the flat one."""
        flat = self._candidates[:_OPTIMAL_BITS][-1]
        options = {**flat.arguments, "channel": "optimal"}
        mechanism = SSTQ(self.terms.dim, self.epsilon, **options)
        variance = self.terms.dim * predicted_error(mechanism)
        return Offer(f"SSTQ, optimal channel, b = {mechanism.bits}", mechanism, options, 0.0, variance)


@dataclass(frozen=True)
class Strata:
    """SSTQ with assigned indices, from eight clients per coordinate on."""

    mechanism: SSTQ
    variance: float  # of one client's message within strata, d²/N·Σ E[w²] less that of the mean coordinates
    alike: float

    @classmethod
    def of(cls, dim: int, epsilon: float, bits: int, alike: float) -> Strata:
        """The moments are averages over pairs of typical clients, each at the given cosine to their own direction.

        The products of the two clients' coordinates estimate the square of the mean coordinate without bias.
        """
        mechanism = SSTQ(dim, epsilon, bits=bits)
        first, second = _pairs(dim, alike, pairs=max(1, _COORDINATES // mechanism.frame.size))
        power = mechanism.expected_mse(first).variance * len(first) + 1
        ours, theirs = (represent(mechanism.frame, mechanism.kashin, rows)[0] for rows in (first, second))
        beta = mechanism.kashin.bound(mechanism.frame)
        shared = dim * beta**2 * float(np.mean(ours.astype(np.float64) * theirs))
        return cls(SSTQ(dim, epsilon, bits=bits, coin="public"), max(power - shared, 0.0), alike)

    def offer(self, clients: int, *_: object) -> Offer | None:
        """None below eight clients per coordinate, where the plain mean is taken."""
        size = self.mechanism.frame.size
        if not uses_strata(clients, size):
            return None
        # How much the clients themselves differ is no error: see `sstq.aggregation.strata.StratifiedVariance`.
        variance = (self.variance * _inverse_count(clients / size) - (1 - self.alike**2)) / clients
        bits = self.mechanism.bits
        options = {"bits": bits, "coin": "public"}
        return Offer(f"SSTQ, public coin, b = {bits}, by strata", self.mechanism, options, 0.0, variance)


def _pairs(dim: int, alike: float, pairs: int) -> list[NDArray[np.float32]]:
    """Pairs of unit vectors, both with this cosine to a direction of the pair's own."""
    common, *own = np.random.default_rng(0).standard_normal((3, pairs, dim))
    common = _unit(common)
    # In one dimension nothing is orthogonal.
    rest = [_unit(rows if dim == 1 else rows - np.sum(rows * common, axis=1, keepdims=True) * common) for rows in own]
    return [(alike * common + math.sqrt(1 - alike**2) * rows).astype(np.float32) for rows in rest]


def _unit(rows: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _inverse_count(expected: float) -> float:
    """λ·E[1/count; count > 0]/P(count > 0)² of a Poisson number with mean λ."""
    from scipy.special import expi

    if expected > 500:
        return 1 + 1 / expected
    some = -math.expm1(-expected)
    return expected * math.exp(-expected) * (float(expi(expected)) - math.log(expected) - np.euler_gamma) / some**2
