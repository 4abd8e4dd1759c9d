"""Subset selection: shares of many categories from one number per person.

In subset selection (Ye and Barg, *Optimal schemes for discrete distribution estimation under locally differential
privacy*, 2018) a message is a set of w categories, likelier if it holds the person's one. Two families of sets are
here:

- *Whole sets*: all C(k, w) sets of w of the k categories, by number. Inside are the C(k − 1, w − 1) that hold the
  person's category. With w = 1 this is randomized response.
- *Affine sets* are short: with P the least prime that is at least k, they are S = {h: (a·h − t) mod P < w}. The
  multiplier a is drawn without looking at the data; t is one of P candidates, of which the w with the person's category
  in S are inside. Over all a any two categories are together in S equally often, so that how often a category occurs
  gives its share without bias.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sstq import kernels
from sstq.array_types import Bools, Floats, Ints, Words
from sstq.exactness import TOTAL
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.two_level_draw import KClosest, whole_budget
from sstq.randomness import streams

# Whole sets: 25 bits at most, so that with the question of a survey a message has 30.
_MOST_BITS = 25
_TIE = 1e-9  # variances this near to each other differ by rounding only


def prime_at_least(number: int) -> int:
    """The least prime from that number on."""
    while number < 2 or any(
        number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)
    ):
        number += 1
    return number


class HitRates(NamedTuple):
    """How often a message hits the person's category, and any other one; shares come from how often it hits each."""

    own: float
    other: float

    @property
    def gap(self) -> float:
        """By how much the rate of a category grows with its share."""
        return self.own - self.other

    def variance_at(self, share: float) -> float:
        """The variance of one message's estimate of a share, over messages and people."""
        rate = self.other + share * self.gap
        return rate * (1 - rate) / self.gap**2

    def total_variance(self, categories: int) -> float:
        """The variances of all shares from one message: their sum is the same whatever category a person holds."""
        return (
            self.own * (1 - self.own) + (categories - 1) * self.other * (1 - self.other)
        ) / self.gap**2

    def shares(
        self, hits: Floats | Ints, count: int, spread: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Shares and their standard errors, from how many of `count` messages hit each; nan for no message.

        Independent messages leave the variance of a binomial, whose true rate is between those of the person's category
        and of another one: a group that no message hit, or all did, has an error too. `spread` is another variance of
        `hits`, which is taken where it is larger (`AffineSets.spread`).
        """
        if not count:
            return np.full(len(hits), np.nan), np.full(len(hits), np.nan)
        rate = hits / count
        likely = np.clip(rate, self.other, self.own)
        variance = (
            likely * (1 - likely) / (count - 1)
            if count > 1
            else np.full(len(hits), np.nan)
        )
        if spread is not None:
            variance = np.maximum(variance, spread / count**2)
        return (rate - self.other) / self.gap, np.sqrt(variance) / self.gap


def rates_of(own: float, points: int, width: int) -> HitRates:
    """The rates of sets of `width` of some `points`, of which a share `own` holds the person's category."""
    return HitRates(own, (width - own) / (points - 1))


class HitLaw(NamedTuple):
    """How often a message holds a category, the person's one with another, and two other ones."""

    rates: HitRates
    own_pair: float
    pair: float


@dataclass(frozen=True)
class _Sets:
    """The messages of a draw: sets of `width` of some `points`, of which the first are the categories."""

    categories: int
    draw: KClosest
    points: int
    width: int

    @property
    def rates(self) -> HitRates:
        """How often the set holds the person's category, and any other one."""
        return rates_of(self.draw.threshold / TOTAL, self.points, self.width)

    @property
    def law(self) -> HitLaw:
        """The rates of categories and of pairs; of affine sets those of pairs are over all pairs."""
        own = self.rates.own
        others = self.points - 1
        more = self.width - 1
        pair = (
            (own * (more - 1) + (1 - own) * self.width)
            * more
            / (others * max(1, others - 1))
        )
        return HitLaw(self.rates, own * more / others, pair)


@dataclass(frozen=True)
class AffineSets(_Sets):
    """Messages slot·P + t of a frame, where frame and slot give the multiplier; points are those of P.

    Attributes:
        room: the number of messages that there may be; None for as many slots as multipliers.
        seed: the public seed of the multipliers, where there are fewer slots.
    """

    room: int | None = None
    seed: int = 0

    @property
    def multipliers(self) -> int:
        """How many multipliers there are: a and −a give the same sets, and with w = 1 all do."""
        return 1 if self.width == 1 else max(1, self.points // 2)

    @property
    def slots(self) -> int:
        """The multipliers that one frame has room for."""
        return (
            self.multipliers
            if self.room is None
            else min(self.multipliers, self.room // self.points)
        )

    @property
    def codes(self) -> int:
        """The number of messages: pairs of a slot and of t."""
        return self.slots * self.points

    def _multiplier(self, pair: Ints) -> Ints:
        """The multiplier of each frame·slots + slot."""
        if self.slots == self.multipliers:
            return pair % self.slots + 1
        return (
            streams.indices_of(
                self.seed, "shares", pair.astype(np.uint64), self.multipliers
            )
            + 1
        )

    def encode(self, labels: Ints, words: Words, frame: Ints | int = 0) -> Ints:
        """The messages of some people, from three secret words each: a slot from the first, and t by the draw."""
        slot = streams.multiply_shift(words[:, 0], self.slots)
        turned = self._multiplier(frame * self.slots + slot) * labels
        return (
            slot * self.points
            + (turned - self.draw.places(words[:, 1:3])) % self.points
        )

    def hold(self, codes: Ints, categories: Ints) -> Bools:
        """Whether the set of each message holds each of these categories, (n, categories)."""
        pair, place = np.divmod(codes, self.points)
        turned = self._multiplier(pair)[:, None] * categories
        return (turned - place[:, None]) % self.points < self.width

    def hits(self, codes: Ints, counts: Ints) -> Floats:
        """How many of these messages hold each category, (categories,), by the shorter of two ways."""
        if (
            len(codes) * self.width
            < min(len(codes), self.multipliers) * self.categories
        ):
            return self._listed_hits(codes, counts)
        return sum(
            (hits.sum(axis=0) for hits, _ in self._hits(codes, counts)),
            np.zeros(self.categories),
        )

    def _listed_hits(self, codes: Ints, counts: Ints) -> Floats:
        """The hits, by listing the members of each set: h = (t + j)/a mod P for j < w."""
        pair, place = np.divmod(codes, self.points)
        pairs, which = np.unique(pair, return_inverse=True)
        inverses = [pow(int(a), -1, self.points) for a in self._multiplier(pairs)]
        step = np.array(inverses, dtype=np.int64)[which]
        members = kernels.count_walks(
            step * place % self.points, step, counts, self.width, self.points
        )
        return members[: self.categories].astype(np.float64)

    def spread(self, codes: Ints, counts: Ints) -> Floats | None:
        """The variance of `hits` between pairs of frame and slot, of messages frame·codes + code.

        If a frame has room for all multipliers, messages are independent, and this is None. Otherwise all messages of a
        pair have one of few multipliers, drawn once. The K pairs are then independent, messages are not: with h_k hits
        of n_k messages the variance of Σ h_k around its rate r is K/(K − 1)·Σ(h_k − r·n_k)². It holds both what people
        and what multipliers add; nan for one pair.
        """
        if self.slots == self.multipliers:
            return None
        rate = self.hits(codes, counts) / max(1, counts.sum())
        pairs = 0
        squares = np.zeros(self.categories)
        for hits, each in self._hits(codes, counts):
            squares += np.sum((hits - each[:, None] * rate) ** 2, axis=0)
            pairs += len(each)
        return squares * (pairs / (pairs - 1) if pairs > 1 else np.nan)

    def _hits(self, codes: Ints, counts: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield how many messages of each pair, some at a time, hold each category, and how many there are.

        The work grows with the number of pairs times that of categories, not with the messages.
        """
        size = self.points
        wide = self.width
        columns = np.arange(self.categories)
        pair, place = np.divmod(codes, size)
        if self.slots == self.multipliers:
            pair %= self.slots
        order = np.argsort(pair, kind="stable")
        place = place[order]
        count = counts[order]
        pairs, starts, which = np.unique(
            pair[order], return_index=True, return_inverse=True
        )
        starts = np.append(starts, len(pair))
        for part in row_chunks(len(pairs), 4 * size):
            here = slice(starts[part.start], starts[part.stop])
            ends = np.zeros((part.stop - part.start, size + wide), dtype=np.int64)
            np.add.at(ends, (which[here] - part.start, place[here] + wide), count[here])
            each = ends.sum(axis=1)
            ends[:, 1:wide] = ends[:, size + 1 :]
            np.cumsum(ends, axis=1, out=ends)
            # ends[r + w] − ends[r] counts the t with (r − t) mod P < w.
            at = self._multiplier(pairs[part])[:, None] * columns % size
            yield np.take_along_axis(ends[:, wide:] - ends[:, :size], at, axis=1), each


class WholeSets(_Sets):
    """Messages are the numbers C(c₁, 1) + … + C(c_w, w) of sets c₁ < … < c_w; points are the categories."""

    @property
    def codes(self) -> int:
        """The number of messages, which are all sets."""
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
            members[:, i - 1] = (
                np.searchsorted(self._ways[i], numbers, side="right") - 1
            )
            numbers = numbers - self._ways[i, members[:, i - 1]]
        return members

    def encode(self, labels: Ints, words: Words) -> Ints:
        """The set at the place drawn, of which those with the person's category come first; one word is not needed."""
        places = self.draw.places(words[:, 1:3])
        codes = np.empty(len(labels), dtype=np.int64)
        for inside in (True, False):
            who = np.flatnonzero((places < self.draw.inside) == inside)
            label = labels[who, None]
            others = self._members(
                places[who] - (0 if inside else self.draw.inside), self.width - inside
            )
            others += others >= label
            members = (
                np.sort(np.concatenate([others, label], axis=1), axis=1)
                if inside
                else others
            )
            codes[who] = self._ways[np.arange(1, self.width + 1), members].sum(axis=1)
        return codes

    def hold(self, codes: Ints, categories: Ints) -> Bools:
        """Whether the set of each message holds each of these categories, (n, categories)."""
        holds = np.zeros((len(codes), len(categories)), dtype=np.bool_)
        for members in self._members(codes, self.width).T:
            holds |= members[:, None] == categories
        return holds

    def hits(self, codes: Ints, counts: Ints) -> Floats:
        """How many of these messages hold each category, (categories,)."""
        hits = np.zeros(self.categories)
        for part in row_chunks(len(codes), 4 * self.width):
            members = self._members(codes[part], self.width)
            hits += np.bincount(
                members.ravel(), np.repeat(counts[part], self.width), self.categories
            )
        return hits


Sets = WholeSets | AffineSets


def sets_of(categories: int, draw: KClosest) -> Sets:
    """The sets of a draw; ValueError if its numbers are neither those of whole nor those of affine sets."""
    width = draw.inside * categories // draw.size
    prime = prime_at_least(categories)
    # C(k, w) is no prime for 1 < w ≤ k/2, and is at least 2^w.
    if 1 <= width <= min(categories / 2, _MOST_BITS):
        number = math.comb(categories, width)
        if (draw.size, draw.inside) == (
            number,
            number * width // categories,
        ) and number <= 1 << _MOST_BITS:
            return WholeSets(categories, draw, categories, width)
    if draw.size != prime or draw.inside == 1:
        raise ValueError(
            f"size and inside must be C(k, w) and C(k − 1, w − 1) for k = {categories} categories and w up to k/2, or "
            f"{prime} and at least 2, got {draw.size} and {draw.inside}"
        )
    return AffineSets(categories, draw, prime, draw.inside)


def best_sets(epsilon: float, categories: int) -> Sets:
    """The sets with the least sum of the variances of all shares; of equal ones those of the shortest messages."""
    prime = prime_at_least(categories)
    # The best w is near points/(e^ε + 1).
    near = int(prime / (math.exp(epsilon) + 1))
    tried = []
    kinds = [
        (prime, prime * (prime // 2), prime, width)
        for width in range(max(2, near - 1), min(near + 3, prime))
    ]
    for width in range(1, min(near + 2, categories // 2) + 1):
        if (number := math.comb(categories, width)) > 1 << _MOST_BITS:
            break
        kinds.append((categories, number, number, width))
    for points, codes, size, width in kinds:
        rates = rates_of(
            1 / (1 + (points / width - 1) * math.exp(-epsilon)), points, width
        )
        variance = rates.total_variance(categories)
        tried.append((variance, (codes - 1).bit_length(), size, size * width // points))
    least = min(tried)[0] * (1 + _TIE)
    _, size, inside = min(each[1:] for each in tried if each[0] <= least)
    return sets_of(categories, whole_budget(epsilon, size, inside))


def affine_draw(epsilon: float, categories: int) -> KClosest:
    """The draw of affine sets whose w has the least variance at share 0."""
    size = prime_at_least(categories)
    # The optimum is near P/(e^ε + 1).
    least = min(max(1, int(size / (math.exp(epsilon) + 1))), size - 1)
    draws = [
        whole_budget(epsilon, size, inside)
        for inside in range(least, min(least + 2, size))
    ]
    return min(
        draws,
        key=lambda draw: AffineSets(
            categories, draw, size, draw.inside
        ).rates.variance_at(0.0),
    )


def onto_simplex(shares: Floats) -> Floats:
    """The nearest shares that are not negative and sum to 1."""
    ordered = np.sort(shares)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    return np.asarray(
        np.maximum(shares - excess[np.flatnonzero(ordered > excess)[-1]], 0.0)
    )
