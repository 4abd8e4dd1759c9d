"""The server's side of a classifier: one question per cohort, and learning from its messages."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Literal, cast

import numpy as np

from sstq.accounting import shuffled_epsilon
from sstq.aggregation import Estimate
from sstq.checks import check_argument, check_number, check_option
from sstq.learning.directions import (
    Basis,
    energy_level,
    energy_profile,
    fixed_basis,
    length_shares,
    public_basis,
)
from sstq.learning.discriminant import ClassSums, Discriminant, Form, pooled_sums, shrunk_shares
from sstq.learning.features import FeatureMap, Floats
from sstq.learning.questions import Question
from sstq.mechanisms import FrameUnit, Frequencies, GroupUnit
from sstq.mechanisms.frequencies import FrequencyEstimate
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.planning.shuffled_draw import shuffled_mechanism

__all__ = ["Budget", "Cohort", "Course", "LearningReport", "Trust"]

Cohort = Literal["trials", "centre", "pilot", "main", "check", "classes"]
Trust = Literal["local", "shuffler"]

# The directions at which the noise of a message is predicted; it hardly depends on them.
_USUAL_DIRECTIONS = 32
_SHARE_PEOPLE = 0.1
# The shares of people in the pilot cohort, and in the cohort for the centre if there are no public examples.
PILOT_PEOPLE, CENTRE_PEOPLE = 0.1, 0.15
# The last chosen directions still have energy, so shrinkage assumes that it falls half as fast.
_SHRINKAGE_DECAY = 0.5
# The largest ε of a message, and how often its range is halved to find the one that a shuffler allows.
_MOST_EPSILON, _HALVINGS = 20.0, 20
# A class whose share is below this many standard errors has no accuracy of its own.
_LEAST_SHARE_ERRORS = 2.0


@dataclass(frozen=True)
class Budget:
    """The total privacy budget of a person.

    Attributes:
        epsilon: the total ε, of the only message or of all messages behind the shuffler.
        delta: the total δ behind the shuffler; 0 without one.
        messages: the messages per person, each shuffled with those of its own slot; 1 without a shuffler.
        trust: "local" or "shuffler".
    """

    epsilon: float
    delta: float = 0.0
    messages: int = 1
    trust: Trust = "local"

    def __post_init__(self) -> None:
        check_argument("epsilon", self.epsilon)
        check_argument("messages", self.messages)
        if check_option("trust", self.trust, ("local", "shuffler")) == "shuffler":
            check_number("delta", self.delta, 1e-15, 0.1)
        elif self.messages > 1:
            raise ValueError(f"messages must be 1 unless trust='shuffler', got {self.messages}: their ε would add up")

    @property
    def shuffled(self) -> bool:
        """Whether there is a shuffler."""
        return self.trust == "shuffler"

    def __str__(self) -> str:
        if not self.shuffled:
            return f"total ε = {self.epsilon:g} per person"
        return f"total ε = {self.epsilon:g}, δ = {self.delta:g} per person behind a shuffler"

    def mechanism(self, dim: int, people: int, seed: int, groups: int | None = None, **local: Any) -> Any:
        """Return FrameUnit, or GroupUnit for private groups; `local` are options used without a shuffler."""
        if self.shuffled:
            options: dict[str, Any] = {"messages": self.messages, "groups": groups, "frame_seed": seed}
            return shuffled_mechanism(dim, self.epsilon, self.delta, people, **options)
        if groups is None:
            return FrameUnit(dim, self.epsilon, clients=people, frame_seed=seed)
        return GroupUnit(dim, self.epsilon, groups=groups, clients=people, frame_seed=seed, **local)

    def outcomes(self, categories: int, people: int) -> Frequencies:
        """Return the mechanism for one of some outcomes: behind a shuffler that of the largest local ε."""
        if not self.shuffled:
            return Frequencies(categories, self.epsilon)
        low, high = self.epsilon / self.messages, _MOST_EPSILON
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            asked = Frequencies(categories, middle, messages=self.messages)
            low, high = (middle, high) if shuffled_epsilon(asked, people, self.delta) <= self.epsilon else (low, middle)
        return Frequencies(categories, low, messages=self.messages)


@dataclass(frozen=True)
class LearningReport:
    """The result of learning: from whom, at which total ε, and the predicted accuracy.

    Attributes:
        budget: the total budget per person, who answers once.
        local_epsilon: the local ε of all of a person's messages, the most of any cohort: what remains if the shuffler
            cheats. Without a shuffler it is the total.
        people: the number of people who answered, by cohort.
        message_bits: the bits per message, by cohort.
        directions: how many features are sent, chosen from the pilot's class sums.
        level: the energy of the classes in the first direction, as the pilot saw it; 1 is usual.
        majority: the share of the most frequent class, as learned or given: what guessing it gets right.
        form: the form of the discriminant that is used: "regression" until people have judged, "nearest" without
            public examples.
        predicted_accuracy: the accuracy that the check cohort reported privately; nan if nobody was asked.
        accuracy_stderr: its standard error, widened so that 95 % intervals of all forms hold at once.
        accuracies: the reported accuracy of every form.
        by_class: the accuracy of every class and its standard error; nan for classes too rare to tell.
        trials: the reported accuracy of every feature map that was tried, with `features="auto"`; how many people that
            took is in `people`.
        true_accuracy: the accuracy on labelled examples given to `report`, in simulations.
        true_stderr: its standard error, which is that of so many examples.
    """

    budget: Budget
    local_epsilon: float
    people: dict[Cohort, int]
    message_bits: dict[Cohort, int]
    directions: int
    level: float
    majority: float
    form: Form = "regression"
    predicted_accuracy: float = math.nan
    accuracy_stderr: float = math.nan
    accuracies: dict[Form, float] = field(default_factory=dict)
    by_class: dict[Any, tuple[float, float]] = field(default_factory=dict)
    trials: dict[str, float] = field(default_factory=dict)
    true_accuracy: float = math.nan
    true_stderr: float = math.nan

    @property
    def epsilon(self) -> float:
        """The total ε per person."""
        return self.budget.epsilon

    @property
    def balanced_accuracy(self) -> tuple[float, float]:
        """The mean of the accuracies by class and its standard error; nan if a class is too rare to tell."""
        found = np.array(list(self.by_class.values()) or [(math.nan, math.nan)])
        return float(found[:, 0].mean()), float(np.linalg.norm(found[:, 1]) / len(found))

    @property
    def useful(self) -> bool:
        """Whether the reported accuracy is above the majority class by twice its standard error."""
        return bool(self.predicted_accuracy - 2 * self.accuracy_stderr > self.majority)

    def __str__(self) -> str:
        parts = [str(self.budget)]
        if self.budget.shuffled:
            parts.append(f"local ε = {self.local_epsilon:.3g} if it cheats")
        if not math.isnan(self.predicted_accuracy):
            parts.append(f"accuracy {_percent(self.predicted_accuracy, self.accuracy_stderr, 'predicted')}")
            parts.append(f"{100 * self.majority:.1f} % by guessing the most frequent class")
            if not self.useful:
                parts.append("not shown to be better than guessing")
        if not math.isnan(self.balanced_accuracy[0]):
            parts.append(_percent(*self.balanced_accuracy, "balanced over classes"))
        if not math.isnan(self.true_accuracy):
            parts.append(_percent(self.true_accuracy, self.true_stderr, "true"))
        if self.trials:
            tried = ", ".join(f"{name} {100 * accuracy:.1f} %" for name, accuracy in self.trials.items())
            parts.append(f"features by trial: {tried}")
        people = ", ".join(f"{name} {count:,}" for name, count in self.people.items())
        return ", ".join([*parts, f"{self.directions} directions ({self.form})"]) + f"; people: {people}"


def _sum_error(estimate: FrequencyEstimate, chosen: Any) -> float:
    """The standard error of the sum of some shares.

    By randomized response a message names one category, so hits of different ones exclude each other. With larger sets
    they hardly depend on each other.
    """
    apart = float(np.linalg.norm(estimate.stderr[chosen]))
    rate = float(np.sum(estimate.other + estimate.value[chosen] * (estimate.own - estimate.other)))
    singles = math.isclose(estimate.own + (len(estimate.value) - 1) * estimate.other, 1.0)
    if not singles or not 0 < rate < 1 or estimate.count == 1:
        return apart
    return math.sqrt(rate * (1 - rate) / (estimate.count - 1)) / (estimate.own - estimate.other)


def _percent(value: float, stderr: float, of: str) -> str:
    return f"{100 * value:.1f} ± {100 * stderr:.1f} % {of}" if math.isfinite(stderr) else "unknown: too few people"


@dataclass(eq=False)
class Course:
    """The cohorts of a classifier, one after the other.

    Attributes:
        budget: the total budget per person.
        classes: the labels.
        cohorts: the cohorts still to be asked.
        features: the feature map that questions name.
        public: features of public examples, (n, D); None if there are none.
        shares: the shares of the classes, if public; None to learn them.
        max_features: the maximum number of directions.
        blocks: the blocks of the mechanism.
        asked: the question that is waiting for answers.
        main: the question of the main cohort: centre and directions of the classifier.
        discriminants: the forms of the classifier, after the main cohort.
        sharpness: the sharpness of its probabilities, after the check.
        report: the report, after the main cohort.
    """

    budget: Budget
    classes: list[Any]
    cohorts: list[Cohort]
    features: FeatureMap
    public: Floats | None
    shares: Floats | None
    max_features: int | None
    blocks: int | None
    asked: Question | None = None
    main: Question = field(init=False)
    discriminants: dict[Form, Discriminant] = field(default_factory=dict)
    sharpness: float = 1.0
    report: LearningReport | None = None
    _people: dict[Cohort, int] = field(default_factory=dict)
    _bits: dict[Cohort, int] = field(default_factory=dict)
    _basis: Basis = field(init=False)
    _pilot: ClassSums = field(init=False)
    _level: float = 1.0
    _local: float = 0.0
    _expected: int = 0
    _length_shares: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.public is not None:
            self._basis = public_basis(self.public, self.max_features)

    def question(self, people: int, width: int | None, seed: int, features: FeatureMap) -> Question:
        """Return the question for the next cohort.

        Args:
            people: the number of people in the cohort.
            width: the number of features, needed only for the question about the centre.
            seed: the public seed of the frames.
            features: the map that the question names.
        """
        self._expected = people = check_argument("people", people, of="clients")
        if not self.cohorts:
            raise ValueError("all cohorts have answered; use sklearn.base.clone(classifier) to start again")
        cohort = self.cohorts[0]
        if cohort == "centre":
            if width is None:
                raise ValueError(
                    "features must be GradientHistograms, or public must be given: the number of features is unknown"
                )
            self.asked = Question("centre", self.budget.mechanism(width, people, seed), features=features)
        elif cohort in ("check", "classes"):
            self.asked = self._judging(cohort, people, features)
        else:
            self.asked = self._class_question(cohort, people, seed, features)
        return self.asked

    def _class_question(self, cohort: Cohort, people: int, seed: int, features: FeatureMap) -> Question:
        # The pilot is asked along the directions that all people would be asked along.
        everybody = people if cohort == "main" else max(1, round(people / PILOT_PEOPLE))
        usual = self._mechanism(_USUAL_DIRECTIONS, everybody, 0)
        noise = len(self.classes) * self.noise(usual, everybody) / _USUAL_DIRECTIONS
        basis = self._basis
        shares = length_shares(energy_profile(len(basis.rows), basis.decay, self._level), noise)
        self._length_shares = shares
        directions = basis.rows[: len(shares)] * np.sqrt(shares)[:, None]
        mechanism = self._mechanism(len(shares), people, seed)
        return Question("classes", mechanism, directions, basis.centre, features, self.classes)

    @property
    def discriminant(self) -> Discriminant:
        """The form of the classifier that is used."""
        return self.discriminants[cast(LearningReport, self.report).form]

    def _judging(self, cohort: Cohort, people: int, features: FeatureMap) -> Question:
        """Which of the forms are right; or, by class, whether the chosen one is."""
        main, judged = self.main, list(self.discriminants.values()) if cohort == "check" else [self.discriminant]
        outcomes = 2 ** len(judged) if cohort == "check" else 2 * len(self.classes)
        mechanism = self.budget.outcomes(outcomes, people)
        scores = [(form.coef, form.intercept) for form in judged]
        known = (mechanism, main.directions, main.centre, features, self.classes)
        return Question("check" if cohort == "check" else "recall", *known, scores=scores)

    def _mechanism(self, dim: int, people: int, seed: int) -> GroupUnit:
        shares = _SHARE_PEOPLE if self.shares is None else 0.0
        options = {"blocks": self.blocks, "share_people": shares}
        return cast(GroupUnit, self.budget.mechanism(dim, people, seed, len(self.classes), **options))

    def noise(self, mechanism: GroupUnit, people: int) -> float:
        """The expected squared error of class sums divided by the number of people, which is known beforehand."""
        return mechanism.typical_error(people).total

    def take(self, question: Question, estimate: Estimate) -> None:
        """Learn from the mean of the messages of the cohort that was asked."""
        if self.budget.shuffled and estimate.people < self._expected:
            raise ValueError(
                f"messages must be those of {self._expected} people, for whom the total ε holds, got those of "
                f"{estimate.people:g}; ask again, for as many people as will answer"
            )
        self.asked, cohort = None, self.cohorts.pop(0)
        self._people[cohort], self._bits[cohort] = round(estimate.people), question.mechanism.message_bits
        self._local = max(self._local, question.mechanism.bundle_epsilon)
        if cohort == "centre":
            self._basis = fixed_basis(self.features, estimate.value, self.max_features)
        elif cohort == "pilot":
            self._pilot = self._class_sums(question, cast(GroupEstimate, estimate))
            self._level = self._level_of(self._pilot, self._basis.decay)
        elif cohort == "main":
            self._finish(question, self._class_sums(question, cast(GroupEstimate, estimate)))
        elif self.report is not None:
            learned = self._forms(estimate) if cohort == "check" else {"by_class": self._by_class(estimate)}
            self.report = replace(self.report, local_epsilon=self._local, **learned)
            if cohort == "check":
                self.sharpness = self.discriminant.sharpness(self.report.predicted_accuracy)

    def _forms(self, estimate: Estimate) -> dict[str, Any]:
        """The accuracy of every form, and the best one, from how often which of them were right."""
        outcomes = np.arange(2 ** len(self.discriminants))
        right = {form: (outcomes >> place & 1) == 1 for place, form in enumerate(self.discriminants)}
        accuracies = {form: min(max(float(estimate.value[hits].sum()), 0.0), 1.0) for form, hits in right.items()}
        best = max(accuracies, key=lambda form: accuracies[form])
        stderr = _sum_error(cast(FrequencyEstimate, estimate), right[best])
        normal = NormalDist()
        widened = normal.inv_cdf(1 - 0.025 / len(accuracies)) / normal.inv_cdf(1 - 0.025)
        return {
            "form": best,
            "predicted_accuracy": accuracies[best],
            "accuracy_stderr": widened * stderr,
            "accuracies": accuracies,
        }

    def _by_class(self, estimate: Estimate) -> dict[Any, tuple[float, float]]:
        """The accuracy of every class, a ratio of shares, and its standard error to first order."""
        wrong, right = estimate.value.reshape(-1, 2).T
        wrong_error, right_error = estimate.stderr.reshape(-1, 2).T
        share, share_error = wrong + right, np.hypot(wrong_error, right_error)
        known = share > _LEAST_SHARE_ERRORS * share_error
        share = np.where(known, share, math.nan)
        recall = np.clip(right / share, 0.0, 1.0)
        stderr = np.hypot((1 - recall) * right_error, recall * wrong_error) / share
        return {label: (float(a), float(b)) for label, a, b in zip(self.classes, recall, stderr, strict=True)}

    def _class_sums(self, question: Question, estimate: GroupEstimate) -> ClassSums:
        """The sums of a cohort in units of spread."""
        weights = self._basis.weights(self._length_shares)
        sums = estimate.value.reshape(len(self.classes), -1)
        people = round(estimate.people)
        noise = self.noise(cast(GroupUnit, question.mechanism), people) / sums.size
        known = shrunk_shares(estimate) if self.shares is None else self.shares
        return ClassSums(sums / weights, noise / weights**2, known, people)

    def _level_of(self, found: ClassSums, decay: float) -> float:
        return energy_level(found.energies, found.energy_noise, len(self.classes), decay)

    def _finish(self, question: Question, own: ClassSums) -> None:
        basis, shares = self._basis, self._length_shares
        found = pooled_sums(self._pilot, own)
        decay = _SHRINKAGE_DECAY * basis.decay
        energies = energy_profile(len(shares), decay, self._level_of(found, decay))
        weights, public = basis.weights(shares), basis.unit_examples(shares)
        if public is None:
            self.discriminants = {"nearest": Discriminant.nearest(found, weights)}
        else:
            self.discriminants = Discriminant.forms(found, weights, energies, public)
        self.main = question
        majority, form = float(np.max(found.shares)), next(iter(self.discriminants))
        spent = (self.budget, self._local, self._people, self._bits)
        self.report = LearningReport(*spent, len(shares), self._level, majority, form)
