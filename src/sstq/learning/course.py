"""The server's side of a classifier: one question per cohort, and learning from its messages."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np

from sstq.aggregation import Estimate
from sstq.checks import check_argument
from sstq.learning.basis import Basis, fixed_basis, public_basis
from sstq.learning.budget import Budget
from sstq.learning.discriminant import ClassSums, Discriminant, pooled_sums, shrunk_shares
from sstq.learning.features import FeatureMap, Floats
from sstq.learning.questions import Question
from sstq.learning.weights import energy_level, energy_profile, length_shares
from sstq.mechanisms import GroupUnit
from sstq.mechanisms.groupunit.estimates import GroupEstimate

__all__ = ["Cohort", "Course", "LearningReport"]

Cohort = Literal["centre", "pilot", "main", "check"]

# The directions at which the noise of a message is predicted; it hardly depends on them.
_USUAL_DIRECTIONS = 32
_SHARE_PEOPLE = 0.1
# The last chosen directions still have energy, so shrinkage assumes that it falls half as fast.
_SHRINKAGE_DECAY = 0.5


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
        predicted_accuracy: the accuracy that the check cohort reported privately; nan if nobody was asked.
        accuracy_stderr: its standard error.
        true_accuracy: the accuracy on labelled examples given to `report`, in simulations.
    """

    budget: Budget
    local_epsilon: float
    people: dict[Cohort, int]
    message_bits: dict[Cohort, int]
    directions: int
    level: float
    predicted_accuracy: float = math.nan
    accuracy_stderr: float = math.nan
    true_accuracy: float = math.nan

    @property
    def epsilon(self) -> float:
        """The total ε per person."""
        return self.budget.epsilon

    def __str__(self) -> str:
        parts = [str(self.budget)]
        if self.budget.shuffled:
            parts.append(f"local ε = {self.local_epsilon:.3g} if it cheats")
        if not math.isnan(self.predicted_accuracy):
            stated = f"{100 * self.predicted_accuracy:.1f} ± {100 * self.accuracy_stderr:.1f} % predicted"
            parts.append(f"accuracy {stated if math.isfinite(self.accuracy_stderr) else 'unknown: too few people'}")
        if not math.isnan(self.true_accuracy):
            parts.append(f"{100 * self.true_accuracy:.1f} % true")
        people = ", ".join(f"{name} {count:,}" for name, count in self.people.items())
        return ", ".join([*parts, f"{self.directions} directions"]) + f"; people: {people}"


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
        pilot_people: the share of people in the pilot, which is asked along the directions for everybody.
        asked: the question that is waiting for answers.
        main: the question of the main cohort: centre and directions of the classifier.
        discriminant: the classifier, after the main cohort.
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
    pilot_people: float
    asked: Question | None = None
    main: Question | None = None
    discriminant: Discriminant | None = None
    sharpness: float = 1.0
    report: LearningReport | None = None
    _people: dict[Cohort, int] = field(default_factory=dict)
    _bits: dict[Cohort, int] = field(default_factory=dict)
    _basis: Basis | None = None
    _pilot: ClassSums | None = None
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
            mechanism = self.budget.for_vectors(width, people, seed)
            self.asked = Question("centre", mechanism, features=features)
        elif cohort == "check":
            self.asked = self._check_question(people, seed, features)
        else:
            self.asked = self._class_question(cohort, people, seed, features)
        return self.asked

    def _check_question(self, people: int, seed: int, features: FeatureMap) -> Question:
        main, learned = self.learned
        mechanism = self.budget.for_vectors(1, people, seed)
        scores = (learned.coef, learned.intercept)
        return Question("check", mechanism, main.directions, main.centre, features, self.classes, scores=scores)

    def _class_question(self, cohort: Cohort, people: int, seed: int, features: FeatureMap) -> Question:
        # The pilot is asked along the directions that all people would be asked along.
        everybody = people if cohort == "main" else max(1, round(people / self.pilot_people))
        usual = self._mechanism(_USUAL_DIRECTIONS, everybody, 0)
        noise = len(self.classes) * self.noise(usual, everybody) / _USUAL_DIRECTIONS
        basis = self.basis
        shares = length_shares(energy_profile(len(basis.rows), basis.decay, self._level), noise)
        self._length_shares = shares
        directions = basis.rows[: len(shares)] * np.sqrt(shares)[:, None]
        mechanism = self._mechanism(len(shares), people, seed)
        return Question("classes", mechanism, directions, basis.centre, features, self.classes)

    def _mechanism(self, dim: int, people: int, seed: int) -> GroupUnit:
        shares = _SHARE_PEOPLE if self.shares is None else 0.0
        return self.budget.for_groups(dim, len(self.classes), people, seed, blocks=self.blocks, share_people=shares)

    def noise(self, mechanism: GroupUnit, people: int) -> float:
        """The expected squared error of class sums divided by the number of people, which is known beforehand."""
        return mechanism.typical_error(people).total

    @property
    def basis(self) -> Basis:
        """The directions, once they are known."""
        if self._basis is None:
            raise ValueError("the centre must be learned first")
        return self._basis

    @property
    def learned(self) -> tuple[Question, Discriminant]:
        """The main question and the classifier."""
        if self.main is None or self.discriminant is None:
            raise ValueError("the messages of the main cohort must be learned first")
        return self.main, self.discriminant

    def take(self, estimate: Estimate) -> None:
        """Learn from the mean of the messages of the cohort that was asked."""
        if self.asked is None:
            raise ValueError("learn needs the messages of a question: call question first")
        if self.budget.shuffled and estimate.people < self._expected:
            raise ValueError(
                f"messages must be those of {self._expected} people, for whom the total ε holds, got those of "
                f"{estimate.people:g}; ask again, for as many people as will answer"
            )
        question, self.asked = self.asked, None
        cohort = self.cohorts.pop(0)
        self._people[cohort], self._bits[cohort] = round(estimate.people), question.mechanism.message_bits
        self._local = max(self._local, question.mechanism.bundle_epsilon)
        if cohort == "centre":
            self._basis = fixed_basis(self.features, estimate.value, self.max_features)
        elif cohort == "pilot":
            self._pilot = self._class_sums(question, cast(GroupEstimate, estimate))
            self._level = self._level_of(self._pilot, self.basis.decay)
        elif cohort == "main":
            self._finish(question, self._class_sums(question, cast(GroupEstimate, estimate)))
        else:
            self._check(estimate)

    def _class_sums(self, question: Question, estimate: GroupEstimate) -> ClassSums:
        """The sums of a cohort in units of spread."""
        weights = self.basis.weights(self._length_shares)
        sums = estimate.value.reshape(len(self.classes), -1)
        people = round(estimate.people)
        noise = self.noise(cast(GroupUnit, question.mechanism), people) / sums.size
        known = shrunk_shares(estimate) if self.shares is None else self.shares
        return ClassSums(sums / weights, noise / weights**2, known, people)

    def _level_of(self, found: ClassSums, decay: float) -> float:
        return energy_level(found.energies, found.energy_noise, len(self.classes), decay)

    def _finish(self, question: Question, own: ClassSums) -> None:
        basis, shares = self.basis, self._length_shares
        found = pooled_sums(self._pilot, own)
        decay = _SHRINKAGE_DECAY * basis.decay
        energies = energy_profile(len(shares), decay, self._level_of(found, decay))
        self.main = question
        self.discriminant = Discriminant.fit(found, basis.weights(shares), energies, basis.unit_examples(shares))
        self.report = LearningReport(self.budget, self._local, self._people, self._bits, len(shares), self._level)

    def _check(self, estimate: Estimate) -> None:
        """Learn from the check: right is +1 and wrong is −1; probabilities are calibrated by the accuracy."""
        if self.report is None:
            raise ValueError("the messages of the main cohort must be learned first")
        accuracy = min(max((1 + float(estimate.value[0])) / 2, 0.0), 1.0)
        self.sharpness = self.learned[1].sharpness(accuracy)
        stderr = float(estimate.stderr[0]) / 2
        self.report = replace(
            self.report, local_epsilon=self._local, predicted_accuracy=accuracy, accuracy_stderr=stderr
        )
