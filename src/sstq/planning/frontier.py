"""Error against bits for every local mechanism, and the two lines that no mechanism crosses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sstq.mechanisms import Unbiased, list_mechanisms, mechanism_class
from sstq.planning.comparison import Variant

__all__ = ["Point", "all_families", "families_of", "frontier", "one_bit_error", "optimal_error"]


def families_of(name: str) -> list[Variant]:
    """The points of the mechanism of that name, at several numbers of bits; equal labels are one family."""
    sweeps = mechanism_class(name).sweeps.items()
    return [Variant(label, name, options) for label, points in sweeps for options in points]


def all_families() -> list[Variant]:
    """The points of all mechanisms of the registry."""
    return [point for name in list_mechanisms() for point in families_of(name)]


@dataclass(frozen=True)
class Point:
    """A mechanism at one number of bits.

    Attributes:
        family: its label, shared by the numbers of bits that it was tried at.
        name: in the registry.
        bits: of one message.
        coin: "private" or "public".
        unbiased: when the estimate is, for the frames at hand.
        bias2: of one client's estimate of a typical unit vector.
        variance: of that estimate.
        dim: d.
    """

    family: str
    name: str
    bits: int
    coin: str
    unbiased: Unbiased
    bias2: float
    variance: float
    dim: int

    @property
    def error(self) -> float:
        """The mean squared error over d."""
        return (self.bias2 + self.variance) / self.dim


def frontier(
    dim: int,
    epsilon: float,
    *,
    families: Iterable[Variant] | None = None,
    skipped: Callable[[Variant, str], None] = lambda _variant, _reason: None,
) -> Iterator[Point]:
    """The error of one client's estimate of a typical unit vector, for every mechanism and number of bits.

    Args:
        dim: d.
        epsilon: ε of one message.
        families: which mechanisms; all that are local by default.
        skipped: called with those that do not exist at these parameters, and why.

    Examples:
        >>> points = list(frontier(64, 3.0, families=families_of("frameunit")[:3]))
        >>> [(point.family, point.bits) for point in points]
        [('FrameUnit', 9), ('FrameUnit, public rows', 1), ('FrameUnit, public rows', 2)]
    """
    for candidate in all_families() if families is None else families:
        try:
            built = candidate.build(dim, epsilon, clients=1)
        except ValueError as refusal:
            skipped(candidate, str(refusal))
            continue
        error = built.typical_error()
        bits, coin, unbiased = built.message_bits, built.coin, built.unbiased
        yield Point(candidate.label, built.name, bits, coin, unbiased, error.bias2, error.variance, dim)


def optimal_error(dim: int, epsilon: float) -> float:
    """The least MSE/d of all unbiased ε-LDP randomizers of unit vectors, however long their messages: PrivUnit's.

    Asi, Feldman and Talwar, *Optimal algorithms for mean estimation under local differential privacy*, ICML 2022:
    PrivUnit with the best cap is optimal for every d, and PrivUnitG's error tends to its (0.1 % above at d = 1000).

    Examples:
        >>> round(optimal_error(10_000, 3.0), 4)
        0.7425
    """
    from sstq.mechanisms import mechanism

    return mechanism("privunit", dim=dim, epsilon=epsilon).expected_mse(np.full(dim, dim**-0.5)).total / dim


def one_bit_error(dim: int, epsilon: float) -> float:
    """The least MSE/d of one bit a client: the side of a random hyperplane, randomized.

    RRSC is optimal for its number of bits (Isik et al., *Exact optimality of communication-privacy-utility tradeoffs in
    distributed mean estimation*, NeurIPS 2023), and with one bit it is ±u for a uniform direction u. Its alignment is
    E|u₁|·(e^ε − 1)/(e^ε + 1), E|u₁| being √(2/π)/E[χ_d].

    Examples:
        >>> round(one_bit_error(10_000, 3.0), 3)
        1.917
    """
    from sstq.mechanisms.sphere import mean_chi

    alignment = math.sqrt(2 / math.pi) / mean_chi(dim) * math.tanh(epsilon / 2)
    return (alignment**-2 - 1) / dim
