"""Planning a classifier that is learned from one message per person: a private class and a vector of features.

The messages are GroupUnit's, and the classifier is learned from the mean features of every class. Their noise is
known beforehand; how far the classes are apart along each direction is only in the data. People send as many
directions of the features as are worth their noise, which a first cohort tells; the plan, and its verdict, are for the
number of a rule of thumb.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from sstq.checks import ArgumentError, check_argument, check_number, check_option
from sstq.mechanisms import GroupUnit
from sstq.planning.plans import Plan, Remedy, Request
from sstq.planning.shuffled_draw import MOST_MESSAGES
from sstq.planning.shuffler import USUAL_DELTA, ShuffledPlan, plan_shuffled

# The directions for which noise is predicted first; a coordinate's hardly depends on them.
_FIRST_DIRECTIONS = 32


@dataclass(frozen=True, repr=False, kw_only=True)
class ClassifierPlan(Plan):
    """What a classifier from one message per person costs, and the noise of its class means; see `Plan` for the rest.

    Predictions are for features of norm 1 and classes that are equally frequent: a class of a tenth of the mean size
    has ten times the noise.

    Attributes:
        mechanism: the GroupUnit of the messages.
        shuffled: the plan of the messages, if a shuffler is trusted; then people may send several.
    """

    mechanism: GroupUnit
    shuffled: ShuffledPlan | None = None

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.mechanism.groups

    @property
    def directions(self) -> int:
        """p, the number of directions of the features that are sent: those worth their noise, by a rule of thumb."""
        return self.mechanism.dim

    @property
    def total_bytes(self) -> int:
        """The size of all messages together in bytes."""
        return super().total_bytes if self.shuffled is None else self.shuffled.total_bytes

    @property
    def noise(self) -> float:
        """The standard deviation of one coordinate of a class mean: the sums of all are 1/classes of the means."""
        return self.error * math.sqrt(self.classes / self.directions)

    @property
    def most_directions(self) -> int:
        """The number of directions at which a class mean of norm 1 is as long as its noise: 1/noise², for any data."""
        return math.floor(self.noise**-2)

    def likely_mse(self, dim: int, clients: int, epsilon: float) -> float:
        """The squared error over clip² of another such task."""

        def mse(directions: int) -> float:
            if self.shuffled is not None:
                return self.shuffled.likely_mse(directions, clients, epsilon)
            return GroupUnit(directions, epsilon, groups=self.classes, clients=clients).typical_error(clients).total

        first = min(dim, _FIRST_DIRECTIONS)
        return mse(usual_directions(self.classes * mse(first) / first, dim))

    def _remedies(self) -> tuple[Remedy, ...]:
        # Directions are chosen by their worth: fewer features are no remedy.
        return tuple(remedy for remedy in super()._remedies() if remedy.argument != "dim")

    def python(self) -> str:
        """The line of Python that simulates it, from examples `X`, labels `y` and unlabelled examples `public`."""
        options = f"epsilon={self.request.epsilon!r}, public=public"
        if self.shuffled is not None:
            options += f", trust='shuffler', delta={self.request.delta!r}, messages={self.mechanism.messages}"
        return f"sstq.learning.PrivateClassifier({options}).fit(X, y)"


def usual_directions(noise: float, most: int) -> int:
    """How many directions are worth their noise if classes differ less and less along them, as 1/j: about √(2/σ²).

    A rule of thumb. Let F_j be the share of the variance along the j-th direction that is between the classes, t_j the
    share of the squared norm that the direction gets, and σ² the noise of a coordinate of a class mean. The loss
    Σ F_j·σ²/(F_j·t_j + σ²) is least at t_j = max(0, w − σ²/F_j): reverse water-filling. With F_j = 1/j the first p
    directions get something, for the largest p with p·(p − 1) < 2/σ². Along the first 46 principal directions of images
    of digits and of clothes F_j, averaged over seven neighbours, is within a factor of three of 1/j. For other features
    no plan can know what it is.

    Examples:
        >>> usual_directions(0.01, most=64), usual_directions(0.01, most=8)
        (14, 8)
    """
    return min(most, max(1, math.ceil((1 + math.sqrt(1 + 8 / noise)) / 2) - 1))


def plan_classifier(
    classes: int,
    dim: int,
    clients: int,
    epsilon: float,
    *,
    trust: str = "local",
    delta: float | None = None,
    messages: int | None = None,
    mean_norm: float | None = None,
) -> ClassifierPlan:
    """Plan a classifier to which every person contributes once: one message, or several to a shuffler.

    It is feasible if a class mean is at least as long as its noise, along the directions that are sent. That said
    rightly in 27 of 30 cases whether the classifier is better than the most frequent class by twice its error (ten
    tables, a total ε of 1, 3 and 6: `python -m paper learn --seeds 1`); how much better depends on the data.

    Args:
        classes: the number of classes.
        dim: the number of features, as the public feature map gives them; their norm is 1.
        clients: n, the people.
        epsilon: the total ε per person: of the message, or of all messages behind the shuffler.
        trust: "local", or "shuffler" for people who trust one.
        delta: the δ behind the shuffler; 1e-6 by default.
        messages: the maximum number of messages per person behind the shuffler; 16 by default.
        mean_norm: how long you expect a class mean to be, for the verdict; by default 1, as long as the features.

    Examples:
        >>> found = plan_classifier(classes=10, dim=441, clients=59_000, epsilon=3.0)
        >>> found.mechanism.blocks, round(found.noise, 4), found.feasible
        (10, 0.031, True)
        >>> found.directions, found.most_directions
        (45, 1040)
        >>> found = plan_classifier(10, 64, clients=59_000, epsilon=1.0, trust="shuffler", messages=1)
        >>> round(found.noise, 4), round(found.mechanism.epsilon, 2)
        (0.0068, 7.48)
    """
    classes = check_number("classes", classes, 2, 2**20, integer=True)
    check_number("dim", dim, 1, 2**24, integer=True)
    clients = check_argument("clients", clients, of="crowd")
    epsilon = check_argument("epsilon", epsilon)
    shuffling = check_option("trust", trust, ("local", "shuffler")) == "shuffler"
    for name, value in () if shuffling else (("delta", delta), ("messages", messages)):
        if value is not None:
            raise ArgumentError(name, f"must be left out unless trust='shuffler', got {value!r}")
    most, total_delta = messages or MOST_MESSAGES, USUAL_DELTA if delta is None else delta

    def planned(directions: int) -> tuple[GroupUnit, ShuffledPlan | None]:
        if not shuffling:
            return GroupUnit(directions, epsilon, groups=classes, clients=clients), None
        found = plan_shuffled(directions, clients, epsilon, total_delta, messages=most, groups=classes)
        return cast("GroupUnit", found.mechanism), found

    first, _ = planned(min(dim, _FIRST_DIRECTIONS))
    noise = classes * first.typical_error(clients).total / first.dim
    own, shuffled = planned(usual_directions(noise, dim))
    error = own.typical_error(clients)
    return ClassifierPlan(
        request=Request(dim, clients, epsilon, delta=total_delta if shuffling else 0.0, mean_norm=mean_norm),
        mechanism=own,
        label=f"GroupUnit, {classes} groups",
        clients=clients,
        bias=math.sqrt(error.bias2),
        standard_deviation=math.sqrt(error.variance),
        shuffled=shuffled,
    )
