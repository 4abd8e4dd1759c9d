"""Range: a mean of vectors whose length nobody knows. Cohorts tell bins of norms, then means around a centre."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from sstq.aggregation import Aggregator, Estimate
from sstq.checks import check_argument
from sstq.inputs.single_vectors import LARGEST, into_ball, read_vectors
from sstq.inputs.vector_tables import VectorColumns, open_vectors
from sstq.mechanisms import FrameUnit, Frequencies
from sstq.messages.batch import Messages
from sstq.studies import bins
from sstq.studies.base import Study, StudyPlan, register_study
from sstq.studies.bins import BINS, EDGES, Floats, bin_of
from sstq.studies.facts import estimate_from_dict, estimate_to_dict
from sstq.studies.questions import Question, register_question, require
from sstq.studies.results import RangeResult

# The shares of people who tell their norms, more of them as long as these are not sure; a rough centre; and distances.
_NORMS = {"norms": 0.06, "norms 2": 0.12, "norms 3": 0.18}
_CENTRE = 0.14
_DISTANCES = 0.06
# How much of what clipping may bias it usually does, before and after a centre is subtracted.
_BIAS = 0.5
_BIAS_CENTRED = 0.3
# The share of those who are not zero that a first clip leaves out at most: long vectors may cancel each other.
_LONG = 0.2
# A centre is subtracted if it is this much of the mean square of the norms, and sure.
_WORTH = 0.35
_SURE = 2.8


@dataclass(frozen=True, eq=False, kw_only=True)
class _Around(Question):
    """A question about vectors of `dim` numbers minus a centre, which is empty for zero."""

    dim: int
    centre: Sequence[float]

    def check(self) -> None:
        """Check the fields."""
        check_argument("dim", self.dim)
        rows = isinstance(self.centre, list) and len(self.centre) in (0, self.dim)
        fine = rows and all(
            type(one) in (int, float) and abs(one) <= LARGEST for one in self.centre
        )
        require(fine, f"centre must be {self.dim} numbers, or empty")

    def moved(self, values: Sequence[Any]) -> Floats:
        """The vectors minus the centre; whatever is none counts as zero before the centre is subtracted."""
        rows = read_vectors(values, self.dim)
        return rows - np.array(self.centre, dtype=np.float64) if self.centre else rows

    def encode_file(self, path: Path, column: str | None = None) -> Messages:
        """Return one private message per vector of a .npy, Parquet or CSV file."""
        columns = None if column is None else [column]
        file = open_vectors(path, VectorColumns(self.dim, columns, answering=True))
        return Messages.concatenate([self.encode(piece.X) for piece in file.pieces()])


@register_question
@dataclass(frozen=True, eq=False, kw_only=True)
class NormQuestion(_Around):
    """In which of 240 bins from 1e-9 to 1e9, all of one ratio, the distance from a centre is."""

    kind = "norm"
    mechanism: Frequencies

    def check(self) -> None:
        """Check the fields."""
        super().check()
        require(
            self.mechanism.categories == BINS,
            f"mechanism must be Frequencies of {BINS} categories, got {self.mechanism!r}",
        )

    def held(self, values: Sequence[Any]) -> Any:
        """The bin of each vector."""
        return bin_of(np.linalg.norm(self.moved(values), axis=1))


@register_question
@dataclass(frozen=True, eq=False, kw_only=True)
class VectorQuestion(_Around):
    """The vector minus a centre, clipped to the mechanism's ball."""

    kind = "vector"
    mechanism: FrameUnit

    def check(self) -> None:
        """Check the fields."""
        super().check()
        require(
            self.mechanism.dim == self.dim and self.mechanism.bounds is None,
            f"mechanism must be FrameUnit of dim = {self.dim}",
        )

    def held(self, values: Sequence[Any]) -> Floats:
        """The vectors minus the centre, scaled into the ball, so that nobody is warned of those that are longer."""
        return into_ball(self.moved(values), self.mechanism.clip)


