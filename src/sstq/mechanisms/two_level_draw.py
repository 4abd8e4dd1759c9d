"""Drawing one of M candidates, well aligned ones with an exactly bounded preference; and normal order statistics.

A 62-bit word below a threshold T means inside (one of the i well aligned candidates), and a second word picks uniformly
on its side, as ⌊word·i/2^62⌋. A candidate of a side with i members has ⌊2^62/i⌋ or ⌈2^62/i⌉ of the 2^62 second words:
all probabilities are rationals, which are compared exactly.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sstq.checks import check_number
from sstq.exactness import TOTAL, WORD_BITS, exp_lower
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Floats, Ints, Words
from sstq.mechanisms.laws import Law
from sstq.randomness.secret import channel_words

_HALF_BITS = WORD_BITS // 2


def draw_codes(order: Ints, inside: Ints | int, threshold: Words | np.uint64, words: Words) -> Ints:
    """One of the candidates of each row of `order`, (n, M), those inside first; two secret words per row."""
    places = draw_places(order.shape[1], inside, threshold, words)
    return np.take_along_axis(order, places[:, None], axis=1)[:, 0]


def draw_places(size: int, inside: Ints | int, threshold: Words | np.uint64, words: Words) -> Ints:
    """The place of the candidate drawn, those inside first; the threshold T is 0 if none is inside and 2^62 if all."""
    is_inside = channel_words(words[:, 0]) < threshold
    members = np.where(is_inside, inside, size - inside)
    return uniform_below(words[:, 1], members) + np.where(is_inside, 0, inside)


def uniform_below(words: Words, limits: Ints) -> Ints:
    """⌊w·limit/2^62⌋ of the high 62 bits w of each word, exactly, for limits up to 2^31."""
    bits = channel_words(words).astype(np.int64)
    high, low = bits >> _HALF_BITS, bits & ((1 << _HALF_BITS) - 1)
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

    def draw(self, scores: Floats, words: Words) -> Ints:
        """One candidate of each row, from its scores (n, M) and two secret words; ties go to the smaller index."""
        order = np.argsort(-scores, axis=1, kind="stable")
        return draw_codes(order, self.inside, np.uint64(self.threshold), words)

    def places(self, words: Words) -> Ints:
        """The place of the candidate drawn, from two secret words per row; those inside come first."""
        return draw_places(self.size, self.inside, np.uint64(self.threshold), words)

    @property
    def probabilities(self) -> tuple[float, float]:
        """The probabilities of one candidate inside and of one outside."""
        outside = self.size - self.inside
        return self.threshold / TOTAL / self.inside, (TOTAL - self.threshold) / TOTAL / outside

    def moments(self) -> tuple[float, float]:
        """E[t] and E[t²] of the score t drawn, the scores being independent standard normal."""
        first, second = (float(np.sum(values[: self.inside])) for values in normal_order_statistics(self.size))
        inside, outside = self.probabilities
        return first * (inside - outside), second * inside + (self.size - second) * outside


def k_closest(epsilon: float, size: int, error: Callable[[Floats, Floats], Floats]) -> KClosest:
    """The draw with the whole budget and the k of least error, a function of E[t] and E[t²] of the score drawn."""
    inside = np.arange(1, size)
    tops, squares = (np.cumsum(values)[:-1] for values in normal_order_statistics(size))
    # With e^ε·q for each candidate inside and q for each other: differences of the form e^ε − 1 keep their digits.
    other = 1 / (size + inside * math.expm1(epsilon))
    first = tops * math.expm1(epsilon) * other
    second = (size + squares * math.expm1(epsilon)) * other
    return whole_budget(epsilon, size, int(inside[np.argmin(error(first, second))]))


def whole_budget(epsilon: float, size: int, inside: int) -> KClosest:
    """The draw with the whole budget.

    T is the largest integer with T·⌈2^62/k⌉ ≤ E·(2^62 − T)·⌊2^62/(M − k)⌋, E being just below e^ε.
    """
    upper, lower, bound = -(-TOTAL // inside), TOTAL // (size - inside), exp_lower(epsilon)
    return KClosest(size, inside, math.floor(bound * TOTAL * lower / (upper + bound * lower)))


@lru_cache(maxsize=16)
def normal_order_statistics(count: int) -> tuple[Floats, Floats]:
    """E[t] and E[t²] of the order statistics of independent standard normal numbers, the largest first.

    The density of the one that j others exceed is n·C(n−1, j)·Q(x)^j·Φ(x)^(n−1−j)·φ(x), analytic and of width at least
    about 1.25/√n, so that the trapezoidal rule with smaller steps is right to about 12 digits.
    """
    from scipy.special import gammaln, log_ndtr

    step = min(0.05, 0.3 / math.sqrt(count))
    x = step * np.arange(-math.ceil(10 / step), math.ceil(10 / step) + 1)
    weights = step * count * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    powers: Floats = np.stack([weights * x, weights * x**2], axis=1)
    below, above = log_ndtr(x), log_ndtr(-x)
    moments = np.empty((count, 2))
    for part in row_chunks(count, len(x)):
        j = np.arange(part.start, part.stop)[:, None]
        ways: Any = gammaln(count) - gammaln(j + 1) - gammaln(count - j)
        moments[part] = np.exp(ways + j * above + (count - 1 - j) * below) @ powers
    moments.flags.writeable = False
    return moments[:, 0], moments[:, 1]
