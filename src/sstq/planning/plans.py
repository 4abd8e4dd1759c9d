"""What is asked of a plan, and what every plan answers: a mechanism, its predicted error, and a verdict.

The signal is the length of the mean, and the noise is its predicted root mean square error, bias included. With a fresh
frame in every round the errors of T rounds are independent and have mean zero, so the error of their average is shorter
by √T than that of one round. A task is feasible if the signal is at least as long as the noise.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sstq.accounting import compose, epsilon_per_round, rounds_allowed
from sstq.accounting.bounds import check_delta
from sstq.checks import RANGES, ArgumentError, check_argument, check_number, check_option
from sstq.mechanisms import Mechanism
from sstq.planning.candidates import best_candidate

EPSILON_MIN, EPSILON_MAX, _ = RANGES["epsilon"]
CLIENTS_MAX = 10**12
SLACK = 0.02
"""The share of the squared error that a plan gives up for a shorter message."""

_REMEDIES = {"clients": "{:,} people", "epsilon": "ε = {:g}", "dim": "at most {:,} dimensions"}
# Remedies are short to type, and within 1 % of what is needed.
_THREE_DIGITS = tuple(float(f"{digits}e{power}") for power in range(-4, 11) for digits in range(100, 1000))


@dataclass(frozen=True)
class Remedy:
    """One change that makes a task feasible: an argument of the plan, and the value that suffices."""

    argument: str
    value: int | float

    def __str__(self) -> str:
        return _REMEDIES[self.argument].format(self.value)


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


@dataclass(frozen=True)
class Request:
    """The task of a plan, checked; `sstq.planning.plan` explains its arguments."""

    dim: int
    clients: int | None = None
    epsilon: float | None = None
    bits: int | None = None
    target_error: float | None = None
    rounds: int = 1
    delta: float = 0.0
    clip: float = 1.0
    mean_norm: float | None = None
    coin: str = "private"

    def __post_init__(self) -> None:
        check_argument("dim", self.dim)
        check_argument("clip", self.clip)
        check_argument("rounds", self.rounds)
        check_delta(self.delta)
        check_option("coin", self.coin, ("private", "public", "any"))
        ranges: dict[str, tuple[float, float, bool]] = {
            "clients": (1, CLIENTS_MAX, True),
            "epsilon": (EPSILON_MIN, EPSILON_MAX * self.rounds, False),
            "bits": (1, 4096, True),
            "target_error": (1e-9, 1e9, False),
            "mean_norm": (1e-9 * self.clip, self.clip, False),
        }
        for name, (low, high, integer) in ranges.items():
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), low, high, integer=integer)

    def message_epsilon(self, total: float) -> float:
        """The ε that one message may spend if a person's messages have this total."""
        if self.rounds == 1:
            return total
        each = min(EPSILON_MAX, epsilon_per_round(self.rounds, total, self.delta))
        if each < EPSILON_MIN:
            raise ArgumentError(
                "epsilon",
                f"leaves {each:.3g} for each of {self.rounds} rounds, but mechanisms need at least {EPSILON_MIN:g}; "
                f"pass rounds={rounds_allowed(EPSILON_MIN, total, self.delta)}",
            )
        return each


