"""The ranges of the arguments of accounting, and rounding that never errs on the wrong side."""

from __future__ import annotations

import math
from fractions import Fraction

from sstq.checks import check_number

__all__ = [
    "CLIENTS_MAX",
    "ROUNDS_MAX",
    "check_clients",
    "check_delta",
    "check_round_epsilon",
    "check_rounds",
    "check_total_epsilon",
    "round_down",
    "round_up",
]

ROUND_EPSILON_MIN, ROUND_EPSILON_MAX = 1e-9, 100.0
TOTAL_EPSILON_MAX = 1e6
ROUNDS_MAX = 10**9
CLIENTS_MAX = 10**12
DELTA_MIN, DELTA_MAX = 1e-100, 0.5


def check_round_epsilon(epsilon: float, name: str = "epsilon") -> float:
    """Return the ε of one round, or say why it cannot be one."""
    return float(check_number(name, epsilon, ROUND_EPSILON_MIN, ROUND_EPSILON_MAX))


def check_total_epsilon(total_epsilon: float, name: str = "total_epsilon") -> float:
    """Return the ε of all rounds together, or say why it cannot be one."""
    return float(check_number(name, total_epsilon, ROUND_EPSILON_MIN, TOTAL_EPSILON_MAX))


def check_rounds(rounds: int) -> int:
    """Return the number of rounds, or say why it cannot be one."""
    return int(check_number("rounds", rounds, 1, ROUNDS_MAX, integer=True))


def check_clients(clients: int) -> int:
    """Return the number of clients, or say why it cannot be one."""
    return int(check_number("clients", clients, 1, CLIENTS_MAX, integer=True))


def check_delta(delta: float, *, positive: bool = False) -> float:
    """Return δ, which may be 0 unless `positive`, or say why it cannot be one.

    Examples:
        >>> check_delta(0)
        0.0
        >>> check_delta(0, positive=True)
        Traceback (most recent call last):
        ...
        ValueError: delta must be a number in [1e-100, 0.5], got 0
    """
    if not positive and not isinstance(delta, bool) and delta == 0:
        return 0.0
    return float(check_number("delta", delta, DELTA_MIN, DELTA_MAX))


def round_up(value: Fraction) -> float:
    """Return the least double that is at least `value`.

    Examples:
        >>> round_up(3 * Fraction(0.1)), round_down(3 * Fraction(0.1))
        (0.30000000000000004, 0.3)
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def round_down(value: Fraction) -> float:
    """Return the greatest double that is at most `value`."""
    # Adding zero makes a negative zero, which reads badly, a plain one.
    return -round_up(-value) + 0.0
