"""Subset selection: shares of many categories from one number per person.

In subset selection (Ye and Barg, *Optimal schemes for discrete distribution estimation under locally differential
privacy*, 2018) a message is a set of w categories, likelier if it holds the own one. Two families of sets are here:

- *Whole sets*: all C(k, w) sets of w of the k categories, by number. Inside are the C(k − 1, w − 1) that hold the own
  category. With w = 1 this is randomized response.
- *Affine sets* are short: with P the least prime that is at least k, they are S = {h: (a·h − t) mod P < w}. The
  multiplier a is drawn without looking at the data; t is one of P candidates, of which the w with the own category in S
  are inside. Over all a any two categories are together in S equally often, so that how often a category occurs gives
  its share without bias.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.exactness import TOTAL
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Floats, Ints, Words
from sstq.mechanisms.two_level_draw import KClosest, whole_budget
from sstq.randomness import streams

# Whole sets: 25 bits at most, so that with the question of a survey a message has 30.
_MOST_SETS = 1 << 25
_TIE = 1e-9  # variances this near to each other differ by rounding only


def prime_at_least(number: int) -> int:
    """The least prime from that number on."""
    while number < 2 or any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)):
        number += 1
    return number


def multipliers(draw: KClosest) -> int:
    """How many multipliers there are: a and −a give the same sets, and with w = 1 all do."""
    return 1 if draw.inside == 1 else max(1, draw.size // 2)


def hit_rates(draw: KClosest) -> tuple[float, float]:
    """How often an affine set holds the own category, and any other one."""
    own = draw.threshold / TOTAL
    return own, (draw.inside - own) / (draw.size - 1)


def share_variance(own: float, other: float) -> float:
    """The variance of one message's estimate of the share of a category that nobody has."""
    return other * (1 - other) / (own - other) ** 2


def affine_draw(epsilon: float, categories: int) -> KClosest:
    """The draw among P candidates whose w has the least variance at share 0."""
    size = prime_at_least(categories)
    # The optimum is near P/(e^ε + 1).
    least = min(max(1, int(size / (math.exp(epsilon) + 1))), size - 1)
    draws = [whole_budget(epsilon, size, inside) for inside in range(least, min(least + 2, size))]
    return min(draws, key=lambda draw: share_variance(*hit_rates(draw)))


def count_hits(
    draw: KClosest, categories: int, factors: Ints, which: Ints, place: Ints, count: Ints
) -> Iterator[tuple[slice, Ints]]:
    """Yield how many messages of each factor, some at a time, have each category in their set, (factors, categories).

    There are `count` messages with factors[which] and t = `place`. The work grows with the number of factors times that
    of categories, not with the messages.
    """
    size, wide, columns = draw.size, draw.inside, np.arange(categories)
    order = np.argsort(which, kind="stable")
    which, place, count = which[order], place[order], count[order]
    starts = np.searchsorted(which, np.arange(len(factors) + 1))
    for part in row_chunks(len(factors), 4 * size):
        here, rows = slice(starts[part.start], starts[part.stop]), part.stop - part.start
        ends = np.zeros((rows, size + wide), dtype=np.int64)
        np.add.at(ends, (which[here] - part.start, place[here] + wide), count[here])
        ends[:, 1:wide] = ends[:, size + 1 :]
        np.cumsum(ends, axis=1, out=ends)
        # ends[r + w] − ends[r] counts the t with (r − t) mod P < w.
        at = factors[part, None] * columns % size
        yield part, np.take_along_axis(ends[:, wide:] - ends[:, :size], at, axis=1)


@dataclass(frozen=True)
class Sets(ABC):
    """The messages of a draw: sets of `width` of some `points`, of which the first are the categories."""

    categories: int
    draw: KClosest
    points: int
    width: int

    @property
    def rates(self) -> tuple[float, float]:
        """How often the set holds the own category, and any other one."""
        own = self.draw.threshold / TOTAL
        return own, (self.width - own) / (self.points - 1)

    @property
    @abstractmethod
    def codes(self) -> int:
        """The number of messages that there can be."""

    @abstractmethod
    def encode(self, labels: Ints, words: Words) -> Ints:
        """The messages of some people, from three secret words each."""

    @abstractmethod
    def holding(self, codes: Ints, category: int) -> NDArray[np.bool_]:
        """Whether the set of each message holds a category, (n,)."""

    @abstractmethod
    def held(self, codes: Ints) -> NDArray[np.bool_]:
        """Whether the set of each message holds each category, (n, categories)."""

    @abstractmethod
    def hits(self, codes: Ints, counts: Ints) -> Floats:
        """How many of these messages hold each category, (categories,)."""


