"""Exact errors of one message: against the bit width (the abstract's claim as a figure), and the orders of Table 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import sstq

DIM = 600
EPSILONS = (1.0, 3.0, 6.0)
WIDTHS = tuple(range(1, 11))
_VARIANTS: Mapping[str, Mapping[str, str]] = {
    "flat, uniform": {"codebook": "uniform"},
    "flat, optimized": {"codebook": "optimized"},
    "metric-aware (shrinks)": {"channel": "metric-aware"},
    "optimal channel": {"channel": "optimal"},
}


def bit_widths(
    epsilons: Sequence[float] = EPSILONS, widths: Sequence[int] = WIDTHS
) -> list[dict[str, Any]]:
    """Compute the exact errors of one message about a typical unit vector, divided by d."""
    rows = []
    for label, options in _VARIANTS.items():
        for epsilon in epsilons:
            last = float("nan")
            for bits in widths:
                error = sstq.SSTQ(DIM, epsilon, bits=bits, **options).typical_error()  # type: ignore[arg-type]
                row = {"label": label, "epsilon": epsilon, "bits": bits}
                rows.append(
                    row
                    | {
                        "error": error.total / DIM,
                        "bias2": error.bias2,
                        "growth": error.total / last,
                    }
                )
                last = error.total
    return rows


# Two dimensions with the same redundancy N/d = 4, so that the frame does not enter the exponent.
_DIMS = (1024, 4096)
_EPSILONS = (0.05, 0.1)
_WIDTHS = (9, 10)
# Row: bits per client and error in the paper's words, the registered name, its options, and whether it has a bit width.
ORDERS: Mapping[str, tuple[str, str, str, Mapping[str, Any], bool]] = {
    "vqSGD": ("⌈log₂ d⌉ + 1", "d³/ε²", "vqsgd", {}, False),
    "SQKR (dense)": ("O(d)", "d/ε²", "sqkr", {"variant": "dense"}, False),
    "SQKR (subsampled)": ("k(log₂ d + 1)", "d/min(ε², ε, b₀)", "sqkr", {"k": 1}, False),
    "PrivUnit": ("Θ(d)", "d/ε²", "privunit", {}, False),
    "SSTQ (flat)": (
        "⌈log₂ N⌉ + b",
        "d(1 + 4ᵇ/(ε∧ε²))",
        "sstq",
        {"codebook": "uniform"},
        True,
    ),
    "SSTQ (flat, optimized)": ("⌈log₂ N⌉ + b", "d(1 + 2ᵇ/(ε∧ε²))", "sstq", {}, True),
    "SSTQ (metric-aware)": (
        "⌈log₂ N⌉ + b",
        "d(1 + 1/((2ᵇ−1)²∧ε∧ε²))",
        "sstq",
        {"channel": "metric-aware", "rate": "paper"},
        True,
    ),
}


def sqkr_bits(k: int, size: int, *, shared: bool = False) -> int:
    """The bits of a subsampled message of SQKR on N = `size` coefficients.

    A message has k bits and names k coordinates. The footnote of Table 1 is of shared randomness: server and client
    draw the coordinates from it, and k bits are left.

    Examples:
        >>> sqkr_bits(4, 65_536), sqkr_bits(4, 65_536, shared=True)
        (68, 4)
    """
    names = 0 if shared else (size - 1).bit_length()
    return k * (names + 1)


def measured_orders(rows: Sequence[str] = tuple(ORDERS)) -> list[dict[str, Any]]:
    """Measure the orders of exact errors: d from 1,024 to 4,096 at ε = 1, ε from 0.05 to 0.1, b from 9 to 10."""
    low, high = _DIMS
    table = []
    for label in rows:
        bits, order, _, _, has_bits = ORDERS[label]
        table.append(
            {
                "label": label,
                "bits": bits,
                "order": order,
                "dim": math.log(_error(label, high) / _error(label, low))
                / math.log(high / low),
                "epsilon": math.log2(
                    _error(label, low, _EPSILONS[1]) / _error(label, low, _EPSILONS[0])
                ),
                "bit": _error(label, low, bits=_WIDTHS[1])
                / _error(label, low, bits=_WIDTHS[0])
                if has_bits
                else math.nan,
            }
        )
    return table


def _error(label: str, dim: int, epsilon: float = 1.0, bits: int = 2) -> float:
    """The exact error of one message about a random unit vector."""
    _, _, name, options, has_bits = ORDERS[label]
    x = np.random.default_rng(dim).standard_normal(dim)
    mechanism = sstq.mechanism(
        name,
        dim=dim,
        epsilon=epsilon,
        **options,
        **({"bits": bits} if has_bits else {}),
    )
    return mechanism.expected_mse(x / np.linalg.norm(x)).total
