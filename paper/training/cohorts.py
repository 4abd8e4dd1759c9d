"""Cohorts: who answers in which round, chosen without looking at data, each person exactly as often as promised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_argument, check_number
from sstq.randomness.streams import words

_PURPOSE = "cohorts"


@dataclass(frozen=True)
class Cohorts:
    """A schedule: each of n people answers in exactly k of T rounds, and cohorts differ by at most one person.

    All people are in one public random order, which is traversed k times; each round takes the next ⌊nk/T⌋ or
    ⌈nk/T⌉ of them. A round takes at most one whole traversal, so nobody is in it twice. With k = 1 they are disjoint;
    if k divides T, the same T/k cohorts repeat k times.

    A cohort is a function of the seed and the round's number alone, so a resumed run continues with the same one.
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
                f"rounds must be at most {most}, one per answer of {self.people} people, got {self.rounds}"
            )

    @property
    def size(self) -> int:
        """The number of people in the largest cohort."""
        return -(-self.people * self.answers // self.rounds)

    def members(self, seed: int, number: int) -> NDArray[np.int64]:
        """Return the people of a round (1 … T), as ascending numbers 0 … n − 1."""
        number = check_number("round_number", number, 1, self.rounds, integer=True)
        order = np.argsort(words(seed, _PURPOSE, self.people), kind="stable")
        places = np.arange(self._places(number - 1), self._places(number)) % self.people
        return np.sort(order[places])

    def answers_after(self, number: int) -> int:
        """Return the most answers that any person has given after this many rounds."""
        return -(-self._places(number) // self.people)

    def _places(self, number: int) -> int:
        """The places in the k laps that so many rounds take."""
        return number * self.people * self.answers // self.rounds
