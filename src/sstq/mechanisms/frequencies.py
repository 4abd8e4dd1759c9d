"""Frequencies: the shares of categories, by subset selection with one number per message."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sstq.aggregation import Estimate, Region, SparseEstimator, Sums
from sstq.aggregation.sparse_counts import sent_codes
from sstq.array_types import Floats
from sstq.inputs import Category
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.agreement import Solved, Word
from sstq.mechanisms.base import Batch, Columns, ExpectedError, Mechanism, Rows
from sstq.mechanisms.subsets import Sets, best_sets, onto_simplex, sets_of
from sstq.mechanisms.two_level_draw import KClosest
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field, Layout


@dataclass(frozen=True, repr=False)
class FrequencyEstimate(Estimate):
    """The shares of all categories; `value` are the raw shares, which are unbiased and may be negative.

    Attributes:
        own, other: how often a message's set holds the person's category, and any other one.

    Examples:
        >>> estimate = FrequencyEstimate(np.array([1.1, -0.1, 0.0]), np.full(3, 0.1), 100, own=0.7, other=0.2)
        >>> estimate.shares.tolist(), estimate.projected.tolist()
        ([1.1, -0.1, 0.0], [1.0, 0.0, 0.0])
    """

    own: float = 1.0
    other: float = 0.0

    @property
    def shares(self) -> Floats:
        """The share of people in each category, (k,): unbiased; may be negative, and may not sum to 1."""
        return self.value

    @property
    def projected(self) -> Floats:
        """The shares moved onto the simplex: not negative, and with sum 1."""
        return onto_simplex(self.value)

    def region(self, level: float = 0.95) -> Region:
        """Return the simultaneous region of the shares.

        A hit rate has the interval of Agresti and Coull, z²/2 hits and misses being added to those counted, so that it
        holds for rare hits as well; z is that of `Estimate.region`.
        """
        region = super().region(level)
        gap = self.own - self.other
        z2 = (region.half_width / self.stderr) ** 2
        rate = np.clip(self.other + self.value * gap, 0.0, 1.0)
        middle = (self.count * rate + z2 / 2) / (self.count + z2)
        total = self.count + z2
        reach = np.sqrt(z2 * middle * (1 - middle) / total) + np.abs(middle - rate)
        return replace(region, half_width=np.maximum(region.half_width, reach / gap))


@dataclass(frozen=True, eq=False)
class FrequencyEstimator(SparseEstimator):
    """The shares of all categories, from how often each message occurred.

    Attributes:
        sets: the sets that messages name.
    """

    sets: Sets

    def decode(self, messages: Messages) -> Floats:
        """The shares from single messages."""
        members = self.sets.hold(self.codes(messages), np.arange(self.sets.categories))
        return np.asarray((members - self.sets.rates.other) / self.sets.rates.gap)

    def estimate(self, sums: Sums) -> FrequencyEstimate:
        """The shares. People draw independently, multipliers too, so that hits are binomial."""
        rates = self.sets.rates
        shares, errors = rates.shares(self.sets.hits(*sent_codes(sums)), sums.count)
        return FrequencyEstimate(
            shares,
            errors,
            sums.count,
            sums.simulated,
            messages=self.source.messages,
            # shares sum to 1, and their errors to 0
            directions=self.sets.categories - 1,
            own=rates.own,
            other=rates.other,
        )

    @property
    def uniform_covariance(self) -> Floats:
        """The covariances of all shares, (k, k), as one uniform message estimates them."""
        sets = self.sets
        one = sets.width / sets.points
        # how often a set holds two given categories
        two = one * (sets.width - 1) / (sets.points - 1)
        return (
            two - one**2 + (one - two) * np.eye(sets.categories)
        ) / sets.rates.gap**2

    def covariance_with(self, sums: Sums, category: int) -> Floats:
        """Return the covariances of all shares with one of them, (k,), from the messages whose set holds both."""
        codes, counts = sent_codes(sums)
        holds = np.zeros(len(codes), dtype=np.bool_)
        for part in row_chunks(len(codes), 4 * self.sets.width):
            holds[part] = self.sets.hold(codes[part], np.array([category]))[:, 0]
        hits = self.sets.hits(codes, counts)
        return self._covariances(
            sums.count,
            self.sets.hits(codes[holds], counts[holds]),
            hits,
            hits[category],
        )

    def covariance(self, sums: Sums) -> Floats:
        """Return the covariances of all shares, (k, k), for few categories: the work grows with k² times the messages.

        That of one uniform message is added, because few messages may be all alike.
        """
        codes, counts = sent_codes(sums)
        every = np.arange(self.sets.categories)
        both = np.zeros((len(every), len(every)))
        for part in row_chunks(len(codes), 4 * len(every)):
            members = self.sets.hold(codes[part], every).astype(np.float64)
            both += members.T @ (members * counts[part, None])
        hits = np.diagonal(both)
        pairs = max(1, sums.count * (sums.count - 1))
        return (
            self._covariances(sums.count, both, hits, hits[:, None])
            + self.uniform_covariance / pairs
        )

    def _covariances(
        self, count: int, both: Floats, hits: Floats, others: Floats
    ) -> Floats:
        """Covariances of shares, from how many messages hold the one, the other and both; nan for one message."""
        if count < 2:
            return np.full(both.shape, np.nan)
        scatter = both / count - hits / count * (others / count)
        return scatter / (self.sets.rates.gap**2 * (count - 1))


@dataclass(frozen=True, eq=False, kw_only=True)
class FrequencySolved(Solved):
    """The values of Frequencies: `inside` of `size` candidates hold the person's category, with probability T/2^62."""

    categories: int
    epsilon: float
    size: int
    inside: int
    threshold: Word
    messages: int = 1


