"""The server's side of a classifier: one question per cohort, and learning from its messages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from sstq.accounting import shuffled_epsilon
from sstq.aggregation import Estimate
from sstq.checks import check_argument, check_number, check_option
from sstq.learning.directions import Basis, energy_profile, fixed_basis, length_shares, public_basis
from sstq.learning.discriminant import ClassSums, Discriminant, Form, pooled_sums, shrunk_shares
from sstq.learning.features import FeatureMap, Floats, apply_features
from sstq.learning.questions import Question
from sstq.mechanisms import FrameUnit, Frequencies, GroupUnit
from sstq.mechanisms.frequencies import FrequencyEstimate
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.planning.shuffled_draw import shuffled_mechanism

Cohort = Literal["trials", "centre", "pilot", "main", "check", "classes"]
Trust = Literal["local", "shuffler"]

# The shares of people in the cohort for the centre, if there are no public examples, and in the pilot cohort.
_CENTRE_PEOPLE, _PILOT_PEOPLE = 0.15, 0.1
# The directions at which the noise of a message is predicted; it hardly depends on them.
_USUAL_DIRECTIONS = 32
# The last chosen directions still have energy, so shrinkage assumes that it falls half as fast.
_SHRINKAGE_DECAY = 0.5
# The largest ε of a message, and how often its range is halved to find the one that a shuffler allows.
_MOST_EPSILON, _HALVINGS = 20.0, 20
# A class whose share is below this many standard errors has no accuracy of its own.
_LEAST_SHARE_ERRORS = 2.0


@dataclass(frozen=True)
class Budget:
    """The total privacy budget of a person: (ε, δ) of the only message, or of all messages behind the shuffler."""

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

    def __str__(self) -> str:
        if self.trust == "local":
            return f"total ε = {self.epsilon:g} per person"
        return f"total ε = {self.epsilon:g}, δ = {self.delta:g} per person behind a shuffler"

    def vectors(self, dim: int, people: int, seed: int, groups: int | None = None, blocks: int | None = None) -> Any:
        """Return the mechanism of vectors, with private groups or without; behind a shuffler it chooses the blocks."""
        if self.trust == "shuffler":
            options: dict[str, Any] = {"messages": self.messages, "groups": groups, "frame_seed": seed}
            return shuffled_mechanism(dim, self.epsilon, self.delta, people, **options)
        if groups is None:
            return FrameUnit(dim, self.epsilon, clients=people, frame_seed=seed)
        return GroupUnit(dim, self.epsilon, groups=groups, clients=people, blocks=blocks, frame_seed=seed)

    def outcomes(self, categories: int, people: int) -> Frequencies:
        """Return the mechanism of one of some outcomes: behind a shuffler that of the largest local ε."""
        if self.trust == "local":
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
        majority: the share of the most frequent class, as learned: what guessing it gets right.
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
    majority: float
    form: Form
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
        if self.budget.trust == "shuffler":
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


def _percent(value: float, stderr: float, of: str) -> str:
    return f"{100 * value:.1f} ± {100 * stderr:.1f} % {of}" if math.isfinite(stderr) else "unknown: too few people"


@dataclass(eq=False)
class Course:
    """The cohorts of a classifier, one after the other: a question to each, and what its answers tell."""

    budget: Budget
    classes: list[Any]
    features: FeatureMap  # None while trials decide on it
    public: ArrayLike | None
    max_features: int | None
    blocks: int | None
    check_people: float
    cohorts: list[Cohort] = field(init=False)  # still to be asked
    asked: Question | None = None  # waiting for answers
    main: Question = field(init=False)  # the main cohort's: centre and directions of the classifier
    discriminants: dict[Form, Discriminant] = field(default_factory=dict)  # after the main cohort
    sharpness: float = 1.0  # of the probabilities, after the check
    _expected: int = 0
    _facts: dict[str, Any] = field(init=False)  # of the report
    _basis: Basis | None = None
    _length_shares: Floats = field(init=False)
    _level: float = 1.0
    _pilot: ClassSums = field(init=False)

    def __post_init__(self) -> None:
        check_number("check_people", self.check_people, 0, 0.5)
        if self.max_features is not None:
            check_number("max_features", self.max_features, 1, 2**20, integer=True)
        first: list[Cohort] = ["centre"] if self.public is None else []
        last: list[Cohort] = ["check", "classes"] if self.check_people else []
        self.cohorts = [*first, "pilot", "main", *last]
        self._facts = {"budget": self.budget, "local_epsilon": 0.0, "people": {}, "message_bits": {}}

    def sizes(self, clients: int) -> dict[Cohort, int]:
        """Return the sizes of the cohorts for this many people, in the order of the questions."""
        clients, judges = check_argument("clients", clients), self.check_people / 2
        shares = {"centre": _CENTRE_PEOPLE, "pilot": _PILOT_PEOPLE, "main": 0.0, "check": judges, "classes": judges}
        sizes = {cohort: max(1, round(shares[cohort] * clients)) for cohort in self.cohorts}
        sizes["main"] += clients - sum(sizes.values())
        if sizes["main"] < 1:
            raise ValueError(f"X must have at least {len(sizes)} samples, one per cohort, got {clients} sample")
        return sizes

    def question(self, people: int, seed: int, width: int | None = None) -> Question:
        """Return the question for the next cohort.

        Args:
            people: the number of people in the cohort.
            seed: the public seed of the frames.
            width: the number of features, needed only for the question about the centre.
        """
        self._expected = people = check_argument("people", people, of="clients")
        if not self.cohorts:
            raise ValueError("all cohorts have answered; use sklearn.base.clone(classifier) to start again")
        cohort = self.cohorts[0]
        if cohort == "check":
            self.asked = self._judging(cohort, people, self.discriminants.values())
        elif cohort == "classes":
            self.asked = self._judging("recall", people, [self.discriminant])
        elif cohort == "centre":
            if width is None:
                raise ValueError(
                    "pass public=examples: without them the feature map must tell its number of features, width"
                )
            self.asked = Question("centre", self.budget.vectors(width, people, seed), features=self.features)
        else:
            # The pilot is asked along the directions that all people would be asked along.
            everybody = people if cohort == "main" else max(1, round(people / _PILOT_PEOPLE))
            self.asked = self._class_question(people, seed, everybody)
        return self.asked

    def _class_question(self, people: int, seed: int, everybody: int) -> Question:
        basis, groups = self._directions(), len(self.classes)
        usual = self.budget.vectors(_USUAL_DIRECTIONS, everybody, 0, groups, self.blocks)
        noise = groups * self.noise(usual, everybody) / _USUAL_DIRECTIONS
        shares = length_shares(energy_profile(len(basis.rows), basis.decay, self._level), noise)
        directions = basis.rows[: len(shares)] * np.sqrt(shares)[:, None]
        mechanism = self.budget.vectors(len(shares), people, seed, groups, self.blocks)
        self._length_shares = shares
        return Question("classes", mechanism, directions, basis.centre, self.features, self.classes)

    def _judging(self, kind: Literal["check", "recall"], people: int, judged: Iterable[Discriminant]) -> Question:
        """Which of the forms are right; or, by class, whether the chosen one is."""
        scores = [(form.coef, form.intercept) for form in judged]
        outcomes = 2 ** len(scores) if kind == "check" else 2 * len(self.classes)
        return replace(self.main, kind=kind, mechanism=self.budget.outcomes(outcomes, people), scores=scores)

    def _directions(self) -> Basis:
        """Those of the public examples, or the fixed ones around the centre that the first cohort told."""
        if self._basis is None:
            public = apply_features(self.features, cast(ArrayLike, self.public))
            self._basis = public_basis(public, self.max_features)
        return self._basis

    def noise(self, mechanism: GroupUnit, people: int) -> float:
        """The expected squared error of class sums divided by the number of people, which is known beforehand."""
        return mechanism.typical_error(people).total

    def take(self, estimate: Estimate) -> None:
        """Learn from the mean of the messages of the cohort that was asked."""
        question, people = cast(Question, self.asked), round(estimate.people)
        if self.budget.trust == "shuffler" and people < self._expected:
            raise ValueError(
                f"messages must be those of {self._expected} people, for whom the total ε holds, got those of "
                f"{people}; ask again, for as many people as will answer"
            )
        self.asked, cohort, facts = None, self.cohorts.pop(0), self._facts
        facts["people"][cohort], facts["message_bits"][cohort] = people, question.mechanism.message_bits
        facts["local_epsilon"] = max(facts["local_epsilon"], question.mechanism.bundle_epsilon)
        if cohort == "centre":
            self._basis = fixed_basis(self.features, estimate.value, self.max_features)
        elif cohort == "pilot":
            self._pilot = self._class_sums(question, cast(GroupEstimate, estimate))
            self._level = self._pilot.level(self._directions().decay)
        elif cohort == "main":
            self.main = question
            self._discriminate(self._class_sums(question, cast(GroupEstimate, estimate)))
        elif cohort == "check":
            self._choose(cast(FrequencyEstimate, estimate))
        else:
            facts["by_class"] = self._by_class(estimate)

    @property
    def report(self) -> LearningReport | None:
        """The report, after the main cohort."""
        return LearningReport(**self._facts) if self.discriminants else None

    @property
    def discriminant(self) -> Discriminant:
        """The form of the classifier that is used."""
        return self.discriminants[self._facts["form"]]

    def _class_sums(self, question: Question, estimate: GroupEstimate) -> ClassSums:
        """The sums of a cohort in units of spread."""
        weights = self._directions().weights(self._length_shares)
        sums = estimate.value.reshape(len(self.classes), -1)
        people = round(estimate.people)
        noise = self.noise(cast(GroupUnit, question.mechanism), people) / sums.size
        return ClassSums(sums / weights, noise / weights**2, shrunk_shares(estimate), people)

    def _discriminate(self, own: ClassSums) -> None:
        basis, shares = self._directions(), self._length_shares
        found, weights, public = pooled_sums(self._pilot, own), basis.weights(shares), basis.unit_examples(shares)
        if public is None:
            self.discriminants = {"nearest": Discriminant.nearest(found, weights)}
        else:
            decay = _SHRINKAGE_DECAY * basis.decay
            energies = energy_profile(len(shares), decay, found.level(decay))
            self.discriminants = Discriminant.forms(found, weights, energies, public)
        majority, form = float(np.max(found.shares)), next(iter(self.discriminants))
        self._facts |= {"directions": len(shares), "majority": majority, "form": form}

    def _choose(self, estimate: FrequencyEstimate) -> None:
        """The accuracy of every form, and the best one, from how often which of them were right."""
        outcomes = np.arange(2 ** len(self.discriminants))
        right = {form: (outcomes >> place & 1) == 1 for place, form in enumerate(self.discriminants)}
        accuracies = {form: min(max(float(estimate.value[hits].sum()), 0.0), 1.0) for form, hits in right.items()}
        best = max(accuracies, key=lambda form: accuracies[form])
        normal = NormalDist()
        widened = normal.inv_cdf(1 - 0.025 / len(accuracies)) / normal.inv_cdf(1 - 0.025)
        self._facts |= {
            "form": best,
            "predicted_accuracy": accuracies[best],
            "accuracy_stderr": widened * _sum_error(estimate, right[best]),
            "accuracies": accuracies,
        }
        self.sharpness = self.discriminant.sharpness(accuracies[best])

    def _by_class(self, estimate: Estimate) -> dict[Any, tuple[float, float]]:
        """The accuracy of every class, a ratio of shares, and its standard error to first order."""
        wrong, right = estimate.value.reshape(-1, 2).T
        wrong_error, right_error = estimate.stderr.reshape(-1, 2).T
        share, share_error = wrong + right, np.hypot(wrong_error, right_error)
        share = np.where(share > _LEAST_SHARE_ERRORS * share_error, share, math.nan)
        recall = np.clip(right / share, 0.0, 1.0)
        stderr = np.hypot((1 - recall) * right_error, recall * wrong_error) / share
        return {label: (float(a), float(b)) for label, a, b in zip(self.classes, recall, stderr, strict=True)}


def _sum_error(estimate: FrequencyEstimate, chosen: Any) -> float:
    """The standard error of the sum of some shares.

    By randomized response a message names one category, so hits of different ones exclude each other. With larger sets
    they hardly depend on each other.
    """
    rate = float(np.sum(estimate.other + estimate.value[chosen] * (estimate.own - estimate.other)))
    singles = math.isclose(estimate.own + (len(estimate.value) - 1) * estimate.other, 1.0)
    if not singles or not 0 < rate < 1 or estimate.count == 1:
        return float(np.linalg.norm(estimate.stderr[chosen]))
    return math.sqrt(rate * (1 - rate) / (estimate.count - 1)) / (estimate.own - estimate.other)
