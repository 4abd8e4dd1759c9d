"""Argument checks with uniform messages: “name must be …, got …”, with a suggestion for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_EPSILON_MAX = 20.0
_MESSAGES_MAX = 4096

RANGES: Mapping[str, tuple[float, float, bool]] = {
    "dim": (1, 2**30, True),
    "epsilon": (0.01, _EPSILON_MAX, False),
    "clip": (1e-100, 1e100, False),
    "bits": (1, 12, True),
    "frame_seed": (0, 2**64 - 1, True),
    "seed": (0, 2**64 - 1, True),
    "level": (1e-3, 1e6, False),
    "steps": (1, 10_000, True),
    "delta": (1e-15, 0.1, False),
    "clients": (1, 2**32, True),
    "messages": (1, _MESSAGES_MAX, True),
    "groups": (2, 2**24, True),
    "categories": (2, 2**20, True),
    # Accounting is wider. Its theorems take the ε of one message or round of any mechanism; beyond 100 neither
    # composition nor a crowd makes a round noticeably cheaper. Ledgers are charged for answers, and caps of clients
    # compare them: all messages of a person in one round together, whether shuffled or not. Totals are of all rounds.
    "round_epsilon": (1e-9, 100.0, False),
    "answer_epsilon": (1e-9, _EPSILON_MAX * _MESSAGES_MAX, False),
    "total_epsilon": (1e-9, 1e6, False),
    "total_delta": (1e-100, 0.5, False),
    "rounds": (1, 10**9, True),
    "crowd": (1, 10**12, True),
}
"""The minimum and maximum of each common argument, and whether it is an integer."""


class ArgumentError(ValueError):
    """A bad argument: its name, and what is wrong with its value.

    Examples:
        >>> error = ArgumentError("dim", "must be positive, got 0")
        >>> str(error), error.argument
        ('dim must be positive, got 0', 'dim')
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(argument, problem)
        self.argument = argument
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.argument} {self.problem}"


def check_argument(
    name: str,
    value: Any,
    *,
    of: str | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """Return a common argument if it is within its range (that of entry `of`, if given), which callers may narrow.

    Examples:
        >>> check_argument("epsilon", 3)
        3.0
        >>> check_argument("dim", 1, low=2)
        Traceback (most recent call last):
        ...
        sstq.checks.ArgumentError: dim must be an integer in [2, 1073741824], got 1
    """
    least, largest, integer = RANGES[of or name]
    low = least if low is None else low
    high = largest if high is None else high
    return check_number(name, value, low, high, integer=integer)


def check_arguments(
    values: Mapping[str, Any], narrowed: Mapping[str, tuple[float, float]]
) -> dict[str, Any]:
    """Return those of the values that are common arguments and given; each must be within its range, or `narrowed`."""
    checked = {}
    for name, value in values.items():
        if name in RANGES and value is not None:
            low, high = narrowed.get(name, RANGES[name][:2])
            checked[name] = check_number(
                name, value, low, high, integer=RANGES[name][2]
            )
    return checked


def check_number(
    name: str, value: Any, low: float, high: float, *, integer: bool = False
) -> Any:
    """Return the value as an int or float in [low, high]; otherwise an ArgumentError with name, value and range."""
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    kind, ends = (
        ("an integer", f"[{int(low)}, {int(high)}]")
        if integer
        else ("a number", f"[{low:g}, {high:g}]")
    )
    allowed = f"must be {kind} in {ends}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, kinds):
        raise ArgumentError(name, f"{allowed}, got {value!r}")
    # A Python integer is compared as it is: it may be too large for a float, or for printing.
    number = (
        value if isinstance(value, int) else int(value) if integer else float(value)
    )
    if not low <= number <= high:
        long = isinstance(number, int) and abs(number) >= 10**100
        too_large = name == "epsilon" and high <= _EPSILON_MAX < number
        why = ": above 20 a message hides next to nothing" if too_large else ""
        got = "an integer of more than 100 digits" if long else repr(value)
        raise ArgumentError(name, f"{allowed}, got {got}{why}")
    return int(number) if integer else float(number)


def check_near(name: str, value: Any, wanted: float, tolerance: float) -> float:
    """Return a number that another machine may have computed a little differently; otherwise an ArgumentError."""
    ends = wanted * (1 - tolerance), wanted * (1 + tolerance)
    return float(check_number(name, value, *ends))


def check_integers(
    name: str, values: ArrayLike | None, count: int, limit: int
) -> NDArray[np.integer]:
    """Return `count` integers below `limit`; otherwise an ArgumentError with the first that is none.

    Examples:
        >>> check_integers("groups", [0, 4], 2, limit=4)
        Traceback (most recent call last):
        ...
        sstq.checks.ArgumentError: groups must be from 0 to 3, got 4 at row 1
    """
    numbers: NDArray[Any] = np.atleast_1d(np.asarray(values))
    if numbers.shape != (count,) or (count and numbers.dtype.kind not in "iu"):
        raise ArgumentError(
            name,
            f"must be {count} integers, got {numbers.dtype} of shape {numbers.shape}",
        )
    wrong = np.flatnonzero((numbers < 0) | (numbers >= limit))
    if len(wrong):
        raise ArgumentError(
            name,
            f"must be from 0 to {limit - 1}, got {numbers[wrong[0]]} at row {wrong[0]}",
        )
    return numbers


def check_option(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Return the value if it is one of the allowed words; otherwise an ArgumentError with name, value and words."""
    if value not in allowed:
        close = did_you_mean(value, allowed)
        raise ArgumentError(
            name, f"must be {' or '.join(map(repr, allowed))}, got {value!r}{close}"
        )
    return str(value)


def did_you_mean(name: Any, names: Iterable[str]) -> str:
    """Return the end of an error about a wrong name: a question with the closest valid name, or an empty string.

    Examples:
        >>> did_you_mean("framunit", ["sstq", "frameunit"])
        "; did you mean 'frameunit'?"
        >>> did_you_mean("rainbow", ["sstq", "frameunit"])
        ''
    """
    close = get_close_matches(str(name), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
