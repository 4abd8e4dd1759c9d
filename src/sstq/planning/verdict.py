"""The verdict: whether a task can work at all, and if not, what would have to change.

The signal is the length of what is estimated when the clients agree, the noise the predicted root mean square error,
bias included. Both are of all rounds together: with a fresh frame in every round the errors of T rounds are independent
and have mean zero, so that the error of their average is shorter by √T than that of one round. A task is feasible if
the signal is at least as long as the noise. Then at least half of the squared length of an estimate is signal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from sstq.accounting import compose, epsilon_per_round
from sstq.checks import RANGES
from sstq.federated.cohorts import answers_of
from sstq.planning.shuffled_draw import MOST_MESSAGES, Budget, likely_mse
from sstq.planning.solving import CLIENTS_MAX, EPSILON_MAX, EPSILON_MIN

LEAST_SIGNAL_TO_NOISE = 1.0
USUAL_DELTA = 1e-6  # of a shuffler or of many rounds, where none is given


# The arguments of a task of one round without wishes that only local plans know.
_PLANNED_FOR_SHUFFLERS = {"dim", "classes", "features", "clients", "epsilon", "delta", "clip"}

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Remedy:
    """One change that makes a task feasible.

    Attributes:
        name: "people", "epsilon", "delta", "once", "shuffler" or "dimensions".
        change: the change, in words.
        arguments: the arguments of the feasible plan, by name.
        commands: the commands for it: the plan, and for a shuffler also the account of its total ε.
    """

    name: str
    change: str
    arguments: Mapping[str, Any]
    commands: tuple[str, ...]


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
        *most, last = (remedy.change for remedy in self.remedies)
        return f"infeasible: {self.reason}; needs {', '.join(most)}{' or ' if most else ''}{last}"


@dataclass(frozen=True)
class Task:
    """An infeasible task, for which remedies are sought.

    Attributes:
        command: the command that plans it.
        arguments: the arguments of that plan, by name; `clients`, and either `epsilon` or `rounds` and `total_epsilon`.
        size: which argument is the number of dimensions.
        works: whether it is feasible with this many dimensions, clients per round, and ε per message.
        groups: the number of groups of the sums; the squared error of all sums together may be 1/groups.
    """

    command: str
    arguments: Mapping[str, Any]
    size: str
    works: Callable[[int, int, float], bool]
    groups: int = 1

    @property
    def clients(self) -> int:
        """All people: the clients of every round, or of all cohorts."""
        return int(self.arguments["clients"])

    @property
    def rounds(self) -> int:
        """All rounds."""
        return int(self.arguments.get("rounds", 1))

    @property
    def answers(self) -> int:
        """The rounds that a person takes part in."""
        return answers_of(self.arguments.get("participation", self.rounds))

    def cohort(self, people: int) -> int:
        """The clients of the smallest round of this many people."""
        return people * self.answers // self.rounds

    @property
    def delta(self) -> float:
        """The δ of all rounds."""
        return float(self.arguments.get("delta", 0.0))

    @cached_property
    def total(self) -> float:
        """The total ε that a person may spend."""
        if "total_epsilon" in self.arguments:
            return float(self.arguments["total_epsilon"])
        return self._total_of(self.arguments["epsilon"])

    @property
    def shuffled(self) -> bool:
        """Whether there is a shuffler already; then `epsilon` and `delta` are the totals of all messages."""
        return bool(self.arguments.get("trust") == "shuffler")

    def _total_of(self, epsilon: float) -> float:
        return epsilon if self.shuffled else compose(epsilon, self.answers, self.delta)

    @cached_property
    def epsilon(self) -> float:
        """The ε that a message may spend."""
        if "epsilon" in self.arguments:
            return float(self.arguments["epsilon"])
        return self._of_total(self.arguments["total_epsilon"])

    def remedies(self) -> tuple[Remedy, ...]:
        """The single changes that suffice: more people, ε or δ, one answer per person, a shuffler, fewer dimensions."""
        people = self._least_people(CLIENTS_MAX, lambda clients: self._works(clients=clients))
        found = (
            self._more_people(people),
            self._more_epsilon(),
            self._some_delta(),
            self._one_answer(),
            self._shuffler(people or CLIENTS_MAX),
            self._fewer_dimensions(),
        )
        return tuple(remedy for remedy in found if remedy is not None)

    def _more_people(self, people: int | None) -> Remedy | None:
        return None if people is None else self._remedy("people", f"{self._times(people)} the people", clients=people)

    def _more_epsilon(self) -> Remedy | None:
        if "total_epsilon" not in self.arguments:
            epsilon = self._least_epsilon(self.clients)
            if epsilon is None:
                return None
            total = f"a total ε of {self._total_of(epsilon):.6g}{_with_delta(self.delta)}"
            return self._remedy("epsilon", total, epsilon=epsilon)
        high = min(RANGES["total_epsilon"][1], EPSILON_MAX * self.answers)
        wanted = _first(_three_digits(self.total, high), lambda total: self._works(epsilon=self._of_total(total)))
        if wanted is None:
            return None
        # The ε of a message follows from the total, so it is not among the arguments.
        return self._remedy(
            "epsilon", f"a total ε of {wanted:g}{_with_delta(self.delta)}", epsilon=None, total_epsilon=wanted
        )

    def _some_delta(self) -> Remedy | None:
        """A small δ: many rounds then have a smaller total ε."""
        if self.delta or self.answers == 1:
            return None
        return self._same_total("delta", f"a δ of {USUAL_DELTA:g}", delta=USUAL_DELTA)

    def _one_answer(self) -> Remedy | None:
        """One answer per person with the whole total, which has less noise; each round asks another cohort."""
        if self.answers == 1:
            return None
        return self._same_total("once", "one answer per person in cohorts", participation="once")

    def _same_total(self, name: str, change: str, **changes: Any) -> Remedy | None:
        total = self.arguments.get("total_epsilon") or _three_digits(0, self.total)[-1]
        other = replace(self, arguments={**self.arguments, **changes, "total_epsilon": total})
        return other._remedy(name, change, epsilon=None) if other._works(epsilon=other._of_total(total)) else None

    def _shuffler(self, most: int) -> Remedy | None:
        """A shuffler: messages may spend more ε locally within the same total; with more people if there are too few.

        For several rounds the total is by the bound that holds for any mechanism (`sstq.accounting.compose`).
        """
        if self.shuffled or self.arguments.get("coin", "private") != "private":
            return None  # with a public coin a message is read together with its client's identifier
        if self.arguments.keys() <= _PLANNED_FOR_SHUFFLERS:
            return self._planned_shuffler(min(most, RANGES["clients"][1]))
        delta = self.delta or USUAL_DELTA

        def counts_as(epsilon: float, clients: int) -> float:
            return compose(epsilon, self.answers, delta, clients=self.cohort(clients))

        def hides(clients: int) -> bool:
            epsilon = self._least_epsilon(clients)
            return epsilon is not None and counts_as(epsilon, clients) <= self.total

        people = self._least_people(most, hides)
        epsilon = None if people is None else self._least_epsilon(people)
        if people is None or epsilon is None or people == most:
            return None  # as many people suffice without a shuffler
        if compose(epsilon, self.answers, delta) <= self.total:
            return None  # δ alone suffices
        crowd = f" and {self._times(people)} the people" if people > self.clients else ""
        change = f"a shuffler{crowd} (ε = {epsilon:g} per message)"
        shuffled = {"epsilon": epsilon, "rounds": self.answers, "delta": delta, "clients": self.cohort(people)}
        account = f"{typed('sstq account', shuffled)} --shuffled"
        return self._remedy(
            "shuffler", change, account, clients=people, epsilon=epsilon, total_epsilon=None, delta=None
        )

    def _planned_shuffler(self, most: float) -> Remedy | None:
        """A shuffler with several messages per person; see `sstq.planning.plan_shuffled`."""
        delta = self.delta or USUAL_DELTA

        def hides(clients: int) -> bool:
            budget = Budget(self.epsilon, delta, clients, MOST_MESSAGES)
            return self.groups * likely_mse(budget, self.arguments[self.size], self.groups) <= 1

        people = self._least_people(int(most), hides)
        if people is None or people == most:
            return None
        crowd = f" and {self._times(people)} the people" if people > self.clients else ""
        change = f"a shuffler{crowd} ({MOST_MESSAGES} messages each)"
        return self._remedy("shuffler", change, clients=people, delta=delta, trust="shuffler")

    def _fewer_dimensions(self) -> Remedy | None:
        fewer = range(self.arguments[self.size] - 1, 0, -1)
        size = _first(fewer, lambda dim: self._works(dim=dim))
        if size is None:
            return None
        kind = "dimensions" if self.size == "dim" else self.size
        return self._remedy("dimensions", f"at most {size:,} {kind if size > 1 else kind[:-1]}", **{self.size: size})

    def _remedy(self, name: str, change: str, *more: str, **changes: Any) -> Remedy:
        arguments = {key: value for key, value in {**self.arguments, **changes}.items() if value is not None}
        return Remedy(name, change, arguments, (typed(self.command, arguments), *more))

    def _works(self, *, dim: int | None = None, clients: int | None = None, epsilon: float | None = None) -> bool:
        cohort = self.cohort(clients or self.clients)
        return cohort > 0 and self.works(dim or self.arguments[self.size], cohort, epsilon or self.epsilon)

    def _least_people(self, most: int, enough: Callable[[int], bool]) -> int | None:
        crowds = [self.clients, *map(round, _three_digits(self.clients + 1, most))]
        return _first(crowds, enough)

    def _least_epsilon(self, clients: int) -> float | None:
        candidates = _three_digits(max(EPSILON_MIN, self.epsilon), EPSILON_MAX)
        return _first(candidates, lambda epsilon: self._works(clients=clients, epsilon=epsilon))

    def _of_total(self, total: float) -> float:
        return min(EPSILON_MAX, epsilon_per_round(self.answers, total, self.delta))

    def _times(self, people: int) -> str:
        times = float(f"{people / self.clients:.3g}")
        return f"{times:,.0f} times" if times >= 100 else f"{times:g} times"


def _first(candidates: Sequence[_Number], enough: Callable[[_Number], bool]) -> _Number | None:
    """The first candidate that suffices, if all later ones do as well."""
    if not candidates or not enough(candidates[-1]):
        return None
    return candidates[bisect_left(candidates, True, key=enough)]


# Short to type, and within 1 % of what is needed.
_THREE_DIGITS = tuple(float(f"{digits}e{power}") for power in range(-4, 11) for digits in range(100, 1000))


def _three_digits(low: float, high: float) -> Sequence[float]:
    """All numbers of three digits from low to high."""
    return _THREE_DIGITS[bisect_left(_THREE_DIGITS, low) : bisect_right(_THREE_DIGITS, high)]


def _with_delta(delta: float) -> str:
    return f" (δ = {delta:g})" if delta else ""


def typed(command: str, arguments: Mapping[str, Any]) -> str:
    """A command with its options, each number with all its digits."""
    options = (f"--{name.replace('_', '-')} {_plain(value)}" for name, value in arguments.items())
    return " ".join([command, *options])


def _plain(value: Any) -> str:
    text = repr(value) if isinstance(value, float) else str(value)
    return text.removesuffix(".0")
