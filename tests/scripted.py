"""Driving an encoder through all that it can do: words of one's choice, the steps of a draw, the ratio of the laws."""

from fractions import Fraction
from itertools import pairwise

import numpy as np

from sstq.exactness import TOTAL


class ScriptedBits:
    """Hands out the given words in order (zeros without), and notes how many are asked for at a time."""

    simulated = True

    def __init__(self, words=None):
        self._remaining = (
            None if words is None else np.asarray(words, dtype=np.uint64).reshape(-1)
        )
        self.counts = []

    def words(self, count):
        self.counts.append(count)
        if self._remaining is None:
            return np.zeros(count, dtype=np.uint64)
        assert count <= len(self._remaining)
        drawn = self._remaining[:count]
        self._remaining = self._remaining[count:]
        return drawn


def steps(draw):
    """Both ends of every step of the two words of a two-level draw, and the probability of the step."""
    for first, mass, members in (
        ((0, draw.threshold - 1), draw.threshold, draw.inside),
        ((draw.threshold, TOTAL - 1), TOTAL - draw.threshold, draw.size - draw.inside),
    ):
        starts = [-(-TOTAL * i // members) for i in range(members + 1)]
        for start, end in pairwise(starts):
            yield (
                [(a << 2, b << 2) for a in first for b in (start, end - 1)],
                Fraction(mass * (end - start), TOTAL**2),
            )


def law_of(mechanism, draw, row, first, *rest):
    """The exact distribution of a message's number, {number: probability}, for somebody with this row.

    It is a step function of the two words of the draw, of which both ends of every step are encoded; the words before
    and after them are given.
    """
    script, masses = zip(*steps(draw), strict=True)
    words = np.array(
        [(first, *pair, *rest) for four in script for pair in four], dtype=np.uint64
    )
    source = ScriptedBits(words[:, : mechanism.words_each])
    sent = mechanism.encode_rows(np.tile(row, (len(words), 1)), source, None)[
        0
    ].reshape(-1, 4)
    assert np.all(sent == sent[:, :1])
    law = {}
    for number, mass in zip(sent[:, 0].tolist(), masses, strict=True):
        law[number] = law.get(number, Fraction(0)) + mass
    assert sum(law.values()) == 1
    return law


def largest_ratio(laws):
    """The largest ratio of the probabilities of one message over all pairs of laws; ZeroDivisionError if unbounded."""
    return max(
        max(column) / min(column)
        for column in zip(*set(map(tuple, laws)), strict=True)
        if max(column)
    )
