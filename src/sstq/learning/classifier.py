"""PrivateClassifier: a linear classifier from one private message per person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation import Estimate
from sstq.checks import check_argument, check_number, check_option
from sstq.learning.course import CENTRE_PEOPLE, PILOT_PEOPLE, Budget, Cohort, Course, LearningReport, Trust
from sstq.learning.discriminant import softmax
from sstq.learning.estimators import (
    BaseEstimator,
    ClassifierMixin,
    check_classification_targets,
    check_is_fitted,
    generator_of,
    validate_data,
)
from sstq.learning.features import (
    FeatureMap,
    Floats,
    FourierFeatures,
    apply_features,
    feature_count,
    scaled_features,
    unit_rows,
)
from sstq.learning.questions import Question
from sstq.messages.batch import Messages

__all__ = ["LearningReport", "PrivateClassifier"]

# The share of all people who try each feature map, and of these the share who judge it.
TRIAL_PEOPLE, TRIAL_CHECKS = 0.1, 0.2


class PrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learn a classifier from people who each send one ε-locally private message of features and label, once.

    A public map computes features of length 1, which are centred, weighted and sent with the private label by
    `GroupUnit`. The people are split at random: without public examples a first cohort sends features only, for the
    centre; a pilot cohort shows how much the classes differ, which determines the number of directions and their
    weights; all others send along these. The classifier is a linear discriminant of the class sums, shrunk by noise,
    with the covariance of the public examples. Two last cohorts report privately whether it is right about them: the
    first chooses between two forms of the discriminant, the second tells the accuracy by class.

    `fit` simulates all of that. A deployment calls `question` and `learn` in turn: see docs/learning.md.

    Args:
        epsilon: the total ε per person: of the only message, or of all messages behind a shuffler.
        trust: "local", or "shuffler": then each cohort's messages are mixed before the server sees them.
        delta: the total δ per person behind a shuffler.
        messages: the messages per person to a shuffler, each mixed with those of its own slot.
        features: the public feature map: a callable or a fitted transformer, whose features need no scaling; None for
            the columns of a table. Built-in maps are `Pixels`, `GradientHistograms` and `FourierFeatures`. "auto" tries
            columns and `FourierFeatures` on a tenth of the people each, who answer nothing else; those of them who
            check choose, and all others send what was chosen.
        bounds: public ends of the columns: {name: (low, high)}, an array (D, 2), or one pair for all of them. Columns
            are scaled by them, or by `public` if they are None.
        public: public examples without labels, like `X` of `fit`, for the centre, the directions and their covariance;
            None if there are none.
        classes: all labels, which are public; None takes those of `fit`, in simulation.
        shares: the shares of the classes, if public; None to learn them.
        max_features: the maximum number of directions; None for a fifth of the public examples, or for all features.
        blocks: the blocks of `GroupUnit`; by default those of least error. 1 is FrameUnit on the ball.
        check_people: the share of people who judge the classifier; with 0 no accuracy is predicted. Half of them choose
            between two forms of the discriminant, half report the accuracy by class.
        random_state: None for the operating system's randomness; a seed makes a simulation reproducible.

    Attributes:
        classes_: the labels.
        features_: the feature map that is used.
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
        trust: Trust = "local",
        delta: float = 1e-6,
        messages: int = 1,
        features: FeatureMap = None,
        bounds: Any = None,
        public: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
        shares: Sequence[float] | None = None,
        max_features: int | None = None,
        blocks: int | None = None,
        check_people: float = 0.05,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.trust = trust
        self.delta = delta
        self.messages = messages
        self.features = features
        self.bounds = bounds
        self.public = public
        self.classes = classes
        self.shares = shares
        self.max_features = max_features
        self.blocks = blocks
        self.check_people = check_people
        self.random_state = random_state

    # --- both sides, in simulation

    def fit(self, X: Any, y: Any) -> PrivateClassifier:
        """Simulate devices and server: split the people, encode their messages, learn from these alone.

        Args:
            X: one example per person, as the feature map takes them.
            y: their labels.
        """
        X, y = validate_data(self, X, y, allow_nd=True, dtype="numeric")
        check_classification_targets(y)
        rng = generator_of(self.random_state)
        if self._automatic:
            X, y = self._try_features(X, y, rng)
        sizes = self.cohort_sizes(len(X))
        course = self._start(np.unique(y) if self.classes is None else self.classes, np.shape(X)[-1])
        # Checked for everybody before anybody answers.
        mapped = apply_features(course.features, X)
        unknown = ~np.isin(y, course.classes)
        if unknown.any():
            row = np.flatnonzero(unknown)[0]
            raise ValueError(f"y must be among the classes {course.classes}, got {y[row].item()!r} in row {row}")
        order = (rng or np.random.default_rng()).permutation(len(mapped))
        for part in np.split(order, np.cumsum(list(sizes.values()))[:-1]):
            # The features are computed already.
            question = course.question(len(part), mapped.shape[1], _public_seed(rng), None)
            course.take(question, self._answers(question, mapped[part], y[part], rng))
        return self._fitted()

    @property
    def _automatic(self) -> bool:
        return isinstance(self.features, str) and check_option("features", self.features, ("auto",)) == "auto"

    def _try_features(self, X: Any, y: Any, rng: np.random.Generator | None) -> tuple[Any, Any]:
        """Learn once with every feature map, from people who answer nothing else; return those who are left."""
        self._trials = self._new_trials(np.unique(y) if self.classes is None else self.classes, rng, np.shape(X)[-1])
        size = round(TRIAL_PEOPLE * len(X))
        order = (rng or np.random.default_rng()).permutation(len(X))
        *parts, rest = np.split(order, [size * number for number in range(1, len(self._trials) + 1)])
        for trial, part in zip(self._trials, parts, strict=True):
            trial.fit(X[part], y[part])
        return X[rest], y[rest]

    def _new_trials(self, classes: Any, rng: Any, columns: int | None = None) -> list[PrivateClassifier]:
        if self.public is None:
            raise ValueError("public must be given for features='auto', got None: their directions come from it")
        plain = scaled_features(None, self.bounds, self.public, columns)
        options = {"bounds": None, "classes": classes, "check_people": TRIAL_CHECKS, "random_state": rng}
        maps = (plain, FourierFeatures(plain.centre, plain.spread))
        return [type(self)(**self.get_params(deep=False) | options | {"features": each}) for each in maps]

    @property
    def _open_trial(self) -> PrivateClassifier | None:
        """The trial that is not over, in a deployment."""
        if not self._automatic:
            return None
        if not hasattr(self, "_trials"):
            self._trials = self._new_trials(self.classes, self.random_state)
        return next((trial for trial in self._trials if trial.cohorts_left), None)

    def _answers(
        self, question: Question, mapped: Floats, y: NDArray[Any], rng: np.random.Generator | None
    ) -> Estimate:
        """What the server learns from a cohort; the lab overrides this for comparisons."""
        aggregator = question.mechanism.aggregator()
        sent = question.encode(mapped, y, rng)
        aggregator.update(sent.shuffled(self.messages, rng) if self.trust == "shuffler" else sent)
        return aggregator.mean()

    def cohort_sizes(self, clients: int) -> dict[Cohort, int]:
        """Return the sizes of the cohorts for this many people, in the order of the questions.

        Examples:
            >>> PrivateClassifier(public=[[0.0]]).cohort_sizes(59_000)
            {'pilot': 5900, 'main': 50150, 'check': 1475, 'classes': 1475}
        """
        clients = check_argument("clients", clients)
        judges = self.check_people / 2
        shares = {"centre": CENTRE_PEOPLE, "pilot": PILOT_PEOPLE, "main": 0.0, "check": judges, "classes": judges}
        sizes = {cohort: max(1, round(shares[cohort] * clients)) for cohort in self._order()}
        sizes["main"] += clients - sum(sizes.values())
        if sizes["main"] < 1:
            raise ValueError(f"X must have at least {len(sizes)} samples, one per cohort, got {clients} sample")
        return sizes

    def _order(self) -> list[Cohort]:
        """The cohorts, in the order of the questions."""
        check_number("check_people", self.check_people, 0, 0.5)
        first: list[Cohort] = ["centre"] if self.public is None else []
        last: list[Cohort] = ["check", "classes"] if self.check_people else []
        return [*first, "pilot", "main", *last]

    # --- the server's side

    def question(self, people: int) -> Question:
        """Return the question for the next cohort of this many people; publish its `to_json`.

        Call `learn` with the messages of the cohort, then ask the next one, until `cohorts_left` is empty.
        """
        if self.classes is None:
            raise ValueError("classes must be given, got None: the server does not see labels")
        if (trial := self._open_trial) is not None:
            return trial.question(people)
        course = self._course if hasattr(self, "_course") else self._start(self.classes)
        seed = _public_seed(generator_of(self.random_state))
        return course.question(people, feature_count(course.features), seed, course.features)

    def learn(self, messages: Messages) -> PrivateClassifier:
        """Learn from the messages of the cohort that was asked last; after the main cohort the classifier is ready.

        With a shuffler they must have been mixed, slot by slot, before the server got them; this is not checked.
        Fewer people than the question was for are refused, because the privacy guarantee depends on their number.
        """
        if (trial := self._open_trial) is not None:
            trial.learn(messages)
            return self
        course: Course | None = getattr(self, "_course", None)
        if course is None or course.asked is None:
            raise ValueError("learn needs the messages of a question: call question first")
        aggregator = course.asked.mechanism.aggregator()
        aggregator.update(messages)
        course.take(course.asked, aggregator.mean())
        return self._fitted()

    @property
    def cohorts_left(self) -> tuple[Cohort, ...]:
        """The cohorts still to be asked, in a deployment."""
        trials = self._trials if self._open_trial is not None else []
        return (
            *(cohort for trial in trials for cohort in trial.cohorts_left),
            *(self._course.cohorts if hasattr(self, "_course") else self._order()),
        )

    def _start(self, classes: ArrayLike, columns: int | None = None) -> Course:
        labels = np.unique(np.asarray(classes))
        if len(labels) < 2 or len(labels) != len(np.asarray(classes)):
            raise ValueError(f"classes must be at least 2 different labels, got {len(labels)} class")
        if self._automatic:
            trials: list[Any] = self._trials
            features = max(trials, key=lambda trial: trial.report_.predicted_accuracy).features_
        else:
            features = scaled_features(self.features, self.bounds, self.public, columns)
        public = None if self.public is None else apply_features(features, self.public)
        self._course = self._course_type(
            budget=Budget(self.epsilon, self.delta if self.trust == "shuffler" else 0.0, self.messages, self.trust),
            classes=labels.tolist(),
            cohorts=self._order(),
            features=features,
            public=public,
            shares=self._given_shares(len(labels)),
            max_features=self.max_features,
            blocks=self.blocks,
        )
        self.classes_, self.features_ = labels, features
        return self._course

    _course_type = Course

    def _given_shares(self, count: int) -> Floats | None:
        if self.shares is None:
            return None
        shares = np.asarray(self.shares, dtype=np.float64)
        if shares.shape != (count,) or not np.all(shares >= 0) or not math.isclose(shares.sum(), 1, rel_tol=1e-6):
            raise ValueError(f"shares must be {count} numbers ≥ 0 with sum 1, got {self.shares!r}")
        return shares

    def _fitted(self) -> PrivateClassifier:
        if self._course.report is not None:
            self.coef_, self.intercept_ = self._course.discriminant.coef, self._course.discriminant.intercept
            self.report_ = self._with_trials(self._course.report)
        return self

    def _with_trials(self, report: LearningReport) -> LearningReport:
        if not self._automatic:
            return report
        tried = {trial.features_.name: trial.report_ for trial in self._trials}
        people = {"trials": sum(sum(known.people.values()) for known in tried.values()), **report.people}
        most = max(report.local_epsilon, *(known.local_epsilon for known in tried.values()))
        trials = {name: known.predicted_accuracy for name, known in tried.items()}
        return replace(report, people=people, local_epsilon=most, trials=trials)

    # --- use

    def _scores(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "report_")
        if hasattr(self, "n_features_in_"):
            X = validate_data(self, X, reset=False, allow_nd=True, dtype="numeric")
        rows = unit_rows(apply_features(self._course.features, X))
        return self._course.discriminant.scores(self._course.main.unit_features(rows))

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return linear estimates of the class probabilities, (n, classes); for two classes their difference, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most likely class of every example."""
        places = self._scores(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[places]
        return labels

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return class probabilities, (n, classes), calibrated by the accuracy that the check cohort reported."""
        scores = self._scores(X)
        return softmax(self._course.sharpness * scores)

    def report(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> LearningReport:
        """Return a report; with labelled examples, which only a simulation has, including the true accuracy."""
        check_is_fitted(self, "report_")
        known: LearningReport = self.report_
        if X is None:
            return known
        true = float(self.score(X, y))
        return replace(known, true_accuracy=true, true_stderr=math.sqrt(true * (1 - true) / len(np.asarray(y))))


def _public_seed(rng: np.random.Generator | None) -> int:
    return int((rng or np.random.default_rng()).integers(2**63))
