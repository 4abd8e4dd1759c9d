"""Hadamard response: the shares of categories, by a draw between two halves of a row of the Hadamard matrix.

Let K be a power of two above the number of categories, and H the K×K Hadamard matrix of signs. The numbers y with
H[c + 1, y] = 1 are inside for category c: half of all numbers. One of them is sent with probability T/2^62, and one of
the others otherwise, uniformly on either side. Of people with other categories half of the messages are inside.

The law is of two levels, so that it is no channel from tokens to codes; and what people hold is no vector.

Reference: J. Acharya, Z. Sun and H. Zhang, *Hadamard response*, AISTATS 2019.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sstq import extending as sx


@dataclass(frozen=True, eq=False, kw_only=True)
class HadamardResponseSolved(sx.Solved):
    """What clients and server agree on: T of 2^62, beside the options."""

    categories: int
    epsilon: float
    threshold: sx.Word


@dataclass(frozen=True, eq=False)
class ShareEstimator(sx.SparseEstimator):
    """Shares from how often each number was sent: one Hadamard transform gives those of all categories.

    Attributes:
        categories: the number of categories.
        size: K.
        gap: by how much people of a category send more numbers that are inside for it.
    """

    categories: int
    size: int
    gap: float

    def decode(self, messages: sx.Messages) -> sx.Floats:
        """±1/gap for every category: the sign of H[c + 1, y], y being the number."""
        signs = (
            np.bitwise_count(
                self.codes(messages)[:, None] & np.arange(1, self.categories + 1)
            )
            & 1
        )
        return (1.0 - 2.0 * signs) / self.gap

    def estimate(self, sums: sx.Sums) -> sx.Estimate:
        """The shares of all categories; messages are independent, and a category is hit or missed."""
        numbers, times = sx.sent_codes(sums)
        counts = np.zeros((1, self.size))
        counts[0, numbers] = times
        sx.hadamard_transform(counts)
        excess = counts[0, 1 : self.categories + 1] / sums.count
        spread = np.sqrt((1 - excess**2) / max(sums.count - 1, 1))
        stderr = (
            spread / self.gap if sums.count > 1 else np.full(self.categories, np.nan)
        )
        return sx.Estimate(excess / self.gap, stderr, sums.count, sums.simulated)


class HadamardResponse(sx.Mechanism):
    """Shares of categories in ⌈log₂(k + 1)⌉ bits.

    Examples:
        >>> mechanism = HadamardResponse(categories=100, epsilon=3.0)
        >>> mechanism.message_bits, mechanism.law().kind
        (7, 'two-level')
    """

    name = "hadamard-response"
    exact = True
    solved_class = HadamardResponseSolved
    solved: HadamardResponseSolved
    dim = 1
    clip = 1.0
    categories: int

    def __init__(self, categories: int, epsilon: float) -> None:
        given = dict(locals())
        common = self.checked(categories=categories, epsilon=epsilon)
        size = 1 << common["categories"].bit_length()
        draw = sx.whole_budget(common["epsilon"], size, size // 2)
        self.settle(given, HadamardResponseSolved(**common, threshold=draw.threshold))

    @cached_property
    def input(self) -> sx.Category:
        """A category."""
        return sx.Category(self.categories)

    @cached_property
    def draw(self) -> sx.KClosest:
        """Half of the numbers are inside."""
        size = 1 << self.categories.bit_length()
        return sx.KClosest(size, size // 2, self.solved.threshold)

    @cached_property
    def layout(self) -> sx.Layout:
        """A number below K."""
        return sx.Layout((sx.Field("number", self.draw.size),))

    @property
    def gap(self) -> float:
        """T/2^62 less the probability of the other half."""
        return 2 * (self.draw.threshold / sx.TOTAL) - 1

    @property
    def estimate_dim(self) -> int:
        """The number of categories."""
        return self.categories

    @cached_property
    def estimator(self) -> ShareEstimator:
        """Shares from counts."""
        return ShareEstimator(self, self.categories, self.draw.size, self.gap)

    def encode_batch(self, batch: sx.Batch) -> sx.Columns:
        """Send the number at the place drawn, of which those inside come first; word 0 is not needed."""
        row = batch.rows[:, 0].astype(np.int64) + 1
        half = self.draw.size // 2
        place = self.draw.places(batch.words[:, 1:])
        outside = (place >= half).astype(np.int64)
        rank = place - half * outside
        # The lowest bit of the row is set so that the sign is right; the rank gives the other bits.
        lowest = row & -row
        number = (rank // lowest * 2 * lowest) | (rank % lowest)
        odd = (np.bitwise_count(number & row) & 1) ^ outside
        return (number | (odd * lowest),)

    def row_error(self, rows: sx.Rows) -> tuple[sx.Floats, sx.Floats]:
        """Exact: every category has the second moment 1/gap²."""
        return self.input.truth(rows), np.full(
            len(rows), self.categories / self.gap**2 - 1
        )

    def typical_error(self, clients: int = 1) -> sx.ExpectedError:
        """The error is the same for all categories."""
        return self.expected_mse([0], clients)

    def largest_message(self) -> float:
        """The norm of every message."""
        return float(np.sqrt(self.categories)) / self.gap
