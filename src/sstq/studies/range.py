"""Range: a mean of vectors whose length nobody knows. Cohorts tell bins of norms, then means around a centre."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
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

# The shares of people in the first two cohorts, and of those who tell their distance from the centre.
_NORMS = 0.06
_CENTRE = 0.14
_DISTANCES = 0.06
# How much of what clipping may bias it usually does, before and after a centre is subtracted.
_BIAS = 0.5
_BIAS_CENTRED = 0.3
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

    6 % of the people tell the bin of their norm, from which the server chooses a clip. 14 % tell their vector, which
    gives a rough centre. If this is most of the vectors' length, 6 % tell the bin of their distance from it, and all
    others send what is left of their vector, for which a smaller clip does. Otherwise they send the vector. The result
    has the clip that was used and the share of people beyond it.

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
        """Norms, a centre, perhaps distances from it, and the mean."""
        cohorts = {"norms": _NORMS, "centre": _CENTRE}
        if len(self.learned) > 1 and self._centred:
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
            least, _WORTH * float(self._norms @ sizes**2)
        )

    @property
    def _norms(self) -> Floats:
        return _histograms(self.learned[0])[1]

    @property
    def _centre(self) -> tuple[float, Floats, float]:
        """The clip, the mean and its squared error of the second cohort."""
        facts = self.learned[1]
        return facts["clip"], np.array(facts["value"]), facts["error2"]

    def ask(self, cohort: str, people: int) -> Question:
        """Ask for bins, or for vectors with the clip of least error."""
        options = {"study": self.identifier, "dim": self.options["dim"]}
        centre = (
            self._centre[1].tolist() if len(self.learned) > 1 and self._centred else []
        )
        if cohort in ("norms", "distances"):
            return NormQuestion(
                **options,
                centre=centre,
                mechanism=Frequencies(BINS, self.options["epsilon"]),
            )
        counted = people
        bias = _BIAS_CENTRED if centre else _BIAS
        if cohort == "centre":
            counted = round(people * (1 - _NORMS) / _CENTRE)
        elif not centre:
            bias = self._direction
        clip = bins.best_clip(
            _histograms(self._last_bins)[1], self._noise2(counted), bias
        )
        return VectorQuestion(
            **options, centre=centre, mechanism=self._vectors(people, clip)
        )

    @property
    def _last_bins(self) -> dict[str, Any]:
        return next(facts for facts in reversed(self.learned) if "shares" in facts)

    @property
    def _direction(self) -> float:
        """How much of its length the mean of all vectors has, at most: what is clipped moves it by as much."""
        clip, centre, error2 = self._centre
        length = float(self._norms @ np.minimum(EDGES[1:], clip))
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
        """Return the mean around the centre, or the mean of both cohorts that sent vectors, by their errors."""
        last = self.learned[-1]
        likely = _histograms(self._last_bins)[0]
        lost = bins.excess(likely)[_edge(last["clip"])]
        mean = estimate_from_dict(Estimate, last)
        centre = np.zeros(self.options["dim"])
        if self._centred:
            centre = self._centre[1]
            mean = replace(mean, value=mean.value + centre)
        else:
            first = self.learned[1]
            before = bins.excess(likely)[_edge(first["clip"])]
            risk = (self._direction * lost) ** 2 + last["error2"]
            share = risk / ((self._direction * before) ** 2 + first["error2"] + risk)
            mean = _pooled(estimate_from_dict(Estimate, first), mean, share)
            lost = share * before + (1 - share) * lost
        people = sum(facts["people"] for facts in self.learned)
        beyond = float(bins.beyond(likely)[_edge(last["clip"])])
        return RangeResult(
            mean,
            float(lost),
            last["clip"],
            centre,
            (beyond, self._last_bins["error"]),
            people,
            self.options["epsilon"],
        )

    def plan(self, people: int) -> StudyPlan:
        """Tell the error of the mean in units of the norm that most vectors have."""
        sizes = self.cohort_sizes(people)
        rates = Frequencies(BINS, self.options["epsilon"]).sets.rates
        needed = math.ceil((2 * _SURE) ** 2 * 4 * rates.variance_at(0.0) / _NORMS)
        problem = f"too few people to find the norms; {needed:,} would do"
        vectors = sizes.get("centre", 0) + sizes["mean"]
        return StudyPlan(
            people,
            sizes,
            math.sqrt(self._noise2(max(1, vectors))),
            "the error of the mean over the largest norm, if most norms are alike",
            problem * (people < needed and "norms" in sizes),
        )


def _histograms(facts: dict[str, Any]) -> tuple[Floats, Floats]:
    """The likely shares of bins, and those to choose a clip by."""
    return _read(tuple(facts["shares"]), facts["error"])


@lru_cache(maxsize=8)
def _read(shares: tuple[float, ...], error: float) -> tuple[Floats, Floats]:
    return bins.read_histogram(np.array(shares), error)


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
