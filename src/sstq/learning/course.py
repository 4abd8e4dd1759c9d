"""The server's side of a classifier: one question per cohort, and learning from its messages."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np

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
from sstq.learning.discriminant import ClassSums, Discriminant, pooled_sums, shrunk_shares
from sstq.learning.features import FeatureMap, Floats
from sstq.learning.questions import Question
from sstq.mechanisms import FrameUnit, GroupUnit
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.planning.shuffled_draw import shuffled_mechanism

__all__ = ["Budget", "Cohort", "Course", "LearningReport", "Trust"]

Cohort = Literal["centre", "pilot", "main", "check"]
Trust = Literal["local", "shuffler"]

# The directions at which the noise of a message is predicted; it hardly depends on them.
_USUAL_DIRECTIONS = 32
_SHARE_PEOPLE = 0.1
# The shares of people in the pilot cohort, and in the cohort for the centre if there are no public examples.
PILOT_PEOPLE, CENTRE_PEOPLE = 0.1, 0.15
# The last chosen directions still have energy, so shrinkage assumes that it falls half as fast.
_SHRINKAGE_DECAY = 0.5


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
    asked: Question | None = None
    main: Question = field(init=False)
    discriminant: Discriminant = field(init=False)
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
        elif cohort == "check":
            main, scores = self.main, (self.discriminant.coef, self.discriminant.intercept)
            given = (self.budget.mechanism(1, people, seed), main.directions, main.centre, features, self.classes)
            self.asked = Question("check", *given, scores=scores)
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
            # Right is +1 and wrong is −1; probabilities are calibrated by the accuracy.
            accuracy = min(max((1 + float(estimate.value[0])) / 2, 0.0), 1.0)
            self.sharpness = self.discriminant.sharpness(accuracy)
            stderr = float(estimate.stderr[0]) / 2
            self.report = replace(
                self.report, local_epsilon=self._local, predicted_accuracy=accuracy, accuracy_stderr=stderr
            )

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
        self.main = question
        self.discriminant = Discriminant.fit(found, basis.weights(shares), energies, basis.unit_examples(shares))
        self.report = LearningReport(self.budget, self._local, self._people, self._bits, len(shares), self._level)