@register_study
class Range(Study):
    """Estimate a mean of vectors without a known range, from one private message per person.

    6 % of the people tell the bin of their norm, from which the server chooses a clip; if no size is sure, another 12 %
    do, and 18 %. 14 % tell their vector, which gives a rough centre. If this is most of the vectors' length, 6 % tell
    the bin of their distance from it, and all others send what is left of their vector, for which a smaller clip does.
    Otherwise they send the vector.

    Long vectors may cancel each other. So at most 20 % of the vectors are beyond the clip of the rough centre, and it
    counts for more in the mean, the less the two differ beside their errors. The result has the last clip and the
    share of people beyond it.

    `Range(columns=[…], epsilon=…)` finds bounds for the columns of a table instead (`sstq.studies.columns`).

    Args:
        dim: the length of the vectors.
        epsilon: the ε of a person's only message, and so the person's total.

    Examples:
        >>> rng = np.random.default_rng(1)
        >>> vectors = 1000 * (rng.standard_normal((20_000, 3)) + [5, 0, -5])
        >>> found = Range(dim=3, epsilon=3.0).simulate(vectors, rng=1)
        >>> np.round(found.mean / 1000).astype(int), found.clip < 20_000
        (array([ 5,  0, -5]), True)
    """

    kind = "range"

    def __new__(cls, *_: Any, columns: Any = None, **__: Any) -> Range:
        """Return a study of columns if there are any."""
        if columns is not None:
            from sstq.studies.columns import ColumnRange

            cls = ColumnRange
        return super().__new__(cls)

    def __init__(self, dim: int, epsilon: float) -> None:
        super().__init__(
            dim=check_argument("dim", dim), epsilon=check_argument("epsilon", epsilon)
        )

    @property
    def weights(self) -> dict[str, float]:
        """Norms until their size is sure, a centre, perhaps distances from it, and the mean."""
        told = len(self._norm_cohorts)
        rounds = max(1, told)
        if 0 < told == len(self.learned) and not self._norms.sure:
            rounds += 1
        cohorts = dict(list(_NORMS.items())[:rounds]) | {"centre": _CENTRE}
        if len(self.learned) > told and self._centred:
            cohorts["distances"] = _DISTANCES
        cohorts["mean"] = 1 - sum(cohorts.values())
        return self._left(cohorts)

    @property
    def _centred(self) -> bool:
        """Whether the centre is worth being subtracted: sure, and most of the norms."""
        clip, centre, error2 = self._centre
        sizes = np.minimum(EDGES[1:], clip)
        least = _SURE * error2 * math.sqrt(2 / self.options["dim"])
        return float(centre @ centre) - error2 > max(
            least, _WORTH * float(self._norms.chosen @ sizes**2)
        )

    @property
    def _norm_cohorts(self) -> list[dict[str, Any]]:
        """What the cohorts told that were asked for their norms."""
        return list(takewhile(lambda facts: "shares" in facts, self.learned))

    @property
    def _norms(self) -> bins.Histogram:
        """What all of them told."""
        cohorts = self._norm_cohorts
        people = np.array([facts["people"] for facts in cohorts])
        shares = people @ np.array([facts["shares"] for facts in cohorts])
        return self._read(shares / people.sum(), self._norm_error)

    @property
    def _norm_error(self) -> float:
        """The standard error of a bin of norms."""
        people = np.sum([facts["people"] for facts in self._norm_cohorts])
        first = self.learned[0]
        return float(first["error"] * np.sqrt(first["people"] / people))

    def _read(
        self, shares: Floats, error: float, highest: int = BINS - 1
    ) -> bins.Histogram:
        skewness = bins.skewness(error, self.options["epsilon"])
        return _read(tuple(shares.tolist()), error, skewness, highest)

    @property
    def _centre_facts(self) -> dict[str, Any]:
        return self.learned[len(self._norm_cohorts)]

    @property
    def _centre(self) -> tuple[float, Floats, float]:
        """The clip, the mean and its squared error of the cohort that tells a centre."""
        facts = self._centre_facts
        return facts["clip"], np.array(facts["value"]), facts["error2"]

    @property
    def _distances(self) -> bins.Histogram:
        """What is known of the distances from the centre, which are at most a norm and the centre's length."""
        facts = self.learned[len(self._norm_cohorts) + 1]
        beyond = bins.beyond(self._norms.likely)
        longest = EDGES[int(np.argmax(beyond < facts["error"]))]
        reach = longest + np.linalg.norm(self._centre[1])
        return self._read(np.array(facts["shares"]), facts["error"], int(bin_of(reach)))

    def ask(self, cohort: str, people: int) -> Question:
        """Ask for bins, or for vectors with the clip of least error."""
        options = {"study": self.identifier, "dim": self.options["dim"]}
        rough = len(self.learned) > len(self._norm_cohorts)
        centre = self._centre[1].tolist() if rough and self._centred else []
        if cohort in _NORMS or cohort == "distances":
            return NormQuestion(
                **options,
                centre=centre,
                mechanism=Frequencies(BINS, self.options["epsilon"]),
            )
        if cohort == "centre":
            told = sum(list(_NORMS.values())[: len(self._norm_cohorts)])
            counted = round(people * (1 - told) / _CENTRE)
            known = self._norms.chosen
            clip = min(
                bins.best_clip(bins.excess(known), self._noise2(counted), _BIAS),
                bins.exceeded_by(known, _LONG),
            )
        elif centre:
            lost = self._lost(self._norms.chosen, self._distances.chosen)
            clip = bins.best_clip(lost, self._noise2(people), _BIAS_CENTRED)
        else:
            lost = bins.excess(self._norms.chosen)
            clip = bins.best_clip(lost, self._noise2(people), self._direction)
        return VectorQuestion(
            **options, centre=centre, mechanism=self._vectors(people, clip)
        )

    def _lost(self, norms: Floats, distances: Floats) -> Floats:
        """The most that clipping distances at each edge can move the mean.

        More people told their norms, so these may show vectors that distances do not: a vector is as far from the
        centre as its norm is longer, at least.
        """
        farther = EDGES + float(np.linalg.norm(self._centre[1]))
        edges = np.minimum(np.searchsorted(EDGES, farther), BINS)
        return np.maximum(bins.excess(distances), bins.excess(norms)[edges])

    @property
    def _direction(self) -> float:
        """How much of its length the mean of all vectors has, at most: what is clipped moves it by as much."""
        clip, centre, error2 = self._centre
        length = float(self._norms.chosen @ np.minimum(EDGES[1:], clip))
        square = max(float(centre @ centre) - error2, 0.0) + 2 * error2 * math.sqrt(
            2 / len(centre)
        )
        return min(1.0, math.sqrt(square) / length)

    def _vectors(self, people: int, clip: float) -> FrameUnit:
        return FrameUnit(
            self.options["dim"],
            self.options["epsilon"],
            clip=clip,
            clients=people,
            frame_seed=self._public_seed,
        )

    def _noise2(self, people: int) -> float:
        """The squared error of the mean of so many people, with a clip of 1."""
        return float(self._vectors(people, 1.0).typical_error(people).variance)

    def take(
        self,
        cohort: str,  # noqa: ARG002
        question: Any,
        aggregator: Aggregator[Estimate],
    ) -> dict[str, Any]:
        """Keep the shares of the bins, or the mean with its error."""
        estimate = aggregator.mean()
        people = aggregator.count
        if isinstance(question, NormQuestion):
            error = math.sqrt(question.mechanism.sets.rates.variance_at(0.0) / people)
            return {"people": people, "shares": estimate.value.tolist(), "error": error}
        clip = question.mechanism.clip
        if people == 1:
            estimate = replace(estimate, stderr=np.full(len(estimate.value), clip))
        return {
            "people": people,
            "clip": clip,
            "error2": self._noise2(people) * clip**2,
            **estimate_to_dict(estimate),
        }

    def conclude(self) -> Any:
        """Return the mean of both cohorts that sent vectors, by their errors."""
        last = self.learned[-1]
        mean = estimate_from_dict(Estimate, last)
        centre = np.zeros(self.options["dim"])
        known = self._norms
        excess = bins.excess(known.likely)
        error = self._norm_error
        if self._centred:
            centre = self._centre[1]
            mean = replace(mean, value=mean.value + centre)
            known = self._distances
            excess = self._lost(self._norms.likely, known.likely)
            error = self.learned[-2]["error"]
        edge = _edge(last["clip"])
        lost = float(excess[edge])
        first = self._centre_facts
        before = float(bins.excess(self._norms.likely)[_edge(first["clip"])]) + lost
        rough = estimate_from_dict(Estimate, first)
        share, moved = _share_of_first(
            rough.value - mean.value, first["error2"], last["error2"], before
        )
        return RangeResult(
            _pooled(rough, mean, share),
            lost + share * moved,
            last["clip"],
            centre,
            (float(bins.beyond(known.likely)[edge]), error),
            sum(facts["people"] for facts in self.learned),
            self.options["epsilon"],
        )

    def plan(self, people: int) -> StudyPlan:
        """Tell the error of the mean in units of the norm that most vectors have."""
        sizes = self.cohort_sizes(people)
        rates = Frequencies(BINS, self.options["epsilon"]).sets.rates
        needed = math.ceil(
            (2 * _SURE) ** 2 * 4 * rates.variance_at(0.0) / _NORMS["norms"]
        )
        problem = f"too few people to find the norms; {needed:,} would do"
        vectors = sizes.get("centre", 0) + sizes["mean"]
        return StudyPlan(
            people,
            sizes,
            math.sqrt(self._noise2(max(1, vectors))),
            "the error of the mean over the largest norm, if most norms are alike",
            problem * (people < needed and "norms" in sizes),
        )


