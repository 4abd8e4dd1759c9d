"""Shares of groups from people who send their group only: subset selection, one number per message.

In subset selection (Ye and Barg, *Optimal schemes for discrete distribution estimation under locally differential
privacy*, 2018) a message is a set of w groups, likelier if it holds the own one. Here sets are short: with P the least
prime that is at least the number of groups, they are S = {h: (a·h − t) mod P < w}. The multiplier a is drawn without
looking at the data; t is one of P candidates, of which the w with the own group in S are inside. Over all a any two
groups are together in S equally often, so that how often a group occurs gives its share without bias.
"""

import math
from dataclasses import dataclass

import numpy as np

from sstq.chunks import row_chunks
from sstq.exactness import TOTAL
from sstq.mechanisms.base import Floats, Ints, Words
from sstq.mechanisms.two_level_draw import KClosest, whole_budget
from sstq.randomness import streams


def best_share_draw(epsilon: float, groups: int) -> KClosest:
    """The draw among P candidates whose w has the least variance."""
    size = prime_at_least(groups)
    # The optimum is near P/(e^ε + 1).
    least = min(max(1, int(size / (math.exp(epsilon) + 1))), size - 1)
    draws = [whole_budget(epsilon, size, inside) for inside in range(least, min(least + 2, size))]
    return min(draws, key=lambda draw: _variance(*hit_rates(draw)))


def prime_at_least(number: int) -> int:
    """The least prime from that number on."""
    while number < 2 or any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)):
        number += 1
    return number


def hit_rates(draw: KClosest) -> tuple[float, float]:
    """How often the set holds the own group, and any other one."""
    own = draw.threshold / TOTAL
    return own, (draw.inside - own) / (draw.size - 1)


def _variance(own: float, other: float) -> float:
    return other * (1 - other) / (own - other) ** 2


def shares_from_hits(
    hits: Ints, count: int, own: float, other: float, clustered: Floats | None = None
) -> tuple[Floats, Floats]:
    """Shares of groups and their standard errors, from how many of `count` messages hit each; nan for no message.

    Independent messages leave the variance of a binomial. `clustered` is another variance of `hits`, which is taken
    where it is larger (`ShareCodes.hits`).
    """
    if not count:
        return np.full(len(hits), np.nan), np.full(len(hits), np.nan)
    rate = hits / count
    variance = rate * (1 - rate) / (count - 1) if count > 1 else np.full(len(hits), np.nan)
    if clustered is not None:
        variance = np.maximum(variance, clustered / count**2)
    return (rate - other) / (own - other), np.sqrt(variance) / (own - other)


@dataclass(frozen=True)
class ShareCodes:
    """The messages of people who send their group only: slot·P + t, where frame and slot give the multiplier.

    Attributes:
        draw: w of P candidates inside.
        groups: the number of groups, at most P.
        room: the number of codes that a message has room for.
        seed: the public seed, where there are fewer slots than multipliers.
    """

    draw: KClosest
    groups: int
    room: int
    seed: int

    @property
    def multipliers(self) -> int:
        """How many there are: a and −a give the same sets, and with w = 1 all do."""
        return 1 if self.draw.inside == 1 else max(1, self.draw.size // 2)

    @property
    def slots(self) -> int:
        """The multipliers that one frame has room for."""
        return min(self.multipliers, self.room // self.draw.size)

    @property
    def codes(self) -> int:
        """How many codes there are."""
        return self.slots * self.draw.size

    def _multiplier(self, frame: Ints, slot: Ints) -> Ints:
        if self.slots == self.multipliers:
            return slot + 1
        identifiers = (frame * self.slots + slot).astype(np.uint64)
        return streams.indices_of(self.seed, "shares", identifiers, self.multipliers) + 1

    def encode(self, group: Ints, frame: Ints, words: Words) -> Ints:
        """The codes of some people, from three secret words each: the slot, and two for the draw."""
        slot, size = streams.multiply_shift(words[:, 0], self.slots), self.draw.size
        return slot * size + (self._multiplier(frame, slot) * group - self.draw.places(words[:, 1:3])) % size

    def hits(self, frame: Ints, code: Ints, count: Ints) -> tuple[Ints, Floats | None]:
        """How many messages have each group in their set, and the variance of that between pairs of frame and slot.

        `count` is the number of messages of each frame and code. If a frame has room for all multipliers, messages are
        independent, and the variance is None. Otherwise all messages of a pair have one of few multipliers, drawn
        once. The K pairs are then independent, messages are not: with h_k hits of n_k messages the variance of Σ h_k
        around its rate r is K/(K − 1)·Σ(h_k − r·n_k)². It holds both what people and what multipliers add; nan for one
        pair.
        """
        size, wide, groups = self.draw.size, self.draw.inside, np.arange(self.groups)
        sent = count > 0
        frame, code, count = frame[sent], code[sent], count[sent]
        slot, place = np.divmod(code, size)
        drawn = self.slots < self.multipliers
        pairs, which = np.unique(frame * self.slots + slot if drawn else slot, return_inverse=True)
        factors = self._multiplier(*np.divmod(pairs, self.slots))
        found, moments = np.zeros(self.groups, dtype=np.int64), np.zeros((3, self.groups))
        for part in row_chunks(len(pairs), 4 * size):
            held = (which >= part.start) & (which < part.stop)
            at = np.zeros((part.stop - part.start, size), dtype=np.int64)
            np.add.at(at, (which[held] - part.start, place[held]), count[held])
            ends = np.cumsum(np.concatenate([np.zeros_like(at[:, :1]), at[:, size - wide + 1 :], at], axis=1), axis=1)
            # ends[r + w] − ends[r] counts the t with (r − t) mod P < w.
            inside = np.take_along_axis(ends[:, wide:] - ends[:, :-wide], factors[part, None] * groups % size, axis=1)
            total = at.sum(axis=1, keepdims=True)
            found += inside.sum(axis=0)
            moments += np.stack([inside**2, inside * total, np.broadcast_to(total**2, inside.shape)]).sum(axis=1)
        if not drawn:
            return found, None
        if len(pairs) < 2:
            return found, np.full(self.groups, np.nan)
        rate = found / count.sum()
        spread = moments[0] - 2 * rate * moments[1] + rate**2 * moments[2]
        return found, spread * len(pairs) / (len(pairs) - 1)
