"""Tuning SSTQ: its level and redundancy for a channel, and the bits, channels and strata that the planner considers.

The error of an unbiased channel at level β = K/√ρ is MSE/d = β²·E[w²] − 1/d, w being the decoded coordinate in units of
the bound, under the density of typical coordinates at that level. At small ε the channel's noise dominates and grows
with β²: the lowest level with exact representations is best. A more redundant frame allows a lower one, down to √(π/2);
doubling N costs one bit of the index and twice the time of encoding. At large ε the coordinates themselves dominate,
and E[t²] falls as the level rises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
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

_HIGHER = (1.8, 2.0, 2.2, 2.5, 3.0, 4.0)  # levels above the least that are tried, until the error rises
# Frames up to this many times the default are tried; of those within the slack of the best, the smallest is taken.
_LARGEST_FACTOR, _SLACK = 4, 0.005

_MOST_CODE_BITS = 10
# The optimal channel of three bits has up to 15 % less error than the best flat one (near ε = 1 in small dimensions). A
# fourth bit is not worth it, and where the flat one is best with four bits there is nothing left to gain.
_OPTIMAL_BITS, _OPTIMAL_GAIN = 3, 0.2
# From two dimensions on SSTQ has at least 1.5 times the squared error of FrameUnit (measured for d up to 10^6).
_LEAST_OVER_FRAMEUNIT = 1.4
_COORDINATES = 1 << 16  # that the moments of typical representations are taken over


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
        bits: b, the bits of the code.
        channel: as in `sstq.SSTQ`.
        codebook: as in `sstq.SSTQ`.
        decoder: as in `sstq.SSTQ`; a biased one is refused.
        message_bits: the maximum bits per message, index included; by default two more than with the default frame.

    Examples:
        >>> tuned = tune(1000, 3.0, 2)
        >>> tuned.mechanism.frame.size, tuned.mechanism.message_bits, round(tuned.mse, 2), round(tuned.gain, 2)
        (16384, 16, 1.83, 0.08)
    """
    options: dict[str, Any] = {"bits": bits, "channel": channel, "codebook": codebook, "decoder": decoder}
    default = SSTQ(dim, epsilon, **options)
    dim, bits = default.dim, default.bits
    if default.decoder.name != "unbiased":
        raise ValueError(f"decoder must be 'unbiased' to be tuned, got {default.decoder.name!r}")
    least = 1 << (dim - 1).bit_length()
    most = default_frame_size(dim) * _LARGEST_FACTOR
    if message_bits is not None:
        floor = (least - 1).bit_length() + bits
        most = min(most, least << check_number("message_bits", message_bits, floor, 64, integer=True) - floor)

    def best_level(size: int) -> tuple[float, SSTQ]:
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

    def flat(clients: int, best: float, thorough: bool) -> Offer | None:
        least = _LEAST_OVER_FRAMEUNIT * frameunit_error(terms.dim, epsilon)
        may_win = thorough or terms.dim == 1 or best * clients > least
        return fewest_bits(_flat_channels(terms, epsilon, most), terms.slack).shared(clients) if may_win else None

    def optimal(clients: int, best: float, thorough: bool) -> Offer | None:
        found = flat(clients, best, thorough)
        if found is None or most == 1 or found.arguments["bits"] > _OPTIMAL_BITS:
            return None
        if (1 - _OPTIMAL_GAIN) * found.variance >= best:
            return None
        other = _optimal_channel(terms, epsilon, most).shared(clients)
        return other if other.variance * (1 + terms.slack) <= found.variance else None

    return [] if most < 1 else [flat, optimal]


# Tuning and solving take about a second each, and a search for clients repeats the same calls.
@lru_cache(maxsize=2)
def _flat_channels(terms: Terms, epsilon: float, most_bits: int) -> list[Offer]:
    """The flat channel for one client with each number of bits of the code, until more of them are worse."""
    found: list[Offer] = []
    for bits in range(1, most_bits + 1):
        tuned = tune(terms.dim, epsilon, bits, message_bits=min(terms.room, 64))
        size, recipe = tuned.mechanism.frame.size, tuned.mechanism.kashin
        options = {"bits": bits, "frame_size": size, "level": recipe.level, "steps": recipe.steps}
        label, variance = f"SSTQ, flat channel, b = {bits}", max(tuned.mse * terms.dim, 0.0)
        found.append(Offer(label, tuned.mechanism, options, 0.0, variance))
        if bits > _OPTIMAL_BITS and found[-1].variance > found[-2].variance:
            break
    return found


