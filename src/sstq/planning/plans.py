"""What every plan answers: a mechanism, its predicted error, and a verdict.

The signal is the length of the mean, and the noise is its predicted root mean square error, bias included. With a fresh
frame in every round the errors of T rounds are independent and have mean zero, so the error of their average is shorter
by √T than that of one round. A task is feasible if the signal is at least as long as the noise.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sstq.accounting import compose, gaussian_sigma
from sstq.checks import RANGES
from sstq.mechanisms import FrameUnit, GroupUnit, Mechanism
from sstq.planning.requests import EPSILON_MAX, Request

_REMEDIES = {
    "clients": "{:,} people",
    "epsilon": "ε = {:g}",
    "dim": "at most {:,} dimensions",
}
# Remedies are short to type, and within 1 % of what is needed.
_THREE_DIGITS = tuple(
    float(f"{digits}e{power}") for power in range(-4, 11) for digits in range(100, 1000)
)
# A remedy is accepted if the squared error is this part of what is needed, or after so many corrections.
_CLOSE = 0.97
_CORRECTIONS = 5
# Of the chance of a classifier: the constant, and the factors of the logarithms of its noise and of the odds of the
# most frequent class (`python -m paper chance`).
_CHANCE = (-1.954, -1.178, -1.402)
# The logit of nine in ten.
_LIKELY = math.log(9)
# Replacing one person changes the sum of all vectors by this many times clip.
_SENSITIVITY = 2.0


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


@dataclass(frozen=True, repr=False, kw_only=True)
class Plan:
    """The mechanism to use, with its predicted error and cost. Lengths are Euclidean, in the unit of clip.

    Predictions are for clients that all hold one typical vector of norm clip, the worst case for the bias of frames,
    averaged over frame seeds. Those of a classifier are for features of norm 1 and classes that are equally frequent:
    a class of a tenth of the mean size has ten times the noise.

    Attributes:
        request: what the plan is for.
        mechanism: the mechanism of the messages; its `epsilon` is that of one message. Behind a shuffler people may
            send several, and its `bundle_epsilon` is the local ε that remains if the shuffler cheats. For a classifier
            it is GroupUnit, whose `dim` is the number of directions of the features that are sent.
        label: the mechanism for people.
        clients: the people whose mean is estimated in each round.
        bias: the norm of the bias of the mean, which more clients do not reduce.
        standard_deviation: the standard deviation of the mean, the root of the summed variance.
        solved_for: "error", "clients", "epsilon" or "bits".
        explanation: why this mechanism was chosen, and what to watch.

    Examples:
        >>> import sstq
        >>> best = sstq.plan(dim=300, clients=1000, epsilon=3.0)
        >>> best.mechanism.name, best.feasible, round(best.relative_error, 2)
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
        return f"<Plan for {crowd}: {self.label}, {self.bits} bits, {error}>"

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
        """The total ε of a person's messages: behind the shuffler, or by optimal composition if δ > 0."""
        if self.request.once and self.request.epsilon is not None:
            return self.request.epsilon
        # A total that was given is known to suffice.
        spent = compose(self.mechanism.epsilon, self.request.rounds, self.request.delta)
        return min(spent, self.request.epsilon or math.inf)

    @property
    def total_bytes(self) -> int:
        """The bytes of all messages in all rounds, without envelopes."""
        if self.request.trust == "shuffler":  # where each message takes whole bytes
            return self.clients * self.mechanism.messages * -(-self.bits // 8)
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
    def local_error(self) -> float:
        """For a plan with a shuffler: the error without any trust, at a local ε equal to the total."""
        options: dict[str, Any] = {"clients": self.clients, "clip": self.request.clip}
        kind: type[FrameUnit | GroupUnit] = FrameUnit
        if self.request.classes is not None:
            kind = GroupUnit
            options["groups"] = self.request.classes
        alone = kind(self.mechanism.dim, self.total_epsilon, **options)
        return math.sqrt(alone.typical_error(self.clients).total)

    @property
    def central_error(self) -> float:
        """For a plan with a shuffler: the error of (ε, δ)-private Gaussian noise added by a trusted server."""
        size = self.mechanism.dim * self._groups
        delta = self.request.delta
        return self.request.clip * central_error(
            size, self.total_epsilon, delta, self.clients
        )

    @property
    def noise(self) -> float:
        """The standard deviation of one coordinate of a class mean: the sums of all are 1/classes of the means."""
        return self.error * math.sqrt(self._groups / self.mechanism.dim)

    @property
    def useful_below(self) -> float:
        """The share of the most frequent class below which a classifier is likely better than guessing that class.

        At this share the chance is 9/10, by a logistic regression on the noise and the odds of the most frequent class
        over 49 tables, 1,000 to 30,000 people, ε = 1 and 3 (docs/learning.md). How far the classes are apart decides as
        much, and no plan knows it: from here to `useless_above` the answer is open. nan for a mean.
        """
        return self._share_of(_LIKELY)

    @property
    def useless_above(self) -> float:
        """The share of the most frequent class above which the chance is less than 1/10; nan for a mean."""
        return self._share_of(-_LIKELY)

    def _share_of(self, logit: float) -> float:
        """The share of the most frequent class at which the chance has this logit."""
        return self._chance(lambda evidence, of_odds: (evidence - logit) / -of_odds)

    @property
    def chance(self) -> float:
        """How likely a classifier is better than guessing if all classes are equally frequent; nan for a mean."""
        others = (self.request.classes or 2) - 1
        return self._chance(
            lambda evidence, of_odds: evidence - of_odds * math.log(others)
        )

    def _chance(self, logit: Callable[[float, float], float]) -> float:
        if self.request.classes is None:
            return math.nan
        constant, of_noise, of_odds = _CHANCE
        evidence = constant + of_noise * math.log(self.noise)
        return 1 / (1 + math.exp(-logit(evidence, of_odds)))

    @property
    def _groups(self) -> int:
        """The number of means."""
        return self.request.classes or 1

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
        return signal**2 * self.request.rounds / self._groups

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
            >>> print(sstq.plan(dim=300, clients=100, epsilon=3.0).verdict())
            infeasible: signal-to-noise 0.66 if the mean is as long as clip, 0.22 if a third of that; its error is
            1.51 × clip; any one of these helps: 231 people; ε = 4.72; at most 130 dimensions
        """
        ratio = self.signal_to_noise
        request = self.request
        what = "mean" if request.classes is None else "class mean"
        reached = (
            "" if request.target_error is None else "the target error is reached; "
        )
        assumed = (
            f"if the {what} is as long as clip, {ratio / 3:.3g} if a third of that"
        )
        if request.mean_norm is not None:
            assumed = f"for a {what} of norm {request.mean_norm:g}"
        error = self.relative_error * math.sqrt(self._groups)
        rounds = f" in each of {request.rounds:,} rounds" if request.rounds > 1 else ""
        reason = f"{reached}signal-to-noise {ratio:.3g} {assumed}; its error is {error:.3g} × clip{rounds}"
        return Verdict(
            self.feasible, ratio, reason, () if self.feasible else self._remedies()
        )

    def _remedies(self) -> tuple[Remedy, ...]:
        """The least clients, the least ε and the most dimensions that are enough alone, where there are any.

        All values after the first one that is enough are enough as well. One dimension is no remedy: nobody has a use
        for it. A classifier chooses its directions by their worth, so that fewer features are none either.
        """
        request = self.request
        dim = request.dim
        clients = self.clients
        epsilon = request.epsilon or self.total_epsilon
        # The squared error grows about with the dimension, so that no more than twice this many can suffice.
        most_dim = (
            dim
            if request.once
            else min(dim, 100 + math.floor(2 * dim * self.signal_to_noise**2))
        )

        values: dict[str, Sequence[Any]] = {
            "clients": whole_numbers(clients, int(RANGES["clients"][1])),
            "epsilon": three_digits(epsilon, EPSILON_MAX * request.rounds),
            "dim": whole_numbers(2, 0 if request.classes else most_dim)[::-1],
        }
        task = {"dim": dim, "clients": clients, "epsilon": epsilon}
        enough = (
            (name, self._first_enough(task, name, tried))
            for name, tried in values.items()
        )
        return tuple(Remedy(name, value) for name, value in enough if value is not None)

    def _first_enough(
        self, task: Mapping[str, Any], name: str, values: Sequence[Any]
    ) -> Any:
        """The first of some values of an argument with which the task is feasible; None if no value is enough.

        Rough errors say where it is. They are off by a factor that hardly changes from there to the true place.
        """

        def mse(place: int, rough: bool) -> float:
            return (
                self.request.likely_mse(**{**task, name: values[place]}, rough=rough)
                / self._needed_mse
            )

        factor = 1.0
        enough = None
        for _ in range(_CORRECTIONS if values else 0):
            place = bisect_left(
                range(len(values) - 1), True, key=lambda at: factor * mse(at, True) <= 1
            )
            true = mse(place, False)
            enough = values[place] if true <= 1 else enough
            if _CLOSE <= true <= 1 or (true > 1 and place == len(values) - 1):
                break
            last = factor
            factor = true / mse(place, True)
            if factor == last:
                break
        return enough

    def build(self) -> Mechanism:
        """Return the mechanism."""
        return self.mechanism

    def python(self) -> str:
        """Return the line of Python that builds the mechanism.

        That of a classifier simulates it, from examples `X`, labels `y` and unlabelled examples `public`.
        """
        if self.request.classes is None:
            return f"sstq.{self.mechanism!r}"
        options = f"epsilon={self.request.epsilon!r}, public=public"
        if self.request.trust == "shuffler":
            options += f", trust='shuffler', delta={self.request.delta!r}, messages={self.mechanism.messages}"
        return f"sstq.learning.PrivateClassifier({options}).fit(X, y)"


def central_error(
    coordinates: int, epsilon: float, delta: float, clients: int
) -> float:
    """Return the error of a mean of vectors of norm 1 to which a trusted server adds Gaussian noise.

    Examples:
        >>> round(central_error(1000, 1.0, 1e-6, 100_000), 5)
        0.00267
    """
    return (
        _SENSITIVITY * gaussian_sigma(epsilon, delta) / clients * math.sqrt(coordinates)
    )


def three_digits(low: float, high: float) -> Sequence[float]:
    """All numbers of three digits from low to high."""
    return _THREE_DIGITS[
        bisect_left(_THREE_DIGITS, low) : bisect_right(_THREE_DIGITS, high)
    ]


def whole_numbers(low: int, high: int) -> Sequence[int]:
    """All whole numbers of at most three digits and zeros from low to high.

    Examples:
        >>> whole_numbers(998, 1020)
        [998, 999, 1000, 1010, 1020]
    """
    return [int(value) for value in three_digits(low, high) if value.is_integer()]
