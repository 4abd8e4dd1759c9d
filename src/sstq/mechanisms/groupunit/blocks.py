"""How many blocks of groups, and how many rows inside: closed forms for many dimensions.

With a share f of the signed rows of the own block inside, and z their normal quantile, f = Q(z), the alignment of a
block of d dimensions is m = (e^ε − 1)·φ(z)/(B + f·(e^ε − 1)), in units of 1/√d. It is largest where its derivative by f
vanishes, at φ(z)/z − Q(z) = B/(e^ε − 1), and is z itself there. So a message has the second moment d/z².
"""

import math

import numpy as np

from sstq.mechanisms.base import Floats, Ints

_STEPS = 60  # of bisection, which leave the last digit of a double


def block_numbers(groups: int) -> Ints:
    """All numbers of blocks B = ⌈groups/s⌉ that blocks of s groups come in, ascending."""
    few = np.arange(1, min(math.isqrt(groups) + 1, groups) + 1)
    return np.unique(np.concatenate([-(-groups // few), -(-groups // -(-groups // few))]))


def alignments(epsilon: float, blocks: Ints) -> Floats:
    """z, the largest alignment of one message in units of 1/√d, for each number of blocks.

    Examples:
        >>> round(float(2 / alignments(3.0, np.array([5]))[0] ** 2), 3)  # two groups in each block
        5.177
    """
    from scipy.special import ndtr

    wanted = blocks / math.expm1(epsilon)
    low, high = np.full(len(blocks), 1e-9), np.full(len(blocks), 10.0)
    for _ in range(_STEPS):
        z = (low + high) / 2
        above = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) / z - ndtr(-z) > wanted
        low, high = np.where(above, z, low), np.where(above, high, z)
    return np.asarray((low + high) / 2)


def inside_share(epsilon: float, blocks: int) -> float:
    """f, the share of the signed rows of a block that are inside, at the largest alignment."""
    from scipy.special import ndtr

    return float(ndtr(-alignments(epsilon, np.array([blocks]))[0]))


def best_blocks(epsilon: float, groups: int, share_people: float) -> int:
    """The number of blocks of least error; where a block has several groups, some people send their group only."""
    blocks = block_numbers(groups)
    own = -(-groups // blocks)
    loss = own / alignments(epsilon, blocks) ** 2 / np.where(own > 1, 1 - share_people, 1.0)
    return int(blocks[np.argmin(loss)])
