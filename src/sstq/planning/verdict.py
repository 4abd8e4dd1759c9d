"""The verdict: whether a task can work at all, and if not, which single number would have to change."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sstq.checks import RANGES

_WORDS = {"clients": "{:,} people", "epsilon": "ε = {:g}", "dim": "at most {:,} dimensions"}


@dataclass(frozen=True)
class Remedy:
    """One change that makes a task feasible: an argument of the plan, and the value that suffices."""

    argument: str
    value: int | float

    def __str__(self) -> str:
        return _WORDS[self.argument].format(self.value)


@dataclass(frozen=True)
class Verdict:
    """Whether a task can work; its text is one line.

    Attributes:
        feasible: whether the signal-to-noise ratio is at least 1, or the target error is reached.
        signal_to_noise: the signal-to-noise ratio of all rounds together.
        reason: the numbers behind it and what they assume, in words.
        remedies: single changes that would make an infeasible task feasible; empty if there is none.
    """

    feasible: bool
    signal_to_noise: float
    reason: str
    remedies: tuple[Remedy, ...] = ()

    @property
    def summary(self) -> str:
        """The verdict without remedies."""
        return f"{'feasible' if self.feasible else 'infeasible'}: {self.reason}"

    def __str__(self) -> str:
        if self.feasible:
            return self.summary
        if not self.remedies:
            return f"{self.summary}; no single change is enough"
        what = "this helps" if len(self.remedies) == 1 else "any one of these helps"
        return f"{self.summary}; {what}: {'; '.join(map(str, self.remedies))}"


def find_remedies(
    works: Callable[[int, int, float], bool],
    *,
    dim: int,
    clients: int,
    epsilon: float,
    most_epsilon: float,
) -> tuple[Remedy, ...]:
    """The least clients, the least ε and the most dimensions for which `works(dim, clients, epsilon)`, where possible.

    All values after the first one that is enough are enough as well. One dimension is no remedy: nobody has a use for
    it.
    """
    searches: dict[str, tuple[Sequence[Any], Callable[[Any], bool]]] = {
        "clients": (whole_numbers(clients, int(RANGES["clients"][1])), lambda value: works(dim, value, epsilon)),
        "epsilon": (three_digits(epsilon, most_epsilon), lambda value: works(dim, clients, value)),
        "dim": (whole_numbers(2, dim)[::-1], lambda value: works(value, clients, epsilon)),
    }
    return tuple(
        Remedy(name, values[bisect_left(values, True, key=enough)])
        for name, (values, enough) in searches.items()
        if values and enough(values[-1])
    )


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
    return [*range(low, min(high, 99) + 1), *map(int, three_digits(max(low, 100), high))]
