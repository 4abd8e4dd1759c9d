"""The verdict: whether a task can work at all, and if not, which single number would have to change.

The signal is the length of what is estimated when all clients hold the same vector. The noise is the predicted root
mean square error, bias included. Both are of all rounds together: with a fresh frame in every round the errors of T
rounds are independent and have mean zero, so the error of their average is shorter by √T than that of one round. A
task is feasible if the signal is at least as long as the noise.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

_Number = TypeVar("_Number", int, float)

LEAST_SIGNAL_TO_NOISE = 1.0
_WORDS = {"clients": "{:,} people", "epsilon": "ε = {:g}", "total_epsilon": "a total ε of {:g}"}


@dataclass(frozen=True)
class Remedy:
    """One change that makes a task feasible: an argument of the plan, and the value that suffices."""

    argument: str
    value: int | float

    def __str__(self) -> str:
        return _WORDS.get(self.argument, "at most {:,} " + _plural(self.argument)).format(self.value)


def _plural(argument: str) -> str:
    return "dimensions" if argument == "dim" else argument


@dataclass(frozen=True)
class Verdict:
    """Whether a task can work; its text is one line.

    Attributes:
        feasible: whether the signal-to-noise ratio is at least 1, or the target error is reached.
        signal_to_noise: the signal-to-noise ratio of all rounds together.
        reason: the numbers behind it, in words.
        remedies: single changes that would make an infeasible task feasible; empty if there is none.

    Examples:
        >>> from sstq.planning import plan
        >>> plan(dim=300, clients=100, epsilon=3.0).verdict().feasible
        False
    """

    feasible: bool
    signal_to_noise: float
    reason: str
    remedies: tuple[Remedy, ...] = ()

    def __str__(self) -> str:
        if self.feasible:
            return f"feasible: {self.reason}"
        if not self.remedies:
            return f"infeasible: {self.reason}; no single change is enough"
        *most, last = map(str, self.remedies)
        return f"infeasible: {self.reason}; needs {', '.join(most)}{' or ' if most else ''}{last}"


def find_remedies(**searches: tuple[Sequence[Any], Callable[[Any], bool]]) -> tuple[Remedy, ...]:
    """For each argument, the first of its values that is enough, if all later ones are as well."""
    found = {argument: first_enough(values, enough) for argument, (values, enough) in searches.items()}
    return tuple(Remedy(argument, value) for argument, value in found.items() if value is not None)


def first_enough(values: Sequence[_Number], enough: Callable[[_Number], bool]) -> _Number | None:
    """The first value that is enough, if all later ones are as well; None if the last one is not."""
    if not values or not enough(values[-1]):
        return None
    return values[bisect_left(values, True, key=enough)]


# Short to type, and within 1 % of what is needed.
_THREE_DIGITS = tuple(float(f"{digits}e{power}") for power in range(-4, 11) for digits in range(100, 1000))


def three_digits(low: float, high: float) -> Sequence[float]:
    """All numbers of three digits from low to high."""
    return _THREE_DIGITS[bisect_left(_THREE_DIGITS, low) : bisect_right(_THREE_DIGITS, high)]


def whole_numbers(low: int, high: int) -> Sequence[int]:
    """All whole numbers of at most three digits and zeros from low to high.

    Examples:
        >>> whole_numbers(998, 1020)
        [998, 999, 1000, 1010, 1020]
    """
    return [*range(low, min(high, 99) + 1), *(int(n) for n in three_digits(max(low, 100), high))]
