"""SSTQ for the planner: the bits of its code, its channel, its tuned frame, and strata for clients that are alike."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.strata import uses_strata
from sstq.frames.kashin import represent
from sstq.mechanisms.sstq import SSTQ
from sstq.planning.frameunits import all_rows_error
from sstq.planning.offers import Family, Offer, Terms, Unbiased, fewest_bits
from sstq.planning.tuning import tune
from sstq.scalar.channels import decoded_second_moment
from sstq.scalar.densities import Density

__all__ = ["Strata", "private_families", "strata_families"]

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


def private_families(terms: Terms, epsilon: float) -> list[Family]:
    """The flat channel with its best bits, and the optimal one, both on tuned frames; none if the bits are too few."""
    if _most_code_bits(terms) < 1:
        return []
    flat = _Flat(terms, epsilon)
    return [flat, _Optimal(flat)]


def strata_families(terms: Terms, epsilon: float) -> list[Strata]:
    """Assigned indices with the flat channel, averaged by strata: for clients that are known to be alike."""
    if terms.alike is None:
        return []
    most = _MOST_CODE_BITS if terms.bits is None else min(_MOST_CODE_BITS, terms.bits)
    candidates = [Strata.of(terms.dim, epsilon, bits, terms.alike) for bits in range(1, most + 1)]
    enough = (1 + terms.slack) * min(candidate.variance for candidate in candidates)
    return [next(candidate for candidate in candidates if candidate.variance <= enough)]


def _most_code_bits(terms: Terms) -> int:
    """The most bits of a code, 0 if the bits have no room for an index beside it."""
    index_bits = (terms.dim - 1).bit_length()
    return _MOST_CODE_BITS if terms.bits is None else min(_MOST_CODE_BITS, terms.bits - index_bits)


@dataclass(frozen=True)
class _Flat:
    """The flat channel; tuning its frames takes a second or so."""

    terms: Terms
    epsilon: float

    def offer(self, clients: int) -> Offer:
        return self.best.offer(clients)

    def worth_asking(self, mse: float, clients: int, *, thorough: bool) -> bool:
        if thorough or self.terms.dim == 1:
            return True
        return mse * clients > _LEAST_OVER_FRAMEUNIT * all_rows_error(self.terms.dim, self.epsilon)

    @cached_property
    def best(self) -> Unbiased:
        return fewest_bits(self.candidates, self.terms.slack)[0]

    @cached_property
    def candidates(self) -> list[Unbiased]:
        """One for each number of bits of the code, until more of them are worse."""
        found: list[Unbiased] = []
        for bits in range(1, _most_code_bits(self.terms) + 1):
            found.append(self._tuned(bits))
            if bits > _OPTIMAL_BITS and found[-1].variance > found[-2].variance:
                break
        return found

    def _tuned(self, bits: int) -> Unbiased:
        cap = None if self.terms.bits is None else min(self.terms.bits, 64)
        tuned = tune(self.terms.dim, self.epsilon, bits, message_bits=cap)
        return Unbiased(
            label=f"SSTQ, flat channel, b = {bits}",
            name=SSTQ.name,
            arguments={"bits": bits, "frame_size": tuned.frame_size, "level": tuned.level, "steps": tuned.steps},
            epsilon=self.epsilon,
            bits=tuned.message_bits,
            coin="private",
            variance=max(tuned.mse * self.terms.dim, 0.0),
        )


@dataclass(frozen=True)
class _Optimal:
    """The optimal channel on the frame of a flat one. It is solved, in a second or so, only where it may win."""

    flat: _Flat

    def offer(self, clients: int) -> Offer | None:
        candidates = self.flat.candidates[:_OPTIMAL_BITS]
        if self.flat.best.arguments["bits"] > len(candidates) or len(candidates) == 1:
            return None
        solved = self._solved
        gains = solved.variance * (1 + self.flat.terms.slack) <= self.flat.best.variance
        return solved.offer(clients) if gains else None

    def worth_asking(self, mse: float, clients: int, *, thorough: bool) -> bool:
        asked = self.flat.worth_asking(mse, clients, thorough=thorough)
        return asked and (1 - _OPTIMAL_GAIN) * self.flat.best.variance / clients < mse

    @cached_property
    def _solved(self) -> Unbiased:
        flat = self.flat.candidates[:_OPTIMAL_BITS][-1]
        dim, arguments = self.flat.terms.dim, {**flat.arguments, "channel": "optimal"}
        mechanism = SSTQ(dim=dim, epsilon=flat.epsilon, **arguments)
        beta = mechanism.kashin.bound(mechanism.frame)
        typical = Density.kashin(beta, mechanism.frame.redundancy)
        power = decoded_second_moment(mechanism.channel, mechanism.codebook, mechanism.decoder.values, typical)
        label = f"SSTQ, optimal channel, b = {mechanism.bits}"
        return replace(flat, label=label, arguments=arguments, variance=dim * beta**2 * power - 1)


@dataclass(frozen=True)
class Strata:
    """SSTQ with assigned indices from eight clients a coordinate on.

    Attributes:
        epsilon: ε.
        bits: b.
        size: N.
        variance: of one client's message within strata, d²/N·Σ E[w²] less that of the mean coordinates.
        alike: the cosine that it counts on.
    """

    epsilon: float
    bits: int
    size: int
    variance: float
    alike: float

    @classmethod
    def of(cls, dim: int, epsilon: float, bits: int, alike: float) -> Strata:
        """The moments are averages over pairs of typical clients, each at the given cosine to their own direction.

        The products of the two clients' coordinates estimate the square of the mean coordinate without bias.
        """
        mechanism = SSTQ(dim=dim, epsilon=epsilon, bits=bits)
        first, second = _pairs(dim, alike, pairs=max(1, _COORDINATES // mechanism.frame.size))
        power = mechanism.expected_mse(first).variance * len(first) + 1
        ours, theirs = (represent(mechanism.frame, mechanism.kashin, rows)[0] for rows in (first, second))
        beta = mechanism.kashin.bound(mechanism.frame)
        shared = dim * beta**2 * float(np.mean(ours.astype(np.float64) * theirs))
        return cls(epsilon, bits, mechanism.frame.size, max(power - shared, 0.0), alike)

    def offer(self, clients: int) -> Offer | None:
        """None below eight clients a coordinate, where the plain mean is taken."""
        if not uses_strata(clients, self.size):
            return None
        return Offer(
            label=f"SSTQ, public coin, b = {self.bits}, by strata",
            name=SSTQ.name,
            arguments={"bits": self.bits, "coin": "public"},
            epsilon=self.epsilon,
            bits=self.bits,
            coin="public",
            bias2=0.0,
            # How much the clients themselves differ is no error: see `sstq.aggregation.strata.StratifiedVariance`.
            variance=(self.variance * _inverse_count(clients / self.size) - (1 - self.alike**2)) / clients,
        )

    def worth_asking(self, mse: float, clients: int, *, thorough: bool) -> bool:  # noqa: ARG002 (all is known)
        """Always."""
        return True


def _pairs(dim: int, alike: float, pairs: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Pairs of unit vectors, both with this cosine to a direction of the pair's own."""
    rng = np.random.default_rng(0)

    def directions() -> NDArray[Any]:
        rows = rng.standard_normal((pairs, dim))
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))

    common = directions()
    ours, theirs = (alike * common + math.sqrt(1 - alike**2) * _orthogonal(directions(), common) for _ in range(2))
    return ours.astype(np.float32), theirs.astype(np.float32)


def _orthogonal(rows: NDArray[Any], common: NDArray[Any]) -> NDArray[Any]:
    """Unit vectors orthogonal to the common ones; in one dimension there are none, and the rows stay as they are."""
    if rows.shape[1] == 1:
        return rows
    rest = rows - np.sum(rows * common, axis=1, keepdims=True) * common
    return np.asarray(rest / np.linalg.norm(rest, axis=1, keepdims=True))


def _inverse_count(expected: float) -> float:
    """λ·E[1/count; count > 0]/P(count > 0)² of a Poisson number with mean λ.

    Examples:
        >>> round(_inverse_count(8.0), 2), round(_inverse_count(1e4), 4)
        (1.18, 1.0001)
    """
    from scipy.special import expi

    if expected > 500:
        return 1 + 1 / expected
    some = -math.expm1(-expected)
    return expected * math.exp(-expected) * (float(expi(expected)) - math.log(expected) - np.euler_gamma) / some**2