@dataclass(frozen=True, repr=False, kw_only=True)
class Plan:
    """The mechanism to use, with its predicted error and cost. Lengths are Euclidean, in the unit of clip.

    Predictions are for clients that all hold one typical vector of norm clip, the worst case for the bias of frames,
    averaged over frame seeds.

    Attributes:
        request: what the plan is for.
        mechanism: the mechanism of the messages; its `epsilon` is that of one message.
        label: the mechanism for people.
        clients: the people whose mean is estimated in each round.
        bias: the norm of the bias of the mean, which more clients do not reduce.
        standard_deviation: the standard deviation of the mean, the root of the summed variance.
        solved_for: "error", "clients", "epsilon" or "bits".
        explanation: why this mechanism was chosen, and what to watch.

    Examples:
        >>> import sstq
        >>> found = sstq.plan(dim=300, clients=1000, epsilon=3.0)
        >>> found.mechanism.name, found.feasible, round(found.relative_error, 2)
        ('frameunit', True, 0.48)
    """

    request: Request
    mechanism: Mechanism
    label: str
    clients: int
    bias: float
    standard_deviation: float
    solved_for: str = "error"
    explanation: str = ""

    def __repr__(self) -> str:
        crowd = f"{self.clients:,} clients of dimension {self.mechanism.dim:,} at a total ε of {self.total_epsilon:g}"
        error = f"error {self.relative_error:.3g} of clip{'' if self.feasible else ', infeasible'}"
        return f"<{type(self).__name__} for {crowd}: {self.label}, {self.bits} bits, {error}>"

    @property
    def epsilon(self) -> float:
        """The ε of one message."""
        return self.mechanism.epsilon

    @property
    def bits(self) -> int:
        """The bits of one message."""
        return self.mechanism.message_bits

    @property
    def total_epsilon(self) -> float:
        """The total ε of a person's messages; with δ > 0, by optimal composition."""
        # A total that was given is known to suffice.
        spent = compose(self.mechanism.epsilon, self.request.rounds, self.request.delta)
        return min(spent, self.request.epsilon or math.inf)

    @property
    def total_bytes(self) -> int:
        """The bytes of all messages in all rounds, without the identifiers that a public coin needs."""
        return -(-self.clients * self.bits // 8) * self.request.rounds

    @property
    def error(self) -> float:
        """The root mean square error of the mean of one round, from bias and standard deviation."""
        return math.hypot(self.bias, self.standard_deviation)

    @property
    def relative_error(self) -> float:
        """The error divided by clip."""
        return self.error / self.mechanism.clip

    @property
    def signal_to_noise(self) -> float:
        """The length of the mean divided by its error, for all rounds together: √rounds · mean_norm / error.

        Without a `mean_norm` the mean is taken to be as long as clip, which is the most that it can be: all clients
        hold one vector. With private groups it is that of a group's mean, for groups that are equally frequent.
        """
        return math.sqrt(self._needed_mse) / self.relative_error

    @property
    def _needed_mse(self) -> float:
        """The squared error over clip² at which the signal-to-noise ratio is 1."""
        signal = (self.request.mean_norm or self.request.clip) / self.request.clip
        return signal**2 * self.request.rounds / (self.mechanism.groups or 1)

    @property
    def feasible(self) -> bool:
        """Whether the signal-to-noise ratio is at least 1; with a `target_error`, always."""
        return self.request.target_error is not None or self.signal_to_noise >= 1

    def verdict(self) -> Verdict:
        """Return whether the task can work, in one line; if it cannot, with the numbers that would suffice.

        Examples:
            >>> import sstq
            >>> print(sstq.plan(dim=300, clients=1000, epsilon=3.0, mean_norm=0.5).verdict())
            feasible: signal-to-noise 1.04 for a mean of norm 0.5; its error is 0.481 × clip
            >>> print(sstq.plan(dim=300, clients=100, epsilon=3.0, coin="public").verdict())
            infeasible: signal-to-noise 0.664 if the mean is as long as clip, 0.221 if a third of that; its error is
            1.51 × clip; any one of these helps: 228 people; ε = 4.69; at most 132 dimensions
        """
        ratio, request = self.signal_to_noise, self.request
        what = "mean" if self.mechanism.groups is None else "class mean"
        reached = "" if request.target_error is None else "the target error is reached; "
        assumed = f"if the {what} is as long as clip, {ratio / 3:.3g} if a third of that"
        if request.mean_norm is not None:
            assumed = f"for a {what} of norm {request.mean_norm:g}"
        error = self.relative_error * math.sqrt(self.mechanism.groups or 1)
        rounds = f" in each of {request.rounds:,} rounds" if request.rounds > 1 else ""
        reason = f"{reached}signal-to-noise {ratio:.3g} {assumed}; its error is {error:.3g} × clip{rounds}"
        return Verdict(self.feasible, ratio, reason, () if self.feasible else self._remedies())

    def _remedies(self) -> tuple[Remedy, ...]:
        """The least clients, the least ε and the most dimensions that are enough alone, where there are any.

        All values after the first one that is enough are enough as well. One dimension is no remedy: nobody has a use
        for it.
        """
        dim, clients, epsilon = self.request.dim, self.clients, self.request.epsilon or self.total_epsilon

        def enough(*task: Any) -> bool:
            return self.likely_mse(*task) <= self._needed_mse

        searches: dict[str, tuple[Sequence[Any], Callable[[Any], bool]]] = {
            "clients": (
                whole_numbers(clients, int(RANGES["clients"][1])),
                lambda value: enough(dim, value, epsilon),
            ),
            "epsilon": (
                three_digits(epsilon, EPSILON_MAX * self.request.rounds),
                lambda value: enough(dim, clients, value),
            ),
            "dim": (whole_numbers(2, dim)[::-1], lambda value: enough(value, clients, epsilon)),
        }
        return tuple(
            Remedy(name, values[bisect_left(values, True, key=works)])
            for name, (values, works) in searches.items()
            if values and works(values[-1])
        )

    def likely_mse(self, dim: int, clients: int, epsilon: float) -> float:
        """The squared error over clip² of the same task with other numbers; infinite if there is none."""
        request = self.request
        # The squared error grows about with the dimension, so that no more than twice this many can suffice.
        if request.dim > dim > 100 + 2 * request.dim * self.signal_to_noise**2:
            return math.inf
        found = best_candidate(dim, request.message_epsilon(epsilon), clients, request.bits, request.coin, SLACK)
        return math.inf if found is None else found.mse

    def build(self) -> Mechanism:
        """Return the mechanism."""
        return self.mechanism

    def python(self) -> str:
        """Return the line of Python that builds the mechanism."""
        return f"sstq.{self.mechanism!r}"


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
