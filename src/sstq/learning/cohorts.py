"""What both estimators share: cohorts of people are asked one after the other, each by a question of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from sstq.aggregation import Estimate
from sstq.checks import check_argument
from sstq.learning.features import Floats
from sstq.learning.questions import Question
from sstq.messages.batch import Messages

Rng = np.random.Generator | None


def generator_of(random_state: Any) -> Rng:
    """Return the generator of a `random_state`; None for the operating system's randomness."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise ValueError(f"random_state must be None, an integer ≥ 0 or a generator, got {random_state!r}")
    return np.random.default_rng(int(random_state))


class CohortEstimator(BaseEstimator):  # type: ignore[misc]
    """A server that asks its cohorts in turn.

    A subclass lists the cohorts in `_begin`, makes the question for one in `_ask` and learns from it in `_take`.
    """

    _cohorts: list[str]  # still to be asked
    _asked: Question | None = None  # waiting for answers

    # --- a deployment

    def _begin_once(self) -> None:
        if not hasattr(self, "_cohorts"):
            self._begin()

    @property
    def cohorts_left(self) -> tuple[str, ...]:
        """The cohorts still to be asked, in a deployment."""
        self._begin_once()
        return tuple(self._cohorts)

    def question(self, people: int) -> Question:
        """Return the question for the next cohort of this many people; publish its `to_json`.

        Call `learn` with the messages of the cohort, then ask the next one, until `cohorts_left` is empty.
        """
        self._begin_once()
        return self._question(people, generator_of(self.random_state))

    def learn(self, messages: Messages) -> Self:
        """Learn from the messages of the cohort that was asked last.

        With a shuffler they must have been mixed, slot by slot, before the server got them; this is not checked.
        Fewer people than the question was for are then refused: the privacy guarantee depends on their number.
        """
        if self._asked is None:
            raise ValueError("learn needs the messages of a question: call question first")
        self._learn(self._asked.mechanism.aggregator().update(messages).mean())
        return self

    def _question(self, people: int, rng: Rng) -> Question:
        people = check_argument("people", people, of="clients")
        if not self._cohorts:
            raise ValueError("all cohorts have answered; use sklearn.base.clone(estimator) to start again")
        seed = int((rng or np.random.default_rng()).integers(2**63))
        self._asked = self._ask(self._cohorts[0], people, seed)
        self._expected = people
        return self._asked

    def _learn(self, estimate: Estimate) -> None:
        if self._asked is not None:
            self._take(self._cohorts[0], self._asked, estimate)
            self._asked = None
            self._cohorts = self._cohorts[1:]

    # --- a simulation

    def _teach(self, mapped: Floats, y: NDArray[Any], rng: Rng, sizes: Mapping[str, int]) -> None:
        """Ask every cohort that has people, who are drawn at random; their features are computed already."""
        order = (rng or np.random.default_rng()).permutation(len(mapped))
        parts = dict(zip(sizes, np.split(order, np.cumsum(list(sizes.values()))[:-1]), strict=True))
        for part in filter(len, map(parts.__getitem__, self._cohorts)):
            question = self._question(len(part), rng)
            self._learn(self._answers(replace(question, features=None), mapped[part], y[part], rng))

    def _answers(self, question: Question, mapped: Floats, y: NDArray[Any], rng: Rng) -> Estimate:
        """What the server learns from a cohort; comparisons override this."""
        return question.mechanism.aggregator().update(question.encode(mapped, y, rng)).mean()

    def _known_rows(self, X: ArrayLike) -> ArrayLike:
        """Examples to predict, checked against those of `fit`; a deployment has seen none."""
        if not hasattr(self, "n_features_in_"):
            return X
        checked: ArrayLike = validate_data(self, X, reset=False, allow_nd=True, dtype="numeric")
        return checked