class AffineSets(Sets):
    """Messages slot·P + t, the multiplier being slot + 1; points are those of P."""

    @property
    def codes(self) -> int:
        """The pairs of a slot and of t."""
        return multipliers(self.draw) * self.points

    def encode(self, labels: Ints, words: Words) -> Ints:
        """A slot from the first word, and t by the draw."""
        slot = streams.multiply_shift(words[:, 0], multipliers(self.draw))
        return slot * self.points + ((slot + 1) * labels - self.draw.places(words[:, 1:3])) % self.points

    def holding(self, codes: Ints, category: Any) -> NDArray[np.bool_]:
        """By the definition of the sets."""
        slot, place = np.divmod(codes, self.points)
        return np.asarray(((slot + 1) * category - place) % self.points < self.width)

    def held(self, codes: Ints) -> NDArray[np.bool_]:
        """By the definition of the sets."""
        return self.holding(codes[:, None], np.arange(self.categories))

    def hits(self, codes: Ints, counts: Ints) -> Floats:
        """Slot by slot."""
        slot, place = np.divmod(codes, self.points)
        slots, which = np.unique(slot, return_inverse=True)
        hits = np.zeros(self.categories)
        for _, inside in count_hits(self.draw, self.categories, slots + 1, which, place, counts):
            hits += inside.sum(axis=0)
        return hits


class WholeSets(Sets):
    """Messages are the numbers C(c₁, 1) + … + C(c_w, w) of sets c₁ < … < c_w; points are the categories."""

    @property
    def codes(self) -> int:
        """The number of sets."""
        return self.draw.size

    @cached_property
    def _ways(self) -> Ints:
        """C(c, i) for i up to w and c up to k, (w + 1, k + 1): a row has the sums of the one before."""
        table = np.ones((self.width + 1, self.categories + 1), dtype=np.int64)
        for i in range(1, self.width + 1):
            table[i] = np.cumsum(table[i - 1]) - table[i - 1]
        return table

    def _members(self, numbers: Ints, width: int) -> Ints:
        """The sets of that width with these numbers, ascending, (n, width)."""
        members = np.empty((len(numbers), width), dtype=np.int64)
        for i in range(width, 0, -1):
            # The largest c with C(c, i) ≤ number.
            members[:, i - 1] = np.searchsorted(self._ways[i], numbers, side="right") - 1
            numbers = numbers - self._ways[i, members[:, i - 1]]
        return members

    def encode(self, labels: Ints, words: Words) -> Ints:
        """The set at the place drawn, of which those with the own category are the first; one word is not needed."""
        places, codes = self.draw.places(words[:, 1:3]), np.empty(len(labels), dtype=np.int64)
        for inside in (True, False):
            who = np.flatnonzero((places < self.draw.inside) == inside)
            own = labels[who, None]
            others = self._members(places[who] - (0 if inside else self.draw.inside), self.width - inside)
            others += others >= own
            members = np.sort(np.concatenate([others, own], axis=1), axis=1) if inside else others
            codes[who] = self._ways[np.arange(1, self.width + 1), members].sum(axis=1)
        return codes

    def holding(self, codes: Ints, category: int) -> NDArray[np.bool_]:
        """By the members."""
        parts = row_chunks(len(codes), 4 * self.width)
        found = [(self._members(codes[part], self.width) == category).any(axis=1) for part in parts]
        return np.concatenate([np.empty(0, dtype=np.bool_), *found])

    def held(self, codes: Ints) -> NDArray[np.bool_]:
        """By the members."""
        marks = np.zeros((len(codes), self.categories), dtype=np.bool_)
        np.put_along_axis(marks, self._members(codes, self.width), True, axis=1)
        return marks

    def hits(self, codes: Ints, counts: Ints) -> Floats:
        """By the members."""
        hits = np.zeros(self.categories)
        for part in row_chunks(len(codes), 4 * self.width):
            members = self._members(codes[part], self.width)
            hits += np.bincount(members.ravel(), np.repeat(counts[part], self.width), self.categories)
        return hits


