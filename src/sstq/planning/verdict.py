"""The verdict: whether a task can work at all, and if not, which single number would have to change.

The signal is the length of what is estimated when all clients hold the same vector. The noise is the predicted root
mean square error, bias included. Both are of all rounds together: with a fresh frame in every round the errors of T
rounds are independent and have mean zero, so the error of their average is shorter by √T than that of one round. A
task is feasible if the signal is at least as long as the noise.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sstq.checks import RANGES
from sstq.mechanisms import Mechanism

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


@dataclass(frozen=True, repr=False)
class Prediction:
    """The predicted error of a mean by a mechanism. Lengths are Euclidean, in the unit of clip.

    Predictions are for clients that all hold one typical vector of norm clip, the worst case for the bias of frames,
    averaged over frame seeds.

    Attributes:
        mechanism: the mechanism of the messages.
        clients: n, the people whose mean it is; of one round, if there are several.
        bias: the norm of the bias of the mean, which more clients do not reduce.
        standard_deviation: the standard deviation of the mean, the root of the summed variance.
    """

    mechanism: Mechanism
    clients: int
    bias: float
    standard_deviation: float

    @property
    def error(self) -> float:
        """The root mean square error of the mean of one round, from bias and standard deviation."""
        return math.hypot(self.bias, self.standard_deviation)

    @property
    def relative_error(self) -> float:
        """The error divided by clip."""
        return self.error / self.mechanism.clip

    @property
    def all_rounds(self) -> int:
        """The rounds of the whole training."""
        return 1

    @property
    def signal_to_noise(self) -> float:
        """The length of the clients' mean divided by its error, for all rounds together: √rounds · clip / error.

        The mean is as long as clip if all clients hold one vector. So it is an upper bound.
        """
        return math.sqrt(self.all_rounds) / self.relative_error

    @property
    def feasible(self) -> bool:
        """Whether the signal-to-noise ratio is at least 1."""
        return self.signal_to_noise >= LEAST_SIGNAL_TO_NOISE

    def verdict(self) -> Verdict:
        """Return whether the task can work, in one line; if it cannot, with the numbers that would suffice.

        Examples:
            >>> from sstq.planning import plan
            >>> print(plan(dim=300, clients=1000, epsilon=3.0).verdict())
            feasible: signal-to-noise 2.08, the mean has an error of 0.481 × clip
            >>> print(plan(dim=300, clients=100, epsilon=3.0, coin="public").verdict())
            infeasible: signal-to-noise 0.664, the mean has an error of 1.51 × clip; needs 228 people, ε = 4.69 or at
            most 132 dimensions
        """
        error = f"the mean has an error of {self.relative_error:.3g} × clip"
        if self.all_rounds > 1:
            error = f"over {self.all_rounds} rounds with an error of {self.relative_error:.3g} × clip each"
        reason = f"signal-to-noise {self.signal_to_noise:.3g}{',' if self.all_rounds == 1 else ''} {error}"
        return Verdict(self.feasible, self.signal_to_noise, reason, () if self.feasible else self._remedies())

    def _remedies(self) -> tuple[Remedy, ...]:
        raise NotImplementedError

    def build(self) -> Mechanism:
        """Return the mechanism."""
        return self.mechanism

    def python(self) -> str:
        """Return the line of Python that builds the mechanism."""
        return f"sstq.{self.mechanism!r}"

    def spec(self) -> str:
        """Return the mechanism's JSON, which clients and server share."""
        return self.mechanism.to_json()


def find_remedies(
    works: Callable[[int, int, float], bool],
    *,
    dim: int,
    clients: int,
    epsilon: float,
    most_epsilon: float = RANGES["epsilon"][1],
    names: tuple[str, str, str] = ("clients", "epsilon", "dim"),
) -> tuple[Remedy, ...]:
    """The least clients, the least ε and the most dimensions for which `works(dim, clients, epsilon)`, where possible.

    One dimension is no remedy: nobody has a use for it.
    """
    searches: tuple[tuple[Sequence[Any], Callable[[Any], bool]], ...] = (
        (whole_numbers(clients, int(RANGES["clients"][1])), lambda value: works(dim, value, epsilon)),
        (three_digits(epsilon, most_epsilon), lambda value: works(dim, clients, value)),
        (whole_numbers(2, dim)[::-1], lambda value: works(value, clients, epsilon)),
    )
    # All values after the first one that is enough are enough as well.
    return tuple(
        Remedy(name, values[bisect_left(values, True, key=enough)])
        for name, (values, enough) in zip(names, searches, strict=True)
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
    return [*range(low, min(high, 99) + 1), *(int(n) for n in three_digits(max(low, 100), high))]
