"""Comparing all mechanisms: bits, bias and variance (the paper's Table 1 in numbers), and error against bits."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.mechanisms import Unbiased, list_mechanisms, mechanism, mechanism_class
from sstq.mechanisms.sphere import mean_chi


@dataclass(frozen=True)
class Variant:
    """One line of the comparison: a mechanism of the registry with its options."""

    label: str
    name: str
    options: Mapping[str, Any]


def all_variants(*names: str) -> list[Variant]:
    """Return the variants that the comparison shows of these mechanisms, or of all in the registry.

    Examples:
        >>> [variant.label for variant in all_variants("sqkr")]
        ['SQKR', 'SQKR, public coin', 'SQKR dense']
    """
    classes = ((name, mechanism_class(name)) for name in names or list_mechanisms())
    return [Variant(label, name, options) for name, found in classes for label, options in found.variants.items()]


def all_families(*names: str) -> list[Variant]:
    """Return the points of these or all mechanisms at several numbers of bits; equal labels form one family.

    Examples:
        >>> [point.options["bits"] for point in all_families("frameunit")[1:4]]
        [1, 2, 3]
    """
    sweeps = ((name, *sweep) for name in names or list_mechanisms() for sweep in mechanism_class(name).sweeps.items())
    return [Variant(label, name, options) for name, label, points in sweeps for options in points]


@dataclass(frozen=True)
class Comparison:
    """The cost of one mechanism for unit vectors.

    `exact` says whether the guarantee holds integer by integer; `bias2` and `variance` are those of the clients' mean.
    """

    label: str
    name: str
    bits: int
    coin: str
    trust: str
    exact: bool
    unbiased: Unbiased
    bias2: float
    variance: float

    @property
    def mse(self) -> float:
        """The mean squared error of the mean."""
        return self.bias2 + self.variance


def compare(variant: Variant, dim: int, epsilon: float, clients: int | None = None) -> Comparison:
    """Return the cost of a variant for people who all hold one typical unit vector.

    Args:
        variant: the mechanism.
        dim: d.
        epsilon: the ε of one message (of the released mean for CSGM).
        clients: n, the number of clients whose mean is estimated, with as many frames as they need; None for the
            error of a single client, with one frame.

    Raises:
        ValueError: if there is no such mechanism for these numbers.

    Examples:
        >>> row = compare(all_variants("sstq")[0], 64, 2.0, clients=1000)
        >>> row.bits, bool(row.unbiased)
        (10, True)
    """
    known = inspect.signature(mechanism_class(variant.name)).parameters
    # With groups, `dim` is the total of all groups.
    common = {"dim": dim // variant.options.get("groups", 1), "epsilon": epsilon, "clients": clients or 1}
    if clients is None and "clients" in known and known["clients"].default is None:
        del common["clients"]
    built = mechanism(variant.name, **{k: v for k, v in common.items() if k in known} | dict(variant.options))
    error = built.typical_error(clients or 1)
    facts = built.message_bits, built.coin, built.trust, built.exact, built.unbiased
    return Comparison(variant.label, variant.name, *facts, error.bias2, error.variance)


def optimal_error(dim: int, epsilon: float) -> float:
    """Return the least MSE/d of all unbiased ε-LDP randomizers of unit vectors, whatever their bits: PrivUnit's.

    Asi, Feldman and Talwar, *Optimal algorithms for mean estimation under local differential privacy*, ICML 2022:
    PrivUnit with the best cap is optimal for every d, and PrivUnitG's error tends to its (0.1 % above at d = 1000).

    Examples:
        >>> round(optimal_error(10_000, 3.0), 4)
        0.7425
    """
    return mechanism("privunit", dim=dim, epsilon=epsilon).expected_mse(np.full(dim, dim**-0.5)).total / dim


def one_bit_error(dim: int, epsilon: float) -> float:
    """Return the least MSE/d with one bit per client: the side of a random hyperplane, by randomized response.

    RRSC is optimal for its number of bits (Isik et al., *Exact optimality of communication-privacy-utility tradeoffs in
    distributed mean estimation*, NeurIPS 2023), and with one bit it is ±u for a uniform direction u. Its alignment is
    E|u₁|·(e^ε − 1)/(e^ε + 1), E|u₁| being √(2/π)/E[χ_d].

    Examples:
        >>> round(one_bit_error(10_000, 3.0), 3)
        1.917
    """
    alignment = math.sqrt(2 / math.pi) / mean_chi(dim) * math.tanh(epsilon / 2)
    return (alignment**-2 - 1) / dim
