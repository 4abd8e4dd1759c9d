"""Comparing all mechanisms: bits, bias and variance (the paper's Table 1 in numbers)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sstq.mechanisms import Unbiased, list_mechanisms, mechanism, mechanism_class
from sstq.mechanisms.registry import options_of


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
        ['SQKR', 'SQKR dense']
    """
    classes = ((name, mechanism_class(name)) for name in names or list_mechanisms())
    return [
        Variant(label, name, options)
        for name, kind in classes
        for label, options in kind.variants.items()
    ]


@dataclass(frozen=True)
class Comparison:
    """The cost of one mechanism for unit vectors.

    `exact` says whether the guarantee holds integer by integer; `bias2` and `variance` are those of the clients' mean.
    """

    label: str
    name: str
    bits: int
    exact: bool
    unbiased: Unbiased
    bias2: float
    variance: float

    @property
    def mse(self) -> float:
        """The mean squared error of the mean."""
        return self.bias2 + self.variance


def compare(variant: Variant, dim: int, epsilon: float, clients: int) -> Comparison:
    """Return the cost of a variant for people who all hold one typical unit vector.

    Args:
        variant: the mechanism.
        dim: d.
        epsilon: the ε of one message.
        clients: n, the number of clients whose mean is estimated, with as many frames as they need.

    Raises:
        ValueError: if there is no such mechanism for these numbers.

    Examples:
        >>> row = compare(all_variants("sstq")[0], 64, 2.0, clients=1000)
        >>> row.bits, bool(row.unbiased)
        (10, True)
    """
    taken = options_of(variant.name)
    # With groups, `dim` is the total of all groups.
    common = {
        "dim": dim // variant.options.get("groups", 1),
        "epsilon": epsilon,
        "clients": clients,
    }
    built = mechanism(
        variant.name,
        **{k: v for k, v in common.items() if k in taken} | dict(variant.options),
    )
    error = built.typical_error(clients)
    facts = built.message_bits, built.exact, built.unbiased
    return Comparison(variant.label, variant.name, *facts, error.bias2, error.variance)
