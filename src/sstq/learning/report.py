"""What the server reports of a classifier, and what the people who check it tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sstq.aggregation import Estimate
from sstq.array_types import Floats
from sstq.learning.class_answers import ClassAnswers
from sstq.learning.discriminant import Form
from sstq.mechanisms.frequencies import FrequencyEstimate
from sstq.mechanisms.subsets import HitLaw
from sstq.studies.results import StudyResult, share_of

# A column that uses less of its range is told of, by name up to so many.
_NARROW = 0.25
_LISTED = 6


@dataclass(frozen=True)
class LearningReport(StudyResult):
    """The result of learning: from whom, at which total ε, and the predicted accuracy.

    Attributes:
        epsilon: the total ε per person, who answers once.
        delta: the total δ behind a shuffler; 0 without one.
        local_epsilon: the local ε of all of a person's messages, the most of any cohort: what remains if the shuffler
            cheats. Without a shuffler it is the total.
        people: the number of people who answered, by cohort.
        message_bits: the bits per message, by cohort.
        directions: how many features are sent, chosen from the pilot's class sums.
        majority: the share of the most frequent class, as learned: what guessing it gets right.
        form: the form of the discriminant that is used: "regression" until people have judged, "nearest" without
            public examples.
        predicted_accuracy: the accuracy of the chosen form, as people reported it privately who did not choose it; nan
            if nobody was asked.
        accuracy_stderr: its standard error.
        accuracies: the accuracy of every form, from the people who chose. The largest is too large on average.
        by_class: the accuracy of every class and its standard error; nan for classes too rare to tell.
        class_answers: what people told of their class, with the intervals of these accuracies.
        range_used: of columns with bounds and without public examples, at most how much of its range each column uses,
            from the answers of the first cohort; less than a quarter costs accuracy at every ε.
        true_accuracy: the accuracy on labelled examples given to `report`, in simulations.
        true_stderr: its standard error, which is that of so many examples.
    """

    epsilon: float
    delta: float
    local_epsilon: float = 0.0
    people: dict[str, int] = field(default_factory=dict)
    message_bits: dict[str, int] = field(default_factory=dict)
    directions: int = 0
    majority: float = math.nan
    form: Form = "regression"
    predicted_accuracy: float = math.nan
    accuracy_stderr: float = math.nan
    accuracies: dict[Form, float] = field(default_factory=dict)
    by_class: dict[Any, tuple[float, float]] = field(default_factory=dict)
    class_answers: ClassAnswers | None = None
    range_used: tuple[float, ...] = ()
    true_accuracy: float = math.nan
    true_stderr: float = math.nan

    @property
    def balanced_accuracy(self) -> tuple[float, float]:
        """The mean of the accuracies by class and its standard error; nan if a class is too rare to tell."""
        recalls = np.array(list(self.by_class.values()) or [(math.nan, math.nan)])
        return float(recalls[:, 0].mean()), float(
            np.linalg.norm(recalls[:, 1]) / len(recalls)
        )

    @property
    def useful(self) -> bool:
        """Whether the reported accuracy is above the majority class by twice its standard error."""
        return bool(self.predicted_accuracy - 2 * self.accuracy_stderr > self.majority)

    def columns(self, level: float = 0.95) -> dict[str, Any]:
        """The accuracy of every class with its interval."""
        accuracies = [accuracy for accuracy, _ in self.by_class.values()]
        low, high = (
            self.class_answers.interval(level) if self.class_answers else ([], [])
        )
        return {
            "class": list(self.by_class),
            "accuracy": np.array(accuracies),
            "low": low,
            "high": high,
        }

    def details(self, level: float = 0.95) -> dict[str, Any]:
        """Return also the predicted accuracy, that of guessing, and what is used."""
        predicted = share_of((self.predicted_accuracy, self.accuracy_stderr))
        return self.columns(level) | {
            "predicted": predicted,
            "majority": self.majority,
            "form": self.form,
            "directions": self.directions,
        }

    def __str__(self) -> str:
        parts = [f"total ε = {self.epsilon:g} per person"]
        if self.delta:
            parts = [
                f"total ε = {self.epsilon:g}, δ = {self.delta:g} per person behind a shuffler",
                f"local ε = {self.local_epsilon:.3g} if it cheats",
            ]
        if not math.isnan(self.predicted_accuracy):
            parts.append(
                f"accuracy {_percent(self.predicted_accuracy, self.accuracy_stderr, 'predicted')}"
            )
            parts.append(
                f"{100 * self.majority:.1f} % by guessing the most frequent class"
            )
            if not self.useful:
                parts.append("not shown to be better than guessing")
        if not math.isnan(self.balanced_accuracy[0]):
            parts.append(_percent(*self.balanced_accuracy, "balanced over classes"))
        if not math.isnan(self.true_accuracy):
            parts.append(_percent(self.true_accuracy, self.true_stderr, "true"))
        narrow = [
            str(column) for column, used in enumerate(self.range_used) if used < _NARROW
        ]
        if narrow:
            listed = ", ".join(narrow[:_LISTED]) + ", …" * (len(narrow) > _LISTED)
            parts.append(
                f"{len(narrow)} of {len(self.range_used)} columns use less than {100 * _NARROW:.0f} % of their bounds "
                f"(columns {listed}), which costs accuracy at every ε: pass tighter bounds that are public knowledge"
            )
        people = ", ".join(f"{name} {count:,}" for name, count in self.people.items())
        return (
            ", ".join([*parts, f"{self.directions} directions ({self.form})"])
            + f"; people: {people}"
        )


@dataclass(frozen=True)
class RegressionReport(StudyResult):
    """A regression, for a total ε per person, who answers once.

    Attributes:
        coef: the coefficients of the columns, in their units.
        intercept: the constant.
        r2, r2_interval: R² as the people who checked reported it, and its 95 % interval; nan before.
        people: the number of people who answered.
        epsilon: the total ε per person.
    """

    coef: Floats
    intercept: float
    r2: float
    r2_interval: tuple[float, float]
    people: int
    epsilon: float

    def columns(self, level: float = 0.95) -> dict[str, Any]:  # noqa: ARG002 (there are no intervals)
        """The coefficients, the constant last."""
        names = [*range(len(self.coef)), "constant"]
        return {"column": names, "coefficient": [*self.coef.tolist(), self.intercept]}


def _percent(value: float, stderr: float, of: str) -> str:
    return (
        f"{100 * value:.1f} ± {100 * stderr:.1f} % {of}"
        if math.isfinite(stderr)
        else "unknown: too few people"
    )


class RightShare(NamedTuple):
    """How many people a classifier is right about, its standard error, and the weight beside another such share."""

    share: float
    stderr: float
    weight: float


def judged_forms(estimate: FrequencyEstimate, forms: Sequence[Form]) -> dict[str, Any]:
    """The accuracy of every form, and the best one, from how often which of them were right."""
    outcomes = np.arange(2 ** len(forms))
    right = {form: (outcomes >> place & 1) == 1 for place, form in enumerate(forms)}
    accuracies = {
        form: min(max(float(estimate.value[hits].sum()), 0.0), 1.0)
        for form, hits in right.items()
    }
    return {
        "form": max(accuracies, key=lambda form: accuracies[form]),
        "accuracies": accuracies,
    }


def right_share(estimate: FrequencyEstimate) -> RightShare:
    """The share of people for whom the chosen classifier is right: every second outcome, of whichever class."""
    right = np.arange(len(estimate.value)) % 2 == 1
    # The weight is by the law alone: a measured error would make smaller shares count for more or for less.
    # A set of so many categories holds half of them, as if drawn without replacement.
    categories = len(estimate.value)
    size = estimate.own + (categories - 1) * estimate.other
    variance = (
        size
        * (categories - size)
        / (4 * (categories - 1) * (estimate.own - estimate.other) ** 2)
    )
    return RightShare(
        float(estimate.value[right].sum()),
        _sum_error(estimate, right),
        estimate.count / variance,
    )


def predicted_accuracy(shares: Sequence[RightShare]) -> dict[str, Any]:
    """The accuracy from all cohorts that told it, with its standard error."""
    weights = np.array([each.weight for each in shares])
    weights = weights / weights.sum()
    share = float(weights @ [each.share for each in shares])
    error = float(np.linalg.norm(weights * [each.stderr for each in shares]))
    return {"predicted_accuracy": min(max(share, 0.0), 1.0), "accuracy_stderr": error}


def accuracy_by_class(
    estimate: FrequencyEstimate, law: HitLaw, classes: Sequence[Any]
) -> dict[str, Any]:
    """The accuracy of every class with its standard error, and what they are from."""
    told = ClassAnswers(tuple(estimate.value.tolist()), estimate.count, law)
    pairs = zip(told.accuracies.tolist(), told.stderr.tolist(), strict=True)
    return {
        "by_class": dict(zip(classes, pairs, strict=True)),
        "class_answers": told,
    }


def used_ranges(centre: Estimate) -> tuple[float, ...]:
    """At most how much of its range each column uses, from the mean of unit features (`Columns`).

    The constant, the last feature, tells how long rows are, and with it the mean of every column between its ends: a
    column of numbers ≥ its low end uses about twice the distance of its mean from it. What the features' squared length
    has beyond that of their mean is the variance of all columns together, so of each at most. Both leave two standard
    errors.
    """
    *columns, constant = centre.value
    *errors, _ = centre.stderr
    if not constant > 2 * centre.stderr[-1]:
        return (1.0,) * len(columns)
    # A unit of spread is that of numbers drawn evenly between the ends, half a range over √3; the constant is √D.
    scale = math.sqrt(len(columns)) / constant
    means = (
        np.maximum(np.abs(columns) - 2 * np.array(errors), 0.0) * scale / math.sqrt(3)
    )
    length2 = float(centre.value @ centre.value)
    noise2 = float(centre.stderr @ centre.stderr)
    varying = (
        1 - length2 + noise2 + 4 * math.sqrt(length2) * float(np.max(centre.stderr))
    )
    together = math.sqrt(max(varying, 0.0)) * scale
    return tuple(float(min(max(0.0, 1 - mean), together, 1.0)) for mean in means)


def _sum_error(estimate: FrequencyEstimate, chosen: Any) -> float:
    """The standard error of the sum of some shares.

    By randomized response a message names one category, so hits of different ones exclude each other. With larger sets
    they hardly depend on each other.
    """
    rate = float(
        np.sum(
            estimate.other + estimate.value[chosen] * (estimate.own - estimate.other)
        )
    )
    singles = math.isclose(
        estimate.own + (len(estimate.value) - 1) * estimate.other, 1.0
    )
    if not singles or not 0 < rate < 1 or estimate.count == 1:
        return float(np.linalg.norm(estimate.stderr[chosen]))
    return math.sqrt(rate * (1 - rate) / (estimate.count - 1)) / (
        estimate.own - estimate.other
    )
