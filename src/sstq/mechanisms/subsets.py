"""Subset selection with short sets: shares of many categories from one number per person.

In subset selection (Ye and Barg, *Optimal schemes for discrete distribution estimation under locally differential
privacy*, 2018) a message is a set of w categories, likelier if it holds the own one. Here sets are short: with P the
least prime that is at least the number of categories, they are S = {h: (a·h − t) mod P < w}. The multiplier a is drawn
without looking at the data; t is one of P candidates, of which the w with the own category in S are inside. Over all a
any two categories are together in S equally often, so that how often a category occurs gives its share without bias.
"""

import math
from collections.abc import Iterator

import numpy as np

from sstq.exactness import TOTAL
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Floats, Ints
from sstq.mechanisms.two_level_draw import KClosest, whole_budget


def affine_draw(epsilon: float, categories: int) -> KClosest:
    """The draw among P candidates whose w has the least variance."""
    size = prime_at_least(categories)
    # The optimum is near P/(e^ε + 1).
    least = min(max(1, int(size / (math.exp(epsilon) + 1))), size - 1)
    draws = [whole_budget(epsilon, size, inside) for inside in range(least, min(least + 2, size))]
    return min(draws, key=share_variance)


def best_draw(epsilon: float, categories: int) -> KClosest:
    """The better of affine sets and of randomized response, which has w = 1 and as many candidates as categories."""
    plain, affine = whole_budget(epsilon, categories, 1), affine_draw(epsilon, categories)
    # With w = 1 more candidates are never better, though rounding may say so for a large ε.
    return plain if affine.inside == 1 else min(plain, affine, key=share_variance)


def prime_at_least(number: int) -> int:
    """The least prime from that number on."""
    while number < 2 or any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)):
        number += 1
    return number


def multipliers(draw: KClosest) -> int:
    """How many multipliers there are: a and −a give the same sets, and with w = 1 all do."""
    return 1 if draw.inside == 1 else max(1, draw.size // 2)


def hit_rates(draw: KClosest) -> tuple[float, float]:
    """How often the set holds the own category, and any other one."""
    own = draw.threshold / TOTAL
    return own, (draw.inside - own) / (draw.size - 1)


def share_variance(draw: KClosest) -> float:
    """The variance of one message's estimate of the share of a category that nobody has."""
    own, other = hit_rates(draw)
    return other * (1 - other) / (own - other) ** 2


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


def onto_simplex(shares: Floats) -> Floats:
    """The nearest shares that are not negative and sum to 1.

    Examples:
        >>> onto_simplex(np.array([1.1, -0.2]))
        array([1., 0.])
    """
    ordered = np.sort(shares)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    return np.asarray(np.maximum(shares - excess[np.flatnonzero(ordered > excess)[-1]], 0.0))