class Frequencies(Mechanism):
    """Shares of categories: each person holds one of k, and sends one number.

    A message is a set of categories, and one that holds the person's category is likelier (`sstq.mechanisms.subsets`):
    any set of w of the k categories, drawn by FrameUnit's two-level draw with those that hold the person's one inside,
    or one of fewer sets {h: (a·h − t) mod P < w}, P being the least prime from k on. Both are exactly ε-LDP. The one
    with the least variance is used, if there are at most 2^25 sets; w = 1 is randomized response.

    With p and q, how often the set holds the person's category and another one, the variance of a share f is
    (f·p(1 − p) + (1 − f)·q(1 − q))/((p − q)²·n) around the share of these very people. The sum over all shares,
    (p(1 − p) + (k − 1)·q(1 − q))/((p − q)²·n), is never above that of optimized unary encoding, which sends k bits, of
    randomized response, and of subset selection with whole sets where these fit into 25 bits; elsewhere it is at most
    1.13 % above the latter.

    Args:
        categories: k, the number of categories, 2 to 2^20; a person's category is an integer from 0 to k − 1. The work
            of estimating the shares grows with k times the distinct multipliers, at most the people and k/2.
        epsilon: the ε of one message.
        messages: as in `FrameUnit`, for a shuffler.

    Examples:
        >>> mechanism = Frequencies(categories=1024, epsilon=3.0)
        >>> mechanism.message_bits, round(mechanism.sets.rates.variance_at(0.0), 3)
        (20, 0.218)
        >>> labels = np.random.default_rng(1).integers(100, size=20_000)
        >>> estimate = mechanism.aggregator().update(mechanism.encode(labels, rng=1)).mean()
        >>> estimate
        <FrequencyEstimate of 1,024 numbers from 20,000 messages: norm 0.1... ± 0.1...>
        >>> bool(np.all(np.abs(estimate.shares[:100] - 0.01) < estimate.region(0.999).half_width[:100]))
        True
    """

    name = "frequencies"
    exact = True
    solved_class = FrequencySolved

    dim = 1
    clip = 1.0
    solved: FrequencySolved
    categories: int

    @cached_property
    def input(self) -> Category:
        """What a person holds: one category."""
        return Category(self.categories)

    def __init__(self, categories: int, epsilon: float, *, messages: int = 1) -> None:
        given = dict(locals())
        common = self.checked(categories=categories, epsilon=epsilon, messages=messages)
        draw = best_sets(common["epsilon"], common["categories"]).draw
        solved = FrequencySolved(
            **common, size=draw.size, inside=draw.inside, threshold=draw.threshold
        )
        self.settle(given, solved)

    def check_solved(self) -> None:
        """Refuse solved values that do not belong together."""
        if not self.sets.rates.gap > 0:
            raise ValueError(
                f"threshold must favour the person's category, got {self.draw.threshold}"
            )

    @cached_property
    def draw(self) -> KClosest:
        """The secret draw: candidates whose set holds the person's category are inside."""
        solved = self.solved
        return KClosest(solved.size, solved.inside, solved.threshold)

    @cached_property
    def sets(self) -> Sets:
        """The sets that messages name."""
        return sets_of(self.categories, self.draw)

    @cached_property
    def estimator(self) -> FrequencyEstimator:
        """The shares of all categories."""
        return FrequencyEstimator(self, self.sets)

    @cached_property
    def layout(self) -> Layout:
        """One number, which names a set."""
        return Layout((Field("code", self.sets.codes),))

    @property
    def estimate_dim(self) -> int:
        """The number of categories."""
        return self.categories

    def encode_batch(self, batch: Batch) -> Columns:
        """Draw a set that is likelier if it holds the person's category."""
        return (self.sets.encode(batch.rows[:, 0].astype(np.int64), batch.words),)

    def typical_error(self, clients: int = 1) -> ExpectedError:
        """The error for one person's category, which is the same for all."""
        return self.expected_mse([0], clients)

    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """The mean and the variance of the estimate of each row."""
        return self.input.truth(rows), np.full(
            len(rows), self.sets.rates.total_variance(self.categories)
        )

    def largest_message(self) -> float:
        """A set of w categories, or of none: affine sets have points beyond the categories."""
        other = self.sets.rates.other
        most = min(self.sets.width, self.categories)
        fewest = most - min(most, self.sets.points - self.categories)
        largest = max(
            size * (1 - other) ** 2 + (self.categories - size) * other**2
            for size in (fewest, most)
        )
        return float(np.sqrt(largest)) / self.sets.rates.gap
