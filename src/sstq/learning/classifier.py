"""PrivateClassifier: a linear classifier from one private message per person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation import Estimate
from sstq.checks import check_option
from sstq.learning.course import Budget, Cohort, Course, LearningReport, Trust
from sstq.learning.estimators import (
    BaseEstimator,
    ClassifierMixin,
    check_classification_targets,
    check_is_fitted,
    generator_of,
    known_rows,
    public_seed,
    validate_data,
)
from sstq.learning.features import FeatureMap, Floats, FourierFeatures, apply_features, scaled_columns, unit_rows
from sstq.learning.questions import Question
from sstq.messages.batch import Messages

# The share of all people who try each feature map, and of these the share who judge it.
_TRIAL_PEOPLE, _TRIAL_CHECKS = 0.1, 0.2


class PrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learn a classifier from people who each send one ε-locally private message of features and label, once.

    People are split at random into cohorts, each with its own question; the classifier is a linear discriminant of the
    class sums. `fit` simulates devices and server. A deployment calls `question` and `learn` in turn. docs/learning.md
    has the cohorts and the maths.

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
        self.max_features = max_features
        self.blocks = blocks
        self.check_people = check_people
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PrivateClassifier:
        """Simulate devices and server: split the people, encode their messages, learn from these alone.

        Args:
            X: one example per person, as the feature map takes them.
            y: their labels.
        """
        X, y = validate_data(self, X, y, allow_nd=True, dtype="numeric")
        check_classification_targets(y)
        rng = generator_of(self.random_state)
        self._begin(np.unique(y) if self.classes is None else self.classes, np.shape(X)[-1])
        unknown = np.flatnonzero(~np.isin(y, self.classes_))
        if len(unknown):
            got = f"got {y[unknown[0]].item()!r} in row {unknown[0]}"
            raise ValueError(f"y must be among the classes {self.classes_.tolist()}, {got}")
        *trials, _ = self._courses
        if trials:
            tried = round(_TRIAL_PEOPLE * len(X))
            order = (rng or np.random.default_rng()).permutation(len(X))
            *parts, rest = np.split(order, [tried * number for number in range(1, len(trials) + 1)])
            for trial, part in zip(trials, parts, strict=True):
                self._teach(trial, X[part], y[part], rng)
            X, y = X[rest], y[rest]
        self._teach(self._course, X, y, rng)
        return self._fitted()

    def _teach(self, course: Course, X: Any, y: Any, rng: np.random.Generator | None) -> None:
        """Ask every cohort of a course, once each."""
        sizes, mapped = course.sizes(len(X)), apply_features(course.features, X)
        order = (rng or np.random.default_rng()).permutation(len(X))
        for part in np.split(order, np.cumsum(list(sizes.values()))[:-1]):
            question = course.question(len(part), public_seed(rng), mapped.shape[1])
            # The features are computed already.
            course.take(self._answers(replace(question, features=None), mapped[part], y[part], rng))

    def _answers(
        self, question: Question, mapped: Floats, y: NDArray[Any], rng: np.random.Generator | None
    ) -> Estimate:
        """What the server learns from a cohort; comparisons override this."""
        aggregator = question.mechanism.aggregator()
        sent = question.encode(mapped, y, rng)
        aggregator.update(sent.shuffled(self.messages, rng) if self.trust == "shuffler" else sent)
        return aggregator.mean()

    def _begin(self, classes: ArrayLike | None, columns: int | None = None) -> None:
        """Read all options: from here on there are courses, the last of which teaches the classifier."""
        if classes is None:
            raise ValueError("classes must be given, got None: the server does not see labels")
        labels = np.unique(np.asarray(classes))
        if len(labels) < 2 or len(labels) != len(np.asarray(classes)):
            raise ValueError(f"classes must be at least 2 different labels, got {len(labels)} class")
        trials, features = isinstance(self.features, str), self.features
        if trials:
            check_option("features", features, ("auto",))
            if self.public is None:
                raise ValueError("public must be given for features='auto', got None: their directions come from it")
        if self.bounds is None and self.public is None and features is None:
            raise ValueError(
                "columns need a scale: pass bounds={column: (low, high), …} or public=rows; "
                "for features that have one already, pass features=your_map"
            )
        if trials or features is None:
            names = getattr(self, "feature_names_in_", None)
            features = scaled_columns(self.bounds, self.public, columns, names)
        elif self.bounds is not None:
            raise ValueError("bounds must be left out: features have a scale already")
        budget = Budget(self.epsilon, self.delta if self.trust == "shuffler" else 0.0, self.messages, self.trust)

        def course(features: FeatureMap, check_people: float) -> Course:
            options = (self.public, self.max_features, self.blocks, check_people)
            return self._course_type(budget, labels.tolist(), features, *options)

        self._courses = [course(features, self.check_people)]
        if trials:
            maps = (features, FourierFeatures(features.centre, features.spread))
            self._courses[:0] = [course(each, _TRIAL_CHECKS) for each in maps]
        self.classes_ = labels

    _course_type = Course

    @property
    def _course(self) -> Course:
        """The course that teaches the classifier, with the features of the best trial."""
        *trials, course = self._courses
        if trials and not any(trial.cohorts for trial in trials):
            reports: list[Any] = [trial.report for trial in trials]
            best = max(range(len(trials)), key=lambda place: reports[place].predicted_accuracy)
            course.features = trials[best].features
        return course

    def cohort_sizes(self, clients: int) -> dict[Cohort, int]:
        """Return the sizes of the cohorts for this many people, in the order of the questions.

        Examples:
            >>> PrivateClassifier(public=[[0.0]], classes=[0, 1]).cohort_sizes(59_000)
            {'pilot': 5900, 'main': 50150, 'check': 1475, 'classes': 1475}
        """
        return self._asked_courses()[-1].sizes(clients)

    # --- a deployment

    def _asked_courses(self) -> list[Course]:
        if not hasattr(self, "_courses"):
            self._begin(self.classes)
        return self._courses

    def question(self, people: int) -> Question:
        """Return the question for the next cohort of this many people; publish its `to_json`.

        Call `learn` with the messages of the cohort, then ask the next one, until `cohorts_left` is empty.
        """
        courses = self._asked_courses()
        course = next((trial for trial in courses[:-1] if trial.cohorts), self._course)
        return course.question(
            people, public_seed(generator_of(self.random_state)), getattr(course.features, "width", None)
        )

    def learn(self, messages: Messages) -> PrivateClassifier:
        """Learn from the messages of the cohort that was asked last; after the main cohort the classifier is ready.

        With a shuffler they must have been mixed, slot by slot, before the server got them; this is not checked.
        Fewer people than the question was for are refused, because the privacy guarantee depends on their number.
        """
        course = next((course for course in getattr(self, "_courses", []) if course.asked), None)
        if course is None:
            raise ValueError("learn needs the messages of a question: call question first")
        course.take(course.asked.mechanism.aggregator().update(messages).mean())
        return self._fitted()

    @property
    def cohorts_left(self) -> tuple[Cohort, ...]:
        """The cohorts still to be asked, in a deployment."""
        return tuple(cohort for course in self._asked_courses() for cohort in course.cohorts)

    def _fitted(self) -> PrivateClassifier:
        *trials, course = self._courses
        report = course.report
        if report is None:
            return self
        if trials:
            tried: dict[str, Any] = {trial.features.name: trial.report for trial in trials}
            people = {"trials": sum(sum(known.people.values()) for known in tried.values()), **report.people}
            most = max(report.local_epsilon, *(known.local_epsilon for known in tried.values()))
            accuracies = {name: known.predicted_accuracy for name, known in tried.items()}
            report = replace(report, people=people, local_epsilon=most, trials=accuracies)
        self.report_, self.features_ = report, course.features
        self.coef_, self.intercept_ = course.discriminant.coef, course.discriminant.intercept
        return self

    # --- use

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the scores of the classes, (n, classes); for two classes their difference, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most likely class of every example."""
        places = self._scores(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[places]
        return labels

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return class probabilities, (n, classes), calibrated by the accuracy that the check cohort reported."""
        from scipy.special import softmax

        scores = self._scores(X)
        chances: Floats = softmax(self._course.sharpness * scores, axis=1)
        return chances

    def _scores(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "report_")
        rows = unit_rows(apply_features(self.features_, known_rows(self, X)))
        return self._course.discriminant.scores(self._course.main.unit_features(rows))

    def report(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> LearningReport:
        """Return a report; with labelled examples, which only a simulation has, including the true accuracy."""
        check_is_fitted(self, "report_")
        known: LearningReport = self.report_
        if X is None:
            return known
        true = float(self.score(X, y))
        return replace(known, true_accuracy=true, true_stderr=math.sqrt(true * (1 - true) / len(np.asarray(y))))