@lru_cache(maxsize=2)
def _optimal_channel(terms: Terms, epsilon: float, most_bits: int) -> Offer:
    """The optimal channel for one client on the frame of the flat one."""
    options = {**_flat_channels(terms, epsilon, most_bits)[:_OPTIMAL_BITS][-1].arguments, "channel": "optimal"}
    mechanism = SSTQ(terms.dim, epsilon, **options)
    variance = terms.dim * predicted_error(mechanism)
    return Offer(f"SSTQ, optimal channel, b = {mechanism.bits}", mechanism, options, 0.0, variance)


def strata_families(terms: Terms, epsilon: float) -> list[Family]:
    """Assigned indices with the flat channel, averaged by strata: for clients that are known to be alike."""
    if terms.alike is None:
        return []
    most = min(_MOST_CODE_BITS, terms.room)
    candidates = [Strata.of(terms.dim, epsilon, bits, terms.alike) for bits in range(1, most + 1)]
    enough = (1 + terms.slack) * min(candidate.variance for candidate in candidates)
    return [next(candidate for candidate in candidates if candidate.variance <= enough).offer]


@dataclass(frozen=True)
class Strata:
    """SSTQ with a public coin, from eight clients per coordinate on."""

    mechanism: SSTQ
    variance: float  # of one client's message within strata, d²/N·Σ E[w²] less that of the mean coordinates
    alike: float

    @classmethod
    def of(cls, dim: int, epsilon: float, bits: int, alike: float) -> Strata:
        """The moments are averages over pairs of typical clients, each at the given cosine to their own direction."""
        mechanism = SSTQ(dim, epsilon, bits=bits)
        first, second = _pairs(dim, alike, pairs=max(1, _COORDINATES // mechanism.frame.size))
        power = mechanism.expected_mse(first).variance * len(first) + 1
        ours, theirs = (represent(mechanism.frame, mechanism.kashin, rows)[0] for rows in (first, second))
        beta = mechanism.kashin.bound(mechanism.frame)
        # The products of a pair's coordinates estimate the square of the mean coordinate without bias.
        shared = dim * beta**2 * float(np.mean(ours.astype(np.float64) * theirs))
        return cls(SSTQ(dim, epsilon, bits=bits, coin="public"), max(power - shared, 0.0), alike)

    def offer(self, clients: int, *_: object) -> Offer | None:
        """None below eight clients per coordinate, where the plain mean is taken."""
        size = self.mechanism.frame.size
        if not uses_strata(clients, size):
            return None
        # How much the clients themselves differ is no error: see `sstq.aggregation.strata.StratifiedVariance`.
        variance = (self.variance * _inverse_count(clients / size) - (1 - self.alike**2)) / clients
        options = {"bits": self.mechanism.bits, "coin": "public"}
        label = f"SSTQ, public coin, b = {self.mechanism.bits}, by strata"
        return Offer(label, self.mechanism, options, 0.0, variance)


def _pairs(dim: int, alike: float, pairs: int) -> list[NDArray[np.float32]]:
    """Pairs of unit vectors, both with this cosine to a direction of the pair's own."""
    common, *own = np.random.default_rng(0).standard_normal((3, pairs, dim))
    common /= np.linalg.norm(common, axis=1, keepdims=True)
    for rows in own:
        if dim > 1:  # in one dimension nothing is orthogonal
            rows -= np.sum(rows * common, axis=1, keepdims=True) * common
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return [(alike * common + math.sqrt(1 - alike**2) * rows).astype(np.float32) for rows in own]


def _inverse_count(expected: float) -> float:
    """λ·E[1/count; count > 0]/P(count > 0)² of a Poisson number with mean λ."""
    from scipy.special import expi

    if expected > 500:
        return 1 + 1 / expected
    some = -math.expm1(-expected)
    return expected * math.exp(-expected) * (float(expi(expected)) - math.log(expected) - np.euler_gamma) / some**2
