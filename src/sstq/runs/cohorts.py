"""Who answers in which round, chosen without looking at data: every person as often as was promised, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_argument, check_number
from sstq.randomness.streams import words, words_of

__all__ = ["Cohorts", "Participation", "answers_of", "next_in_turn"]

Participation = int | Literal["once"]

_PURPOSE = "cohorts"


def answers_of(participation: Any) -> int:
    """The rounds in which a person answers: "once", or their number.

    Examples:
        >>> answers_of("once"), answers_of(3)
        (1, 3)
        >>> answers_of("often")
        Traceback (most recent call last):
        ...
        ValueError: participation must be 'once' or an integer in [1, 1000000000], got 'often'
    """
    try:
        return 1 if participation == "once" else int(check_argument("participation", participation, of="rounds"))
    except ValueError as error:
        raise ValueError(str(error).replace("be an integer", "be 'once' or an integer", 1)) from error


@dataclass(frozen=True)
class Cohorts:
    """A schedule: each of so many people answers in exactly k of T rounds, and rounds differ by one person at most.

    All people stand in one public random order, which is gone through k times; each round takes the next ⌊nk/T⌋ or
    ⌈nk/T⌉ of them. A round is at most once around, so nobody is in it twice. With k = 1 the cohorts are disjoint, and
    if k divides T the same T/k cohorts come k times.

    A cohort is a function of the seed and the round's number alone: a run that was cut short goes on with the same one.

    Args:
        people: n.
        rounds: T.
        answers: k, at most T.

    Examples:
        >>> cohorts = Cohorts(people=7, rounds=3, answers=1)
        >>> [cohorts.members(seed=0, number=number).tolist() for number in (1, 2, 3)]
        [[0, 1], [3, 6], [2, 4, 5]]
        >>> Cohorts(people=6_000, rounds=60, answers=1).size
        100
    """

    people: int
    rounds: int
    answers: int = 1

    def __post_init__(self) -> None:
        check_argument("people", self.people, of="crowd")
        check_argument("rounds", self.rounds)
        check_number("participation", self.answers, 1, self.rounds, integer=True)
        if self.people * self.answers < self.rounds:
            most = self.people * self.answers
            raise ValueError(
                f"rounds must be at most {most}, one for each answer of {self.people} people, got {self.rounds}"
            )

    @property
    def size(self) -> int:
        """The people of the largest cohort."""
        return -(-self.people * self.answers // self.rounds)

    @property
    def least(self) -> int:
        """The people of the smallest cohort."""
        return self.people * self.answers // self.rounds

    def members(self, seed: int, number: int) -> NDArray[np.int64]:
        """The people of a round (numbers 1 … T), ascending, as numbers 0 … n − 1."""
        number = check_number("round_number", number, 1, self.rounds, integer=True)
        order = np.argsort(words(seed, _PURPOSE, self.people), kind="stable")
        places = np.arange(self._places(number - 1), self._places(number)) % self.people
        return np.sort(order[places])

    def answers_after(self, number: int) -> int:
        """The most answers that a person has given after so many rounds."""
        return -(-self._places(number) // self.people)

    def answered(self, seed: int, number: int) -> NDArray[np.int64]:
        """How often each person has answered after so many rounds, (n,)."""
        order = np.argsort(words(seed, _PURPOSE, self.people), kind="stable")
        laps, rest = divmod(self._places(number), self.people)
        counts = np.full(self.people, laps, dtype=np.int64)
        counts[order[:rest]] += 1
        return counts

    def _places(self, number: int) -> int:
        """The places in the k laps that so many rounds take."""
        return number * self.people * self.answers // self.rounds


def next_in_turn(people: Iterable[int], asked: Mapping[int, int], answers: int, size: int, seed: int) -> list[int]:
    """At most `size` of the people that may still be asked: those asked least often first, in a public random order.

    For a crowd that comes and goes, where no schedule can be made beforehand.

    Args:
        people: who is there, by numbers below 2^64.
        asked: how often each was asked; those that are not in it never were.
        answers: how often each may be asked.
        size: of a cohort.
        seed: of the order.

    Examples:
        >>> next_in_turn([10, 11, 12, 13], {10: 1}, answers=1, size=2, seed=0)
        [11, 12]
    """
    able = np.array(sorted(person for person in people if asked.get(person, 0) < answers), dtype=np.uint64)
    turns = np.array([asked.get(int(person), 0) for person in able], dtype=np.int64)
    first = np.lexsort((words_of(seed, _PURPOSE, able), turns))[:size]
    return sorted(int(person) for person in able[first])
