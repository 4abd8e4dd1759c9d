"""A source of randomness that hands out words of one's choice, to drive an encoder through all that it can do."""

import numpy as np


class ScriptedBits:
    """Hands out the given words in order (zeros without), and notes how many are asked for at a time."""

    simulated = True

    def __init__(self, words=None):
        self._remaining = None if words is None else np.asarray(words, dtype=np.uint64).reshape(-1)
        self.counts = []

    def words(self, count):
        self.counts.append(count)
        if self._remaining is None:
            return np.zeros(count, dtype=np.uint64)
        assert count <= len(self._remaining)
        drawn, self._remaining = self._remaining[:count], self._remaining[count:]
        return drawn
