"""PrivateClassifier: a linear classifier from one private message per person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation import Estimate
from sstq.checks import check_argument, check_number
from sstq.learning.discriminant import ClassSums, Discriminant, pooled_sums, softmax
from sstq.learning.estimators import (
    BaseEstimator,
    ClassifierMixin,
    check_classification_targets,
    check_is_fitted,
    generator_of,
    validate_data,
)
from sstq.learning.features import FeatureMap, Floats, apply_features, unit_rows
from sstq.learning.questions import Question, label_places, plain_label, refuse_zero_rows
from sstq.learning.weights import energy_level, energy_profile, length_shares
from sstq.mechanisms import FrameUnit, GroupUnit
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.messages.batch import Messages

__all__ = ["LearningReport", "PrivateClassifier"]

Cohort = Literal["centre", "pilot", "main", "check"]

# How fast the energy of classes falls along directions: principal ones of public examples, fixed cosines, any others.
_PRINCIPAL_DECAY, _COSINE_DECAY, _PLAIN_DECAY = 1.0, 0.5, 0.0
# Features spread less at high frequencies, about as (1 + frequency)^−0.9.
_COSINE_SPREAD = 0.9
# So many public examples per direction tell its spread.
_EXAMPLES_PER_DIRECTION = 5
_LEAST_PUBLIC = 10
# The directions at which the noise of a message is predicted; it hardly depends on them.
_USUAL_DIRECTIONS = 32


@dataclass(frozen=True)
class LearningReport:
    """What was learned, from whom, and how good it should be.

    Attributes:
        epsilon: ε of every person in total, because each answers once.
        people: who answered, by cohort.
        message_bits: of a message, by cohort.
        directions: how many features are sent, chosen from the pilot's class sums.
        level: the energy of the classes in the first direction, as the pilot saw it; 1 is usual.
        predicted_accuracy: as the check cohort answered, privately; nan if nobody was asked.
        accuracy_stderr: its standard error.
        true_accuracy: on examples with labels, where `report` was given some; that is simulation.
    """

    epsilon: float
    people: dict[str, int]
    message_bits: dict[str, int]
    directions: int
    level: float
    predicted_accuracy: float = math.nan
    accuracy_stderr: float = math.nan
    true_accuracy: float = math.nan

    def __str__(self) -> str:
        parts = [f"total ε = {self.epsilon:g} per person"]
        if not math.isnan(self.predicted_accuracy):
            parts.append(f"accuracy {100 * self.predicted_accuracy:.1f} ± {100 * self.accuracy_stderr:.1f} % predicted")
        if not math.isnan(self.true_accuracy):
            parts.append(f"{100 * self.true_accuracy:.1f} % true")
        people = ", ".join(f"{name} {count:,}" for name, count in self.people.items())
        return ", ".join([*parts, f"{self.directions} directions"]) + f"; people: {people}"


@dataclass(frozen=True)
class _Basis:
    """Directions of equal spread, as rows (p, D), what is public of the examples, and how energy falls along them."""

    rows: Floats
    decay: float
    centre: Floats | None
    public: Floats | None  # the public examples along these directions, (n, p)

    def weights(self, shares: Floats) -> Floats:
        """The factors between these directions and the unit features of such shares, by least squares."""
        if self.public is None:
            return np.sqrt(shares)
        weighted = self.public[:, : len(shares)] * np.sqrt(shares)
        scale = float(np.sum(unit_rows(weighted) * weighted) / np.sum(weighted * weighted))
        return scale * np.sqrt(shares)


class PrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learn classes from people who each send one ε-locally private message of features and label, once.

    Public features of length 1 are centred, weighted and sent with the private label by `GroupUnit`. The people are
    split at random: without public examples a first cohort sends features only, for the centre; a pilot cohort tells
    how much the classes differ, from which the number of directions and their weights follow; all others send along
    these. The classifier is a linear discriminant of the class sums of pilot and others, shrunk by their known noise,
    with the covariance of the public examples. A last cohort says privately whether it is right about them.

    `fit` is a simulation of all that. A deployment calls `question` and `learn` in turn: see docs/learning.md.

    Args:
        epsilon: ε of a person's only message, and so the person's total.
        features: the public feature map: a callable, a fitted transformer, or None for examples that are features.
            Ours are `Pixels` and `GradientHistograms`.
        public: public examples without labels, as `X` of `fit`, for the centre, the directions and their covariance;
            None without.
        classes: all labels, which are public; None takes those of `fit`, in simulation.
        shares: the shares of the classes, where they are public; None learns them.
        max_features: the most directions; None for a fifth of the public examples, or all of the features without.
        blocks: of `GroupUnit`; of least error unless given. 1 is FrameUnit on the ball.
        pilot_people: the share of people in the pilot cohort.
        centre_people: the share of people in the cohort for the centre, if there are no public examples.
        check_people: the share of people who check the classifier; 0 for nobody, and then no accuracy is predicted.
        random_state: None for the operating system's randomness; a seed makes a simulation reproducible.

    Attributes:
        classes_: the labels.
        report_: a `LearningReport`.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> y = rng.integers(3, size=20_000)
        >>> X = rng.standard_normal((20_000, 8)) + 3 * np.eye(8)[y]
        >>> model = PrivateClassifier(epsilon=3.0, public=X[:500], random_state=0).fit(X[500:], y[500:])
        >>> model.report_.epsilon, model.score(X, y) > 0.85
        (3.0, True)
    """

    def __init__(
        self,
        epsilon: float = 3.0,
        *,
        features: FeatureMap = None,
        public: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
        shares: Sequence[float] | None = None,
        max_features: int | None = None,
        blocks: int | None = None,
        pilot_people: float = 0.1,
        centre_people: float = 0.15,
        check_people: float = 0.05,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.features = features
        self.public = public
        self.classes = classes
        self.shares = shares
        self.max_features = max_features
        self.blocks = blocks
        self.pilot_people = pilot_people
        self.centre_people = centre_people
        self.check_people = check_people
        self.random_state = random_state

    # --- both sides, in simulation

    def fit(self, X: ArrayLike, y: ArrayLike) -> PrivateClassifier:
        """Simulate devices and server: split the people, encode their messages, learn from these alone.

        Args:
            X: one example per person, as the feature map takes them.
            y: their labels.
        """
        X, y = validate_data(self, X, y, allow_nd=True, dtype="numeric")
        check_classification_targets(y)
        self._start(np.unique(y) if self.classes is None else self.classes)
        rng = generator_of(self.random_state)
        order = (rng or np.random.default_rng()).permutation(len(X))
        sizes = self.cohort_sizes(len(X))
        # Checked for everybody before anybody answers.
        mapped = apply_features(self.features, X)
        refuse_zero_rows(mapped)
        label_places(y, {plain_label(label): place for place, label in enumerate(self.classes_)}, len(mapped))
        first = 0
        for size in sizes.values():
            part = order[first : first + size]
            question = self._question(size, mapped.shape[1], rng, mapped=True)
            self._take(question, self._answers(question, mapped[part], y[part], rng))
            first += size
        return self

    def cohort_sizes(self, clients: int) -> dict[Cohort, int]:
        """How many of so many people are in each cohort, in the order of the questions.

        Examples:
            >>> PrivateClassifier(public=[[0.0]]).cohort_sizes(59_000)
            {'pilot': 5900, 'main': 50150, 'check': 2950}
        """
        clients = check_argument("clients", clients)
        sizes: dict[Cohort, int] = {}
        for cohort in self._order():
            name = f"{cohort}_people"
            if cohort != "main":
                share = check_number(name, getattr(self, name), 0.01, 0.5)
                sizes[cohort] = max(1, round(share * clients))
            else:
                sizes[cohort] = 0
        sizes["main"] = clients - sum(sizes.values())
        if sizes["main"] < 1:
            raise ValueError(f"X must have at least {len(sizes)} samples, one per cohort, got {clients} sample")
        return sizes

    def _order(self) -> list[Cohort]:
        """The cohorts, in the order of the questions."""
        check_number("check_people", self.check_people, 0, 0.5)
        first: list[Cohort] = ["centre"] if self.public is None else []
        last: list[Cohort] = ["check"] if self.check_people else []
        return [*first, "pilot", "main", *last]

    # --- the server's side

    def question(self, people: int) -> Question:
        """The question for the next cohort, of so many people; publish its `to_json`.

        Call `learn` with the messages of the cohort, then ask the next one, until `learn` has had all of them.
        """
        if not hasattr(self, "_cohorts"):
            if self.classes is None:
                raise ValueError("classes must be given: the server does not see labels, got None")
            self._start(self.classes)
        width = None if self.features is None else self._width_of_features()
        return self._question(people, width, generator_of(self.random_state))

    def learn(self, messages: Messages) -> PrivateClassifier:
        """Take the messages of the cohort that was asked last."""
        if getattr(self, "_asked", None) is None:
            raise ValueError("learn needs the messages of a question: call question first")
        aggregator = self._asked.mechanism.aggregator()
        aggregator.update(messages)
        return self._take(self._asked, aggregator.mean())

    def _answers(
        self, question: Question, mapped: Floats, y: NDArray[Any], rng: np.random.Generator | None
    ) -> Estimate:
        """What the server learns of a cohort; the lab has other ways to learn it, to compare with."""
        aggregator = question.mechanism.aggregator()
        aggregator.update(question.encode(mapped, y, rng))
        return aggregator.mean()

    def _noise(self, mechanism: GroupUnit, people: int) -> float:
        """The expected squared error of the class sums of so many people, over their number."""
        return mechanism.typical_error(people).total

    def _take(self, question: Question, estimate: Any) -> PrivateClassifier:
        self._asked = None
        cohort = self._cohorts[0]
        self._cohorts = self._cohorts[1:]
        self._people[cohort], self._bits[cohort] = estimate.count, question.mechanism.message_bits
        if cohort == "centre":
            self._centre = estimate.value
        elif cohort == "check":
            self._take_check(float(estimate.value[0]), float(estimate.stderr[0]))
        elif cohort == "pilot":
            self._pilot = self._class_sums(question, estimate)
            self._level = self._level_of(self._pilot)
        else:
            self._finish(question, self._class_sums(question, estimate))
        return self

    def _class_sums(self, question: Question, estimate: GroupEstimate) -> ClassSums:
        """The sums of a cohort in units of spread; their noise is known."""
        weights = self._basis.weights(self._shares)
        sums = estimate.value.reshape(len(self.classes_), -1)
        noise = self._noise(question.mechanism, estimate.count) / sums.size
        known = estimate.simplex_shares() if self.shares is None else self._given_shares()
        return ClassSums(sums / weights, noise / weights**2, known, estimate.count)

    def _level_of(self, found: ClassSums) -> float:
        return energy_level(found.energies, found.energy_noise, len(self.classes_), self._basis.decay)

    def _finish(self, question: Question, own: ClassSums) -> None:
        basis, shares, count = self._basis, self._shares, len(self._shares)
        found = pooled_sums(self._pilot, own)
        energies = energy_profile(count, basis.decay, self._level_of(found))
        public = None if basis.public is None else unit_rows(basis.public[:, :count] * np.sqrt(shares))
        self._discriminant = Discriminant.fit(found, basis.weights(shares), energies, public)
        self._asked_last, self._sharpness = question, 1.0
        self.coef_, self.intercept_ = self._discriminant.coef, self._discriminant.intercept
        self.report_ = LearningReport(float(self.epsilon), self._people, self._bits, count, self._level)

    def _take_check(self, value: float, stderr: float) -> None:
        # Right is +1 and wrong is −1.
        accuracy = min(max((1 + value) / 2, 1 / len(self.classes_)), 0.999)
        self._sharpness = self._discriminant.sharpness(accuracy)
        self.report_ = replace(self.report_, predicted_accuracy=accuracy, accuracy_stderr=stderr / 2)

    def _start(self, classes: ArrayLike) -> None:
        check_argument("epsilon", self.epsilon)
        labels = np.asarray(classes)
        if labels.ndim != 1 or len(np.unique(labels)) != len(labels) or len(labels) < 2:
            raise ValueError(
                f"classes must be at least 2 different labels, got {labels.tolist()!r}: one class is no choice"
            )
        self.classes_ = np.sort(labels)
        self._cohorts = self._order()
        self._people: dict[str, int] = {}
        self._bits: dict[str, int] = {}
        self._basis: _Basis | None = None
        self._centre = self._pilot = self._asked = None
        self._level = 1.0
        if self.shares is not None:
            self._given_shares()

    def _given_shares(self) -> Floats:
        shares = np.asarray(self.shares, dtype=np.float64)
        if (
            shares.shape != self.classes_.shape
            or not np.all(shares >= 0)
            or not math.isclose(shares.sum(), 1, rel_tol=1e-6)
        ):
            raise ValueError(
                f"shares must be {len(self.classes_)} numbers from 0 on with the sum 1, got {self.shares!r}"
            )
        return shares

    def _width_of_features(self) -> int | None:
        if hasattr(self.features, "cosines"):
            return len(self.features.cosines()[0])
        return None

    def _question(
        self, people: int, width: int | None, rng: np.random.Generator | None, mapped: bool = False
    ) -> Question:
        people = check_argument("people", people, of="clients")
        if not self._cohorts:
            raise ValueError("everything is learned: fit or clone the classifier to ask again")
        cohort = self._cohorts[0]
        seed = int((rng or np.random.default_rng()).integers(2**63))
        features = None if mapped else self.features
        if cohort == "centre":
            if width is None:
                raise ValueError("public must be given: the number of features is not known without examples")
            question = Question(
                "centre", FrameUnit(width, self.epsilon, clients=people, frame_seed=seed), features=features
            )
        elif cohort == "check":
            question = Question(
                "check",
                FrameUnit(1, self.epsilon, clients=people, frame_seed=seed),
                self._asked_last.directions,
                self._asked_last.centre,
                features,
                self.classes_.tolist(),
                scores=(self.coef_, self.intercept_),
            )
        else:
            if self._basis is None:
                self._basis = self._make_basis(width)
            # The pilot is asked along the directions that all people would be asked along.
            everybody = people if cohort == "main" else max(1, round(people / self.pilot_people))
            self._shares = shares = self._length_shares(everybody)
            question = Question(
                "classes",
                self._mechanism(len(shares), people, seed),
                self._basis.rows[: len(shares)] * np.sqrt(shares)[:, None],
                self._basis.centre,
                features,
                self.classes_.tolist(),
            )
        self._asked = question
        return question

    def _length_shares(self, people: int) -> Floats:
        """The weights for so many people, at the level of energy that is known so far."""
        usual = self._mechanism(_USUAL_DIRECTIONS, people, 0)
        noise = len(self.classes_) * self._noise(usual, people) / _USUAL_DIRECTIONS
        return length_shares(energy_profile(len(self._basis.rows), self._basis.decay, self._level), noise)

    def _mechanism(self, dim: int, people: int, seed: int) -> GroupUnit:
        share_people = 0.1 if self.shares is None else 0.0
        return GroupUnit(
            dim,
            self.epsilon,
            groups=len(self.classes_),
            blocks=self.blocks,
            clients=people,
            share_people=share_people,
            frame_seed=seed,
        )

    def _make_basis(self, width: int | None) -> _Basis:
        most = (
            None
            if self.max_features is None
            else check_number("max_features", self.max_features, 1, 2**20, integer=True)
        )
        if self.public is not None:
            return self._public_basis(most)
        if width is None or self._centre is None:
            raise ValueError("public must be given: the number of features is not known without examples")
        if hasattr(self.features, "cosines"):
            rows, frequency = self.features.cosines()
            rows = rows * (1 + frequency[:, None]) ** _COSINE_SPREAD
            return _Basis(rows[:most], _COSINE_DECAY, self._centre, None)
        return _Basis(np.eye(width)[:most], _PLAIN_DECAY, self._centre, None)

    def _public_basis(self, most: int | None) -> _Basis:
        mapped = apply_features(self.features, self.public)
        refuse_zero_rows(mapped, "the features of public")
        enough = len(mapped) // _EXAMPLES_PER_DIRECTION
        if len(mapped) < _LEAST_PUBLIC or (most is not None and most > enough):
            needed = max(_LEAST_PUBLIC, _EXAMPLES_PER_DIRECTION * (most or 1))
            count = "any" if most is None else most
            raise ValueError(
                f"public must have at least {needed} examples for {count} directions, got {len(mapped)}; "
                f"pass more, or max_features={max(1, enough)}"
            )
        examples = unit_rows(mapped)
        centre = examples.mean(axis=0)
        _, lengths, rows = np.linalg.svd(examples - centre, full_matrices=False)
        spread = lengths / math.sqrt(len(examples))
        kept = min(most or enough, enough, int(np.sum(spread > 1e-6 * max(spread[0], 1e-300))))
        if kept < 1:
            raise ValueError("public must not be one example many times: there is no direction in it")
        rows = rows[:kept] / spread[:kept, None]
        return _Basis(rows, _PRINCIPAL_DECAY, centre, (examples - centre) @ rows.T)

    # --- use

    def _unit_features(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "report_")
        if hasattr(self, "n_features_in_"):
            X = validate_data(self, X, reset=False, allow_nd=True, dtype="numeric")
        mapped = unit_rows(apply_features(self.features, X))
        return unit_rows((mapped - self._asked_last.centre) @ self._asked_last.directions.T)

    def _scores(self, X: ArrayLike) -> Floats:
        return self._discriminant.scores(self._unit_features(X))

    def decision_function(self, X: ArrayLike) -> Floats:
        """The linear estimates of the classes' probabilities, (n, classes); for two classes their difference, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of every example."""
        labels: NDArray[Any] = self.classes_[self._scores(X).argmax(axis=1)]
        return labels

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The probabilities of the classes, (n, classes)."""
        return softmax(self._sharpness * self._scores(X))

    def report(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> LearningReport:
        """What was learned; with labelled examples, which only a simulation has, with the true accuracy."""
        check_is_fitted(self, "report_")
        return self.report_ if X is None else replace(self.report_, true_accuracy=float(self.score(X, y)))
