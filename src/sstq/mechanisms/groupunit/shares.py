"""Shares of groups from people who send their group only, by subset selection (`sstq.mechanisms.subsets`).

The multiplier follows from the frame and the slot of a message; both are drawn without looking at the data.
"""

from dataclasses import dataclass

import numpy as np

from sstq.mechanisms.base import Floats, Ints, Words
from sstq.mechanisms.subsets import count_hits, multipliers
from sstq.mechanisms.two_level_draw import KClosest
from sstq.randomness import streams


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
        """How many there are."""
        return multipliers(self.draw)

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
        sent = count > 0
        slot, place = np.divmod(code[sent], self.draw.size)
        drawn = self.slots < self.multipliers
        pairs, which = np.unique(frame[sent] * self.slots + slot if drawn else slot, return_inverse=True)
        factors = self._multiplier(*np.divmod(pairs, self.slots))
        each = np.bincount(which, weights=count[sent])
        hits, moments = np.zeros(self.groups, dtype=np.int64), np.zeros((2, self.groups))
        for part, inside in count_hits(self.draw, self.groups, factors, which, place, count[sent]):
            hits += inside.sum(axis=0)
            moments += np.stack([np.sum(inside**2, axis=0), each[part] @ inside])
        if not drawn:
            return hits, None
        if len(pairs) < 2:
            return hits, np.full(self.groups, np.nan)
        rate = hits / each.sum()
        spread = moments[0] - 2 * rate * moments[1] + rate**2 * float(each @ each)
        return hits, spread * len(pairs) / (len(pairs) - 1)