@lru_cache(maxsize=8)
def _read(
    shares: tuple[float, ...], error: float, skewness: float, highest: int
) -> bins.Histogram:
    return bins.read_histogram(np.array(shares), error, skewness, highest)


def _share_of_first(
    gap: Floats, first2: float, last2: float, most: float
) -> tuple[float, float]:
    """How much the first mean counts, and how far clipping may have moved it from the last one.

    Without clipping both are weighted by their squared errors. What clipping moved is told by the gap between them, by
    the rule of James and Stein, and is at most what was beyond the clip.
    """
    noise2 = first2 + last2
    dim = len(gap)
    gap2 = float(gap @ gap)
    told2 = max(gap2 * dim / (dim - 2) - noise2, 0.0) if dim > 2 else math.inf
    share = last2 / (noise2 + min(told2, most**2))
    moved = math.sqrt(max(gap2 - noise2, 0.0) + 2 * noise2 * math.sqrt(2 / dim))
    return share, min(moved + 2 * math.sqrt(noise2 / dim), most)


def _edge(clip: float) -> int:
    """The number of the edge that was the clip."""
    return int(np.argmin(np.abs(EDGES - clip)))


def _pooled(first: Estimate, second: Estimate, share: float) -> Estimate:
    """The mean with this share of the first one; their errors are independent."""

    def parts(name: str) -> list[Any]:
        return [share * getattr(first, name), (1 - share) * getattr(second, name)]

    known = [one.directions for one in (first, second) if one.directions is not None]
    return Estimate(
        value=np.sum(parts("value"), axis=0),
        stderr=np.sqrt(np.sum(np.square(parts("stderr")), axis=0)),
        count=first.count + second.count,
        simulated=first.simulated or second.simulated,
        frame_bias=math.hypot(*parts("frame_bias")),
        directions=min(known, default=None),
        bias_directions=min(first.bias_directions, second.bias_directions),
        largest=np.maximum(*parts("largest")),
        longest=max(parts("longest")),
    )
