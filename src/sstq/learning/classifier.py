"""PrivateClassifier: a linear classifier from one private message per person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from sstq.array_types import Floats
from sstq.checks import check_argument, check_number, check_option
from sstq.files.strict_json import JsonObject
from sstq.learning.cohorts import CohortEstimator
from sstq.learning.directions import Basis, Weighted, fixed_basis, public_basis
from sstq.learning.discriminant import (
    ClassSums,
    Discriminant,
    Form,
    discriminants,
    pooled_sums,
)
from sstq.learning.features import (
    FeatureMap,
    apply_features,
    features_from_dict,
    features_to_dict,
    unit_rows,
)
from sstq.learning.questions import Kind, Question
from sstq.learning.report import (
    LearningReport,
    RightShare,
    accuracy_by_class,
    judged_forms,
    predicted_accuracy,
    right_share,
    used_ranges,
)
from sstq.mechanisms import FrameUnit, Frequencies, GroupUnit
from sstq.mechanisms.groupunit.group_estimates import GroupEstimate
from sstq.planning import shuffled_mechanism
from sstq.studies import StudyPlan, register_study
from sstq.studies.questions import require
from sstq.studies.shuffled import trusted_frequencies

# The shares of people in the cohort for the centre, if there are no public examples, and in the pilot cohort.
_CENTRE_PEOPLE = 0.15
_PILOT_PEOPLE = 0.1
# Of the people who judge: those who choose the form, who tell its accuracy, and who tell that of every class.
_JUDGES = {"check": 0.25, "accuracy": 0.25, "classes": 0.5}
# The directions at which the noise of a message is predicted; it hardly depends on them.
_USUAL_DIRECTIONS = 32
# A plan with a larger error of the predicted accuracy says that it cannot work.
_MOST_ERROR = 0.25


@register_study
@dataclass(eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, CohortEstimator):  # type: ignore[misc]
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
            the columns of a table. Built-in maps are `Pixels`, `GradientHistograms` and `FourierFeatures`.
        bounds: public ends of the columns: {name: (low, high)}, an array (D, 2), or one pair for all of them. Columns
            are scaled by them, or by `public` if they are None.
        public: public examples without labels, like `X` of `fit`, for the centre, the directions and their covariance;
            None if there are none.
        classes: all labels, which are public; None takes those of `fit`, in simulation.
        blocks: the blocks of `GroupUnit`; by default those of least error. 1 is FrameUnit on the ball.
        check_people: the share of people who judge the classifier; with 0 no accuracy is predicted. A quarter of them
            choose between two forms of the discriminant, a quarter say whether the chosen one is right, and half report
            the accuracy by class.
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

    kind = "classifier"

    epsilon: float = 3.0
    _: KW_ONLY
    trust: str = "local"
    delta: float = 1e-6
    messages: int = 1
    features: FeatureMap = None
    bounds: Any = None
    public: ArrayLike | None = None
    classes: Sequence[Any] | None = None
    blocks: int | None = None
    check_people: float = 0.05
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> PrivateClassifier:
        """Simulate devices and server: split the people, encode their messages, learn from these alone.

        Args:
            X: one example per person, as the feature map takes them.
            y: their labels.
        """
        X, y = validate_data(self, X, y, allow_nd=True, dtype="numeric")
        check_classification_targets(y)
        self._begin(np.unique(y), np.shape(X)[-1])
        unknown = np.flatnonzero(~np.isin(y, self.classes_))
        if len(unknown):
            got = f"got {y[unknown[0]].item()!r} in row {unknown[0]}"
            raise ValueError(
                f"y must be among the classes {self.classes_.tolist()}, {got}"
            )
        self._teach(X, y, self.cohort_sizes(len(X)))
        return self

    def _begin(
        self, labels: ArrayLike | None = None, columns: int | None = None
    ) -> None:
        classes = labels if self.classes is None else self.classes
        if classes is None:
            raise ValueError(
                "classes must be given, got None: the server does not see labels"
            )
        self.classes_ = np.unique(np.asarray(classes))
        if len(self.classes_) < 2 or len(self.classes_) != len(np.asarray(classes)):
            raise ValueError(
                f"classes must be at least 2 different labels, got {len(self.classes_)} class"
            )
        check_argument("epsilon", self.epsilon)
        check_argument("messages", self.messages)
        check_option("trust", self.trust, ("local", "shuffler"))
        shuffled = self.trust == "shuffler"
        if shuffled:
            check_number("delta", self.delta, 1e-15, 0.1)
        elif self.messages > 1:
            raise ValueError(
                f"messages must be 1 unless trust='shuffler', got {self.messages}: their ε would add up"
            )
        check_number("check_people", self.check_people, 0, 0.5)
        self._begin_features(columns)
        self._known_basis: Basis | None = None
        self._discriminants: dict[Form, Discriminant] = {}  # after the main cohort
        self._right: list[RightShare] = []
        self._report = LearningReport(self.epsilon, self.delta if shuffled else 0.0)

    def _begin_features(self, columns: int | None) -> None:
        """Take the given feature map, or scale the columns of a table."""
        self._ranges = None
        if self.features is None:
            self._map = self._scaled_columns(columns)
            return
        if self.bounds is not None:
            raise ValueError("bounds must be left out: features have a scale already")
        self._map = self.features

    @property
    def _told(self) -> JsonObject:
        described = features_to_dict(self.features)
        require(
            described is not None or self.features is None,
            f"features must be a built-in map in a study that is saved, got {self.features!r}",
        )
        classes = self.classes_.tolist()
        return super()._told | {"features": described, "classes": classes}

    @classmethod
    def options_from_dict(cls, options: JsonObject) -> dict[str, Any]:
        """Return the parameters, with the feature map of its description."""
        return options | {"features": features_from_dict(options["features"])}

    @property
    def _cohorts(self) -> dict[str, float]:
        shares = {} if self.public is not None else {"centre": _CENTRE_PEOPLE}
        judges = (
            {cohort: part * self.check_people for cohort, part in _JUDGES.items()}
            if self.check_people
            else {}
        )
        left = 1 - sum(shares.values()) - _PILOT_PEOPLE - sum(judges.values())
        return {**shares, "pilot": _PILOT_PEOPLE, "main": left, **judges}

    def cohort_sizes(self, people: int) -> dict[str, int]:
        """Return the sizes of the cohorts that are left for this many people, in the order of the questions.

        Examples:
            >>> PrivateClassifier(public=[[0.0]], classes=[0, 1]).cohort_sizes(59_000)
            {'pilot': 5900, 'main': 50149, 'check': 738, 'accuracy': 738, 'classes': 1475}
        """
        weights = self.weights
        left = round(sum(weights.values()), 9)
        people = check_argument("people", people, of="clients")
        sizes = {
            cohort: max(1, round(share * people / left))
            for cohort, share in weights.items()
        }
        if "main" in sizes:
            sizes["main"] += people - sum(sizes.values())
            if sizes["main"] < 1:
                raise ValueError(
                    f"X must have at least {len(sizes)} samples, one per cohort, got {people} sample"
                )
        return sizes

    # --- the question for each cohort

    def _question(self, cohort: str, people: int, seed: int) -> Question:
        if cohort == "centre":
            width = getattr(self._map, "width", self._width)
            if width is None:
                raise ValueError(
                    "pass public=examples: without them the feature map must tell its number of features, width"
                )
            return Question(
                "centre", self._vectors(width, people, seed), features=self._map
            )
        if cohort in ("pilot", "main"):
            return self._class_question(cohort, people, seed)
        judged = [self._chosen]
        if cohort == "check":
            judged = list(self._discriminants.values())
        kind: Kind = "check"
        outcomes = 2 ** len(judged)
        if cohort == "classes":
            kind = "recall"
            outcomes = 2 * len(self.classes_)
        return replace(
            self._main,
            kind=kind,
            mechanism=self._outcomes(outcomes, people),
            scores=[(form.coef, form.intercept) for form in judged],
        )

    def _class_question(self, cohort: str, people: int, seed: int) -> Question:
        groups = len(self.classes_)
        # The pilot is asked along the directions that all people would be asked along.
        everybody = (
            people if cohort == "main" else max(1, round(people / _PILOT_PEOPLE))
        )
        usual = self._vectors(_USUAL_DIRECTIONS, everybody, 0, groups)
        noise = groups * self._noise(usual, everybody) / _USUAL_DIRECTIONS
        level = self._pilot.level(self._basis.decay) if cohort == "main" else 1.0
        rows = self._basis.worth(noise, level)
        mechanism = self._vectors(len(rows), people, seed, groups)
        return Question(
            "classes",
            mechanism,
            rows,
            self._basis.centre,
            self._map,
            self.classes_.tolist(),
        )

    @property
    def _basis(self) -> Basis:
        """The directions of public examples, unless the first cohort told the centre."""
        if self._known_basis is None:
            self._known_basis = public_basis(
                apply_features(self._map, cast(ArrayLike, self.public))
            )
        return self._known_basis

    def _vectors(
        self, dim: int, people: int, seed: int, groups: int | None = None
    ) -> Any:
        """The mechanism of vectors, with private groups or without; behind a shuffler it chooses the blocks."""
        if self.trust == "shuffler":
            return shuffled_mechanism(
                dim,
                self.epsilon,
                self.delta,
                people,
                messages=self.messages,
                groups=groups,
                frame_seed=seed,
            )
        options: dict[str, Any] = {"clients": people, "frame_seed": seed}
        if groups is None:
            return FrameUnit(dim, self.epsilon, **options)
        options |= {"groups": groups, "blocks": self.blocks}
        return GroupUnit(dim, self.epsilon, **options)

    def _outcomes(self, categories: int, people: int) -> Frequencies:
        """The mechanism of one of some outcomes."""
        names = ("epsilon", "trust", "delta", "messages")
        options = {name: getattr(self, name) for name in names}
        return trusted_frequencies(categories, people, **options)

    def _noise(self, mechanism: GroupUnit, people: int) -> float:
        """The expected squared error of class sums divided by the number of people; comparisons override this."""
        return mechanism.typical_error(people).total

    # --- and what its answers tell

    def _take(self, cohort: str, question: Question, estimate: Any) -> None:
        people = round(estimate.people)
        report = self._report
        facts: dict[str, Any] = {}
        if cohort == "centre":
            self._known_basis = fixed_basis(self._map, estimate.value)
            if self._ranges is not None:
                facts = {"range_used": used_ranges(estimate)}
        elif cohort == "pilot":
            self._pilot = self._class_sums(question, estimate)
        elif cohort == "main":
            self._main = question  # the centre and the directions of the classifier
            facts = self._discriminate(self._class_sums(question, estimate))
        elif cohort == "check":
            facts = judged_forms(estimate, list(self._discriminants))
        else:
            # The people who chose the form predict nothing: of two forms the one that came out better is flattered.
            self._right.append(right_share(estimate))
            facts = predicted_accuracy(self._right)
            if cohort == "classes":
                law = cast(Frequencies, question.mechanism).sets.law
                facts |= accuracy_by_class(estimate, law, self.classes_.tolist())
        mechanism = question.mechanism
        self._report = replace(
            report,
            local_epsilon=max(report.local_epsilon, mechanism.bundle_epsilon),
            people=report.people | {cohort: people},
            message_bits=report.message_bits | {cohort: mechanism.message_bits},
            **facts,
        )
        if self._discriminants:
            self.report_ = self._report
            self.features_ = self._map
            self.coef_ = self._chosen.coef
            self.intercept_ = self._chosen.intercept

    @property
    def _chosen(self) -> Discriminant:
        return self._discriminants[self._report.form]

    def _sent(self, question: Question) -> Weighted:
        return self._basis.sent(cast(Floats, question.directions))

    def _class_sums(self, question: Question, estimate: GroupEstimate) -> ClassSums:
        """The sums of a cohort in units of spread."""
        mechanism = cast(GroupUnit, question.mechanism)
        noise = self._noise(mechanism, round(estimate.people))
        return ClassSums.of(estimate, noise, self._sent(question).weights)

    def _discriminate(self, main: ClassSums) -> dict[str, Any]:
        pooled = pooled_sums(self._pilot, main)
        sent = self._sent(self._main)
        self._discriminants = discriminants(pooled, sent, self._basis.decay)
        form = next(iter(self._discriminants))
        majority = float(np.max(pooled.shares))
        return {"directions": len(sent.rows), "majority": majority, "form": form}

    def conclude(self) -> LearningReport:
        """Return the report; the model itself is this estimator."""
        return self.report()

    def plan(self, people: int) -> StudyPlan:
        """Tell how exactly the accuracy will be predicted."""
        people = check_argument("people", people, of="clients")
        if people < len(self.weights):
            return StudyPlan(
                people, problem=f"each of {len(self.weights)} cohorts needs a person"
            )
        sizes = self.cohort_sizes(people)
        if not self.check_people:
            return StudyPlan(
                people, sizes, of="check_people is 0: no accuracy is predicted"
            )
        judges = sizes["accuracy"]
        rates = self._outcomes(2, judges).sets.rates
        error = math.sqrt(rates.variance_at(0.5) / judges)
        problem = f"{judges} people are too few to tell its accuracy"
        of = "the standard error of the predicted accuracy, at most"
        return StudyPlan(people, sizes, error, of, problem * (error >= _MOST_ERROR))

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
        accuracy = self.report_.predicted_accuracy
        if math.isfinite(accuracy):
            scores = scores * self._chosen.sharpness(accuracy)
        chances: Floats = softmax(scores, axis=1)
        return chances

    def _scores(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "report_")
        rows = unit_rows(apply_features(self.features_, self._known_rows(X)))
        return self._chosen.scores(self._main.unit_features(rows))

    def report(
        self, X: ArrayLike | None = None, y: ArrayLike | None = None
    ) -> LearningReport:
        """Return a report; with labelled examples, which only a simulation has, including the true accuracy."""
        check_is_fitted(self, "report_")
        report: LearningReport = self.report_
        if X is None:
            return report
        true = float(self.score(X, y))
        error = math.sqrt(true * (1 - true) / len(np.asarray(y)))
        return replace(report, true_accuracy=true, true_stderr=error)
