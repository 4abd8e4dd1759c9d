"""What both estimators share: they are studies with scikit-learn's face."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from sstq.aggregation import Aggregator, Estimate
from sstq.array_types import Floats
from sstq.files.strict_json import JsonObject
from sstq.inputs.plain_numbers import plain_numbers
from sstq.learning.features import (
    Columns,
    FeatureMap,
    apply_features,
    listed_ranges,
    scaled_columns,
)
from sstq.learning.questions import Question
from sstq.mechanisms import FrameUnit, Frequencies, GroupUnit
from sstq.mechanisms.frequencies import FrequencyEstimate
from sstq.mechanisms.groupunit.group_estimates import GroupEstimate
from sstq.studies import Study
from sstq.studies.facts import estimate_from_dict, estimate_to_dict
from sstq.studies.questions import require

Rng = np.random.Generator | None
_ESTIMATES: dict[type, type[Estimate]] = {
    FrameUnit: Estimate,
    GroupUnit: GroupEstimate,
    Frequencies: FrequencyEstimate,
}


def generator_of(random_state: Any) -> Rng:
    """Return the generator of a `random_state`; None for the operating system's randomness."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    if (
        isinstance(random_state, bool)
        or not isinstance(random_state, int | np.integer)
        or random_state < 0
    ):
        raise ValueError(
            f"random_state must be None, an integer ≥ 0 or a generator, got {random_state!r}"
        )
    return np.random.default_rng(int(random_state))


class CohortEstimator(BaseEstimator, Study):  # type: ignore[misc]
    """A study whose options are an estimator's parameters; what it has learned are the estimator's attributes.

    A subclass checks its parameters in `_begin`, lists its cohorts in `_cohorts`, makes the question for one in
    `_question` and learns from it in `_take`.
    """

    _map: FeatureMap
    _ranges: list[list[float]] | None
    _width: int | None = None
    _simulation: Rng = None

    @abstractmethod
    def _begin(self) -> None:
        """Check the parameters of a deployment."""

    def __dir__(self) -> list[str]:
        """All names: scikit-learn would read every property, and those of a study that has not begun raise."""
        return list(object.__dir__(self))

    def _begin_once(self) -> None:
        if not hasattr(self, "_map"):
            self._begin()

    @property
    @abstractmethod
    def _cohorts(self) -> dict[str, float]:
        """All cohorts in turn, and their shares of the people."""

    @abstractmethod
    def _question(self, cohort: str, people: int, seed: int) -> Question:
        """Return the question for a cohort, with this public seed."""

    @abstractmethod
    def _take(self, cohort: str, question: Question, estimate: Any) -> None:
        """Learn from the estimate of a cohort."""

    def _scaled_columns(self, columns: int | None) -> Columns:
        """The map of the columns of a table, scaled by `bounds` or by `public`."""
        names = getattr(self, "feature_names_in_", None)
        self._ranges = listed_ranges(self.bounds, self.public, columns, names)
        return scaled_columns(self._ranges, self.public)

    # --- a study

    @property
    def options(self) -> dict[str, Any]:
        """The parameters of the constructor, as scikit-learn lists them."""
        return dict(self.get_params(deep=False))

    def options_to_dict(self) -> JsonObject:
        """Return the parameters as JSON values, with what `fit` knew of columns and classes."""
        self._begin_once()
        require(
            isinstance(self.random_state, int | None),
            f"random_state must be None or an integer in a study that is saved, got {self.random_state!r}",
        )
        return {
            name: _plain(value) for name, value in (self.options | self._told).items()
        }

    @property
    def _told(self) -> JsonObject:
        """What is known beyond the parameters, as JSON values."""
        public = self.public
        return {
            "bounds": self._ranges,
            "public": None if public is None else plain_numbers(public).tolist(),
        }

    @property
    def weights(self) -> dict[str, float]:
        """The cohorts that are left."""
        self._begin_once()
        return self._left(self._cohorts)

    def ask(self, cohort: str, people: int) -> Question:
        """Return the question for a cohort; public seeds follow from `random_state`, or from the study's name."""
        rng = self._simulation or generator_of(self.random_state)
        seed = self._public_seed if rng is None else int(rng.integers(2**63))
        return self._question(cohort, people, seed)

    def take(
        self,
        cohort: str,  # noqa: ARG002
        question: Any,
        aggregator: Aggregator[Estimate],
    ) -> JsonObject:
        """Keep the question and the estimate."""
        return _facts(question, aggregator.mean())

    def follow(self, cohort: str, facts: JsonObject) -> None:
        """Learn from the estimate."""
        question: Question = self._state.asked or Question.from_dict(facts["question"])  # type: ignore[assignment]
        estimate = estimate_from_dict(_ESTIMATES[type(question.mechanism)], facts)
        self._take(cohort, replace(question, features=self._map), estimate)

    # --- a simulation

    def _teach(self, X: Any, y: NDArray[Any], sizes: Mapping[str, int]) -> None:
        """Ask every cohort that has people, who are drawn at random; features are computed once."""
        mapped = apply_features(self._map, X)
        self._width = mapped.shape[1]
        rng = generator_of(self.random_state)
        self.__dict__.pop("_state", None)  # `fit` starts again
        self._simulation = rng or np.random.default_rng()
        order = self._simulation.permutation(len(mapped))
        parts = dict(
            zip(
                sizes,
                np.split(order, np.cumsum(list(sizes.values()))[:-1]),
                strict=True,
            )
        )
        for part in filter(len, map(parts.__getitem__, self.cohorts_left)):
            self._ask(len(part))
            estimate = self._answers(
                replace(self.asked, features=None), mapped[part], y[part], rng
            )
            self._keep(_facts(self.asked, estimate))
        del self._simulation

    def _answers(
        self, question: Question, mapped: Floats, y: NDArray[Any], rng: Rng
    ) -> Estimate:
        """What the server learns from a cohort; comparisons override this."""
        return (
            question.mechanism.aggregator()
            .update(question.encode(mapped, y, rng))
            .mean()
        )

    def _known_rows(self, X: ArrayLike) -> ArrayLike:
        """Examples to predict, checked against those of `fit`; a deployment has seen none."""
        if not hasattr(self, "n_features_in_"):
            return X
        checked: ArrayLike = validate_data(
            self, X, reset=False, allow_nd=True, dtype="numeric"
        )
        return checked


def _facts(question: Question, estimate: Estimate) -> JsonObject:
    return {"question": question.to_dict(), **estimate_to_dict(estimate)}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int | float | str | list | dict):
        return value
    return plain_numbers(value).tolist()
