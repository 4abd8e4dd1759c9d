"""The result of a study of words: which strings are surely there, and their shares from all cohorts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from sstq.array_types import Floats, Ints
from sstq.files.strict_json import JsonObject
from sstq.studies.results import StudyResult, share_of


@dataclass(frozen=True, repr=False)
class WordsResult(StudyResult):
    """The strings that were found, the most frequent first.

    Attributes:
        words: the strings.
        shares: the share of people who hold each.
        stderr: the standard errors.
        others: the share of people who hold none of them, and its standard error.
        people: the number of people who answered.
        epsilon: the total ε per person.
        false_share: the expected share of false strings among those listed.
    """

    words: tuple[str, ...]
    shares: Floats
    stderr: Floats
    others: tuple[float, float]
    people: int
    epsilon: float
    false_share: float

    def __repr__(self) -> str:
        best = ", ".join(
            f"{word!r} {100 * share:.3g} %"
            for word, share in zip(self.words[:5], self.shares, strict=False)
        )
        return f"<{len(self.words)} strings from {self.people:,} people at a total ε of {self.epsilon:g}: {best}>"

    @classmethod
    def from_cohorts(
        cls,
        cohorts: Sequence[JsonObject],
        public: int,
        epsilon: float,
        false_share: float,
    ) -> WordsResult:
        """Pool the cohorts that were asked about a string, and list what is surely there.

        The first strings of each cohort are those of the one before; the first of all are the public candidates.
        """
        kept = cohorts[-1]["words"]
        people = np.array([cohort["people"] for cohort in cohorts])
        own, other = np.array([cohort["rates"] for cohort in cohorts]).T
        padded = zip_longest(
            *(cohort["hits"] for cohort in cohorts), fillvalue=math.nan
        )
        hits = np.array(list(padded), dtype=np.float64).reshape(-1, len(cohorts))
        asked = ~np.isnan(hits)
        gap = own - other
        weights = np.where(asked, people * gap**2 / (other * (1 - other)), 0.0)
        weights /= weights.sum(axis=1, keepdims=True)
        shares = np.sum(weights * np.nan_to_num((hits / people - other) / gap), axis=1)
        rates = np.clip(other + shares[:, None] * gap, other, own)
        stderr = np.sqrt(
            np.sum(weights**2 * rates * (1 - rates) / (people * gap**2), axis=1)
        )
        chance = _chance(
            shares, weights / (people * gap), people * other * (1 - other), other
        )
        ends = [public, *(len(cohort["words"]) for cohort in cohorts)]
        tested = [max(1, public), *(cohort["tested"] for cohort in cohorts)]
        listed = _found(
            chance,
            np.searchsorted(ends, np.arange(len(kept)), side="right"),
            tested,
            false_share,
        )
        order = listed[np.argsort(-shares[listed], kind="stable")]
        left = 1 - float(shares[order].sum()), float(np.linalg.norm(stderr[order]))
        words = tuple(kept[place] for place in order)
        return cls(
            words,
            shares[order],
            stderr[order],
            left,
            int(people.sum()),
            epsilon,
            false_share,
        )

    def columns(self, level: float = 0.95) -> dict[str, Any]:
        """The strings with their shares, errors and intervals."""
        low, high = self.interval(level)
        return {
            "word": self.words,
            "share": self.shares,
            "stderr": self.stderr,
            "low": low,
            "high": high,
        }

    def details(self, level: float = 0.95) -> dict[str, Any]:
        """Return also the share of people who hold other strings."""
        return self.columns(level) | {"others": share_of(self.others)}

    @property
    def note(self) -> str:
        """How many people hold strings that are not listed."""
        others = f"{max(0.0, self.others[0]):.0%}"
        return f"{others} of the people hold others: rare strings, or longer than the study asks for"

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of intervals that contain the shares of all strings listed at once (Šidák)."""
        from scipy.special import ndtri

        reach = (
            -ndtri(-math.expm1(math.log(level) / max(1, len(self.words))) / 2)
            * self.stderr
        )
        return np.clip(self.shares - reach, 0, 1), np.clip(self.shares + reach, 0, 1)

    def plot(self, *, level: float = 0.95, most: int = 25) -> Any:
        """Draw the most frequent strings with their intervals; returns the Matplotlib figure."""
        from sstq.plots.studies import draw_words

        return draw_words(self, level, most)


def _chance(shares: Floats, factors: Floats, scatter: Floats, other: Floats) -> Floats:
    """How likely each share is of a string that nobody holds; `factors` are what a hit of each cohort adds to it.

    Its hits are binomial with the variance `scatter`. Their skewness γ matters for rare hits: the normal quantile z is
    about where z + γ(z² − 1)/6 standard errors are (Cornish and Fisher), and half a hit less than there are counts.
    """
    from scipy.special import ndtr

    variance = np.sum(factors**2 * scatter, axis=1)
    third = np.sum(factors**3 * scatter * (1 - 2 * other), axis=1)
    skewness = np.maximum(third / variance**1.5, 1e-9)
    seen = np.maximum((shares - factors.max(axis=1) / 2) / np.sqrt(variance), 0.0)
    z = (np.sqrt(1 + 2 * skewness / 3 * (seen + skewness / 6)) - 1) / (skewness / 3)
    return np.asarray(ndtr(-z))


def _found(
    chance: Floats, group: Ints, tested: Sequence[int], false_share: float
) -> Ints:
    """Which strings are not there by chance, of all that were tested (Benjamini and Hochberg, with weights).

    Strings belong to groups: public candidates, those that the first cohort found, the second, … Each group gets half
    of what the one before it gets, because short strings and candidates are the likelier ones.
    """
    share = 0.5 ** np.arange(1, len(tested) + 1) / (1 - 0.5 ** len(tested))
    weighed = chance * (np.array(tested) / share)[group]
    order = np.argsort(weighed, kind="stable")
    passed = np.flatnonzero(
        weighed[order] <= false_share * np.arange(1, len(order) + 1)
    )
    return order[: passed[-1] + 1] if len(passed) else order[:0]
