"""Estimates from people with private groups: shares, sums and means of every group."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation import Estimate
from sstq.mechanisms.base import Floats
from sstq.mechanisms.frameunit.aggregators import FamilyAggregator
from sstq.mechanisms.subsets import HitRates, onto_simplex


@dataclass(frozen=True, repr=False, kw_only=True)
class GroupEstimate(Estimate):
    """Shares, sums and means of groups; `value` is the mean of all people's e_group ⊗ x, (groups·dim,).

    Standard errors come from the messages themselves. A mean is a quotient, sum over share, and its standard error is
    to first order. A share within two standard errors of zero bounds no quotient (Fieller's theorem): these groups are
    `too_few`, their means are nan, and `note` says so. Their sums are as good as all others.

    Attributes:
        shares: the share of people in every group, (groups,); may be negative, and may not sum to 1. nan
            if nobody sends their group only (`share_people=0`).
        shares_stderr: the standard errors of the shares, (groups,); nan from one message, and from one multiplier of
            few (`AffineSets.spread`).
        tie: the covariance of a group's sum and share over the sum, per message; 0 if they are from different people.

    Examples:
        >>> estimate = GroupEstimate(np.array([0.2, 0.1]), np.full(2, 0.01), 1000, shares=np.array([0.5, 0.01]),
        ...     shares_stderr=np.full(2, 0.02))
        >>> estimate.sums.tolist(), estimate.means.tolist(), estimate.too_few.tolist()
        ([[200.0], [100.0]], [[0.4], [nan]], [False, True])
    """

    shares: Floats
    shares_stderr: Floats
    tie: float = 0.0

    def __repr__(self) -> str:
        return f"<Group{super().__repr__()[1:-1]}, {len(self.shares)} groups>"

    def _by_group(self, flat: Floats) -> Floats:
        return flat.reshape(len(self.shares), -1)

    @property
    def sums(self) -> Floats:
        """The sum of the (clipped) vectors of every group, (groups, dim)."""
        return self._by_group(self.value) * self.people

    @property
    def sums_stderr(self) -> Floats:
        """The standard errors of `sums`."""
        return self._by_group(self.stderr) * self.people

    @property
    def means(self) -> Floats:
        """The mean of the (clipped) vectors of every group, (groups, dim); nan for groups of `too_few` people."""
        return self._by_group(self.value) / self._divisors

    @property
    def means_stderr(self) -> Floats:
        """The standard errors of `means`, to first order, with those of the shares in them."""
        means, shared = self.means, self.shares[:, None]
        covariance = self._by_group(self.value) * (self.tie - shared) / self.count
        variance = self._by_group(self.stderr) ** 2 + (means * self.shares_stderr[:, None]) ** 2
        return np.sqrt(np.maximum(variance - 2 * means * covariance, 0.0)) / self._divisors

    @property
    def too_few(self) -> NDArray[np.bool_]:
        """Whether a group has too few people for a mean, (groups,): its share is not beyond two standard errors."""
        return np.asarray(~(self.shares > 2 * self.shares_stderr))

    @property
    def _divisors(self) -> NDArray[np.float64]:
        return np.where(self.too_few, np.nan, self.shares)[:, None]

    def simplex_shares(self) -> Floats:
        """Project the shares onto the simplex: not negative, and with sum 1.

        Examples:
            >>> known = {"shares": np.array([1.1, -0.2]), "shares_stderr": np.full(2, 0.2)}
            >>> GroupEstimate(np.zeros(2), np.ones(2), 10, **known).simplex_shares()
            array([1., 0.])
        """
        return onto_simplex(self.shares)


class GroupUnitAggregator(FamilyAggregator):
    """The sums of all frames and blocks; `mean` is a `GroupEstimate`."""

    def mean(self) -> GroupEstimate:
        """Return shares, sums and means so far, with their standard errors."""
        mechanism, sets, (codes, counts) = self._mechanism, self._mechanism.share_sets, self._sent()
        shares = errors = np.full(mechanism.groups, np.nan)
        tie = 0.0
        if sets is not None:
            frame, code = np.divmod(codes, mechanism.choice.size)
            only = frame >= mechanism.vector_frames
            sent = frame[only] * sets.codes + code[only], counts[only]
            shares, errors = sets.rates.shares(sets.hits(*sent), int(sent[1].sum()), sets.spread(*sent))
        elif mechanism.blocks == mechanism.groups:
            block_size = 2 * mechanism.frame.size
            hits = np.bincount(codes % mechanism.choice.size // block_size, counts, mechanism.groups)
            other = block_size * mechanism.choice.probabilities[1]  # how often a block is sent by people of another
            rates = HitRates(1 - (mechanism.blocks - 1) * other, other)
            shares, errors = rates.shares(hits, self._count)
            tie = (1 - other) / rates.gap
        grouped = GroupEstimate(**vars(super().mean()), shares=shares, shares_stderr=errors, tie=tie)
        few = int(grouped.too_few.sum())
        if not few:
            return grouped
        note = (
            f"{few} of {len(shares)} groups have too few people for a mean: the share is within two standard errors "
            "of zero; read their sums, merge groups or collect more messages"
        )
        if np.isnan(shares).all():
            note = "there are sums and no means, because nobody sent their group only (share_people=0)"
        return replace(grouped, note="; ".join(filter(None, [grouped.note, note])))
