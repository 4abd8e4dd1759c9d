"""Estimates from people with private groups: shares, sums and means of every group."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sstq.aggregation import Estimate, Sums
from sstq.aggregation.estimates import norms_of, student
from sstq.aggregation.sparse_counts import sent_codes
from sstq.array_types import Bools, Floats
from sstq.mechanisms.frameunit.row_estimates import RowEstimator
from sstq.mechanisms.subsets import AffineSets, HitRates, onto_simplex

# The probability of intervals of all means at once that decides which groups have a mean.
_LEVEL = 0.95


@dataclass(frozen=True, repr=False, kw_only=True)
class GroupEstimate(Estimate):
    """Shares, sums and means of groups; `value` is the mean of all people's e_group ⊗ x, (groups·dim,).

    Standard errors come from the messages themselves. A mean is a quotient, sum over share, and its standard error is
    to first order: intervals are those of `mean_ends`. A share that is not clearly above zero bounds no quotient: these
    groups are `too_few`, their means are nan, and `note` says so. Their sums are as good as all others.

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

    columns = (
        "group",
        "group_label",
        "coordinate",
        "label",
        "share",
        "share_stderr",
        "sum",
        "sum_stderr",
        "mean",
        "mean_stderr",
    )

    shares: Floats
    shares_stderr: Floats
    tie: float = 0.0

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {len(self.shares)} groups>"

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
        means = self.means
        shared = self.shares[:, None]
        covariance = self._by_group(self.value) * (self.tie - shared) / self.count
        variance = (
            self._by_group(self.stderr) ** 2
            + (means * self.shares_stderr[:, None]) ** 2
        )
        return (
            np.sqrt(np.maximum(variance - 2 * means * covariance, 0.0)) / self._divisors
        )

    @property
    def too_few(self) -> Bools:
        """Whether a group has too few people for a mean, (groups,).

        Its share is not above zero by as many standard errors as 95 % intervals of all means at once have.
        """
        return np.asarray(
            ~(
                self.shares
                > student(_LEVEL, len(self.value), self.count) * self.shares_stderr
            )
        )

    def mean_ends(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of intervals, (groups, dim) each, that contain all means at once with this probability.

        A mean r is in its interval if the sum less r times the share is within z standard errors of zero (Fieller), z
        being Student's simultaneous quantile. Of few people the scatter of messages may miss what is rare, so the
        variance is the average of the measured one and of the one that r would have (a score test, as in Wilson's
        interval). The bias of frames is in it. nan for groups of `too_few` people; infinite where at this level the
        share is not clearly above zero.
        """
        z = student(level, len(self.value), self.count)
        share = self.shares[:, None]
        share2 = self.shares_stderr[:, None] ** 2
        sums = self._by_group(self.value)
        sums2 = (self._by_group(self.region(level).half_width) / z) ** 2
        covariance = sums * (self.tie - share) / self.count
        # What the sum is for, r·share in place of it, changes the variance by so much: a constant, and a factor of r².
        constant = sums**2 / self.count
        factor = share * (share - 2 * self.tie) / self.count
        # The interval is between the roots of a·r² − 2·b·r + c.
        a = share**2 - z**2 * (share2 + factor / 2)
        b = sums * share - z**2 * covariance / 2
        c = sums**2 - z**2 * (sums2 + constant / 2)
        bounded = np.where(a > 0, a, np.nan)
        root = np.sqrt(np.maximum(b**2 - bounded * c, 0.0))
        none = self.too_few[:, None]
        ends = (((b + sign * root) / bounded, sign * math.inf) for sign in (-1, 1))
        low, high = (
            np.where(none, np.nan, np.where(np.isnan(end), beyond, end))
            for end, beyond in ends
        )
        return low, high

    @property
    def _divisors(self) -> Floats:
        return np.where(self.too_few, np.nan, self.shares)[:, None]

    @property
    def _arrays(self) -> dict[str, Floats]:
        return {
            "shares": self.shares,
            "shares_stderr": self.shares_stderr,
            "sums": self.sums,
            "sums_stderr": self.sums_stderr,
            "means": self.means,
            "means_stderr": self.means_stderr,
        }

    def details(self, level: float = 0.95) -> dict[str, Any]:  # noqa: ARG002
        """Return the shares, sums and means of all groups."""
        return {"groups": self._arrays}

    @classmethod
    def rows_of(
        cls,
        stored: Mapping[str, Any],
        labels: Sequence[str],
        group_labels: Sequence[str],
    ) -> Iterator[Sequence[Any]]:
        """Yield a row per coordinate of each group."""
        found = stored["groups"]
        shares = zip(found["shares"], found["shares_stderr"], strict=True)
        for group, share in enumerate(shares):
            named = group_labels[group] if group_labels else ""
            numbers = [
                found[name][group]
                for name in ("sums", "sums_stderr", "means", "means_stderr")
            ]
            for coordinate, cells in enumerate(zip(labels, *numbers, strict=True)):
                label, *values = cells
                yield group, named, coordinate, label, *share, *values

    def files(self, level: float = 0.95) -> dict[str, Any]:
        """Return what `sstq aggregate` writes: also all arrays of groups, and a line per group."""
        rows = []
        for group, few in enumerate(self.too_few):
            norms = norms_of(self.means[group], self.means_stderr[group])
            share = {
                "share": float(self.shares[group]),
                "share_stderr": float(self.shares_stderr[group]),
            }
            rows.append(
                {"group": str(group)} | share | norms | {"mark": "too few" * bool(few)}
            )
        files = {"groups.npz": self._arrays, "groups.csv": rows}
        return super().files(level) | files

    def plot(
        self,
        *,
        labels: Sequence[str] | None = None,
        level: float = 0.95,
        axes: Any = None,
    ) -> Any:
        """Draw the shares of the groups with their simultaneous intervals; otherwise as `Estimate.plot`."""
        return Estimate(self.shares, self.shares_stderr, self.count).plot(
            labels=labels, level=level, axes=axes
        )

    def simplex_shares(self) -> Floats:
        """Project the shares onto the simplex: not negative, and with sum 1.

        Examples:
            >>> given = {"shares": np.array([1.1, -0.2]), "shares_stderr": np.full(2, 0.2)}
            >>> GroupEstimate(np.zeros(2), np.ones(2), 10, **given).simplex_shares()
            array([1., 0.])
        """
        return onto_simplex(self.shares)


@dataclass(frozen=True, eq=False)
class GroupUnitEstimator(RowEstimator):
    """The estimate of all frames and blocks, with the shares of all groups.

    Attributes:
        groups: the number of groups.
        share_rates: how often the messages that tell of groups hit the person's group, and another one.
        share_sets: the sets of people who send their group only, if there are any.
    """

    estimate_class = GroupEstimate

    groups: int
    share_rates: HitRates
    share_sets: AffineSets | None

    def estimate(self, sums: Sums) -> GroupEstimate:
        """Shares, sums and means, with their standard errors."""
        shares, errors, tie = self._shares(sums)
        vectors = super().estimate(sums)
        estimate = GroupEstimate(
            **vars(vectors), shares=shares, shares_stderr=errors, tie=tie
        )
        few = int(estimate.too_few.sum())
        if not few:
            return estimate
        note = (
            f"{few} of {len(shares)} groups have too few people for a mean: the share is not clearly above zero; read "
            "their sums, merge groups or collect more messages"
        )
        if np.isnan(shares).all():
            note = "there are sums and no means, because nobody sent their group only (share_people=0)"
        return replace(estimate, note=note)

    def _shares(self, sums: Sums) -> tuple[Floats, Floats, float]:
        """The shares of all groups, their standard errors, and the `tie` of an estimate."""
        choice = self.draw.choice
        codes, counts = sent_codes(sums)
        if self.share_sets is not None:
            frame, code = np.divmod(codes, choice.size)
            only = frame >= self.vector_frames
            numbers = frame[only] * self.share_sets.codes + code[only]
            times = counts[only]
            hits = self.share_sets.hits(numbers, times)
            spread = self.share_sets.spread(numbers, times)
            return *self.share_rates.shares(hits, int(times.sum()), spread), 0.0
        if self.draw.blocks < self.groups:
            unknown = np.full(self.groups, np.nan)
            return unknown, unknown, 0.0
        sent = np.bincount(
            codes % choice.size // (2 * self.frame.size), counts, self.groups
        )
        tie = (1 - self.share_rates.other) / self.share_rates.gap
        return *self.share_rates.shares(sent, sums.count), tie
