"""Drawing one of M candidates, well aligned ones with an exactly bounded preference.

A 62-bit word below a threshold T means inside (one of the i well aligned candidates), and a second word picks uniformly
on its side, as ⌊word·i/2^62⌋. A candidate of a side with i members has ⌊2^62/i⌋ or ⌈2^62/i⌉ of the 2^62 second words:
all probabilities are rationals, which are compared exactly.
"""

import math
from dataclasses import dataclass

import numpy as np

from sstq.array_types import Ints, Words
from sstq.checks import check_number
from sstq.exactness import TOTAL, WORD_BITS, exp_lower
from sstq.randomness.secret import channel_words
from sstq.scalar.laws import Law

_HALF_BITS = WORD_BITS // 2


def uniform_below(words: Words, limits: Ints) -> Ints:
    """⌊w·limit/2^62⌋ of the high 62 bits w of each word, exactly, for limits up to 2^31."""
    bits = channel_words(words).astype(np.int64)
    high = bits >> _HALF_BITS
    low = bits & ((1 << _HALF_BITS) - 1)
    return (high * limits + (low * limits >> _HALF_BITS)) >> _HALF_BITS


@dataclass(frozen=True)
class KClosest:
    """Exactly k = `inside` of M = `size` ≤ 2^31 candidates are inside, those of the highest score.

    One of those inside is drawn with probability `threshold`/2^62.
    """

    size: int
    inside: int
    threshold: int

    def __post_init__(self) -> None:
        check_number("inside", self.inside, 1, self.size - 1, integer=True)
        check_number("threshold", self.threshold, 1, TOTAL - 1, integer=True)

    def law(self) -> Law:
        """All probabilities: always k candidates are inside."""
        return Law("two-level", self.size, [(self.inside, self.threshold)])

    def privacy_loss(self) -> float:
        """The logarithm of the largest ratio of two candidates, rounded up to a double."""
        return self.law().privacy_loss()

    def places(self, words: Words) -> Ints:
        """The place of the candidate drawn, from two secret words per row; those inside come first."""
        is_inside = channel_words(words[:, 0]) < np.uint64(self.threshold)
        members = np.where(is_inside, self.inside, self.size - self.inside)
        return uniform_below(words[:, 1], members) + np.where(is_inside, 0, self.inside)

    @property
    def probabilities(self) -> tuple[float, float]:
        """The probabilities of one candidate inside and of one outside."""
        outside = self.size - self.inside
        return self.threshold / TOTAL / self.inside, (
            TOTAL - self.threshold
        ) / TOTAL / outside


def whole_budget(epsilon: float, size: int, inside: int) -> KClosest:
    """The draw with the whole budget.

    T is the largest integer with T·⌈2^62/k⌉ ≤ E·(2^62 − T)·⌊2^62/(M − k)⌋, E being just below e^ε.
    """
    upper = -(-TOTAL // inside)
    lower = TOTAL // (size - inside)
    bound = exp_lower(epsilon)
    return KClosest(
        size, inside, math.floor(bound * TOTAL * lower / (upper + bound * lower))
    )