def sets_of(categories: int, draw: KClosest) -> Sets:
    """The sets of a draw; ValueError if its numbers are neither those of whole nor those of affine sets."""
    width, prime = draw.inside * categories // draw.size, prime_at_least(categories)
    # C(k, w) is no prime for 1 < w ≤ k/2.
    if 1 <= width <= categories / 2 and _whole(categories, width) == (draw.size, draw.inside):
        return WholeSets(categories, draw, categories, width)
    if draw.size != prime or draw.inside == 1:
        raise ValueError(
            f"size and inside must be C(k, w) and C(k − 1, w − 1) for k = {categories} categories and w up to k/2, or "
            f"{prime} and at least 2, got {draw.size} and {draw.inside}"
        )
    return AffineSets(categories, draw, prime, draw.inside)


def _whole(categories: int, width: int) -> tuple[int, int] | None:
    """How many sets there are and how many of them hold a given category; None for too many."""
    number = 1
    for i in range(width):
        number = number * (categories - i) // (i + 1)
        if number > _MOST_SETS:
            return None
    return number, number * width // categories


def total_variance(categories: int, own: float, other: float) -> float:
    """The variances of all shares from one message: their sum is the same whatever category a person holds."""
    return (own * (1 - own) + (categories - 1) * other * (1 - other)) / (own - other) ** 2


def best_sets(epsilon: float, categories: int) -> Sets:
    """The sets with the least sum of the variances of all shares; of equal ones those of the shortest messages."""
    prime = prime_at_least(categories)
    # The best w is near points/(e^ε + 1).
    near = int(prime / (math.exp(epsilon) + 1))
    found = []

    def consider(codes: int, size: int, inside: int, points: int, width: int) -> None:
        own = 1 / (1 + (points / width - 1) * math.exp(-epsilon))
        variance = total_variance(categories, own, (width - own) / (points - 1))
        found.append((variance, (codes - 1).bit_length(), size, inside))

    for width in range(1, min(near + 2, categories // 2) + 1):
        if (sizes := _whole(categories, width)) is None:
            break
        consider(sizes[0], *sizes, categories, width)
    for width in range(max(2, near - 1), min(near + 3, prime)):
        consider(prime * (prime // 2), prime, width, prime, width)
    least = min(found)[0] * (1 + _TIE)
    _, size, inside = min(each[1:] for each in found if each[0] <= least)
    return sets_of(categories, whole_budget(epsilon, size, inside))


def shares_from_hits(
    hits: Floats | Ints, count: int, own: float, other: float, clustered: Floats | None = None
) -> tuple[Floats, Floats]:
    """Shares and their standard errors, from how many of `count` messages hold each; nan for no message.

    Independent messages leave the variance of a binomial, whose true rate is between `other` and `own`: a group that
    no message hit, or all did, has an error too. `clustered` is another variance of `hits`, which is taken where it is
    larger (`sstq.mechanisms.groupunit.shares`).

    Examples:
        >>> shares, errors = shares_from_hits(np.array([0, 50]), 100, own=0.5, other=0.1)
        >>> shares.tolist(), errors.round(3).tolist()
        ([-0.25, 1.0], [0.075, 0.126])
    """
    if not count:
        return np.full(len(hits), np.nan), np.full(len(hits), np.nan)
    rate = hits / count
    likely = np.clip(rate, other, own)
    variance = likely * (1 - likely) / (count - 1) if count > 1 else np.full(len(hits), np.nan)
    if clustered is not None:
        variance = np.maximum(variance, clustered / count**2)
    return (rate - other) / (own - other), np.sqrt(variance) / (own - other)


def onto_simplex(shares: Floats) -> Floats:
    """The nearest shares that are not negative and sum to 1.

    Examples:
        >>> onto_simplex(np.array([1.1, -0.2]))
        array([1., 0.])
    """
    ordered = np.sort(shares)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    return np.asarray(np.maximum(shares - excess[np.flatnonzero(ordered > excess)[-1]], 0.0))
