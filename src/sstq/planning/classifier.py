"""Planning a classifier that is learned from one message per person: a private class and a vector of features.

The messages are GroupUnit's, and the classifier is learned from the mean features of every class. Their noise is
known beforehand; how far the classes are apart along each direction is only in the data.
So the number of features is a rule of thumb until a first cohort has answered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from sstq.checks import RANGES, ArgumentError, check_argument, check_number, check_option
from sstq.mechanisms import GroupUnit
from sstq.planning.shuffled_draw import MOST_MESSAGES
from sstq.planning.shuffler import USUAL_DELTA, ShuffledPlan, plan_shuffled
from sstq.planning.verdict import LEAST_SIGNAL_TO_NOISE, Verdict, find_remedies, three_digits, whole_numbers


@dataclass(frozen=True, repr=False)
class ClassifierPlan:
    """What a classifier from one message per person costs, and the noise of its class means.

    Predictions are for features of norm 1 and classes that are equally frequent: a class of a tenth of the mean size
    has ten times the noise.

    Attributes:
        classes: the number of classes.
        features: p, the number of features that are sent.
        clients: n, the people; each sends one message, once.
        epsilon: the total ε per person: of that message, or behind the shuffler.
        mechanism: the GroupUnit of the messages.
        noise: the standard deviation of one coordinate of a class mean.
        shuffled: the plan of the messages, if a shuffler is trusted; then people may send several.
    """

    classes: int
    features: int
    clients: int
    epsilon: float
    mechanism: GroupUnit
    noise: float
    shuffled: ShuffledPlan | None = None

    def __repr__(self) -> str:
        crowd = f"{self.clients:,} people, {self.classes} classes and {self.features} features"
        return f"<ClassifierPlan for {crowd} at a total {self.total}: noise {self.noise:.3g}>"

    @property
    def total(self) -> str:
        """The total privacy cost per person, in words."""
        if self.shuffled is None:
            return f"ε = {self.epsilon:g}"
        return f"ε = {self.epsilon:g} (δ = {self.shuffled.delta:g}) behind a shuffler"

    def noise_of(self, error: float) -> float:
        """The standard deviation of one coordinate of a class mean, from the error of all sums over the people."""
        return class_noise(error, self.classes, self.features)

    @property
    def total_bytes(self) -> int:
        """The size of all messages together in bytes."""
        if self.shuffled is not None:
            return self.shuffled.total_bytes
        return -(-self.clients * self.mechanism.message_bits // 8)

    @property
    def signal_to_noise(self) -> float:
        """The length of a class mean over that of its noise, if all people of a class had the same features.

        The mean then has norm 1, and the noise has norm √features · noise. This is an upper bound.
        """
        return 1 / (self.noise * math.sqrt(self.features))

    @property
    def feasible(self) -> bool:
        """Whether the signal-to-noise ratio is at least 1."""
        return self.signal_to_noise >= LEAST_SIGNAL_TO_NOISE

    @property
    def most_features(self) -> int:
        """The number of features at which a class mean of norm 1 is as long as its noise: 1/noise², for any data."""
        return math.floor(self.noise**-2)

    @property
    def usual_features(self) -> int:
        """How many features are worth their noise if classes differ less and less along them, as 1/j: about √2/noise.

        A rule of thumb. Let F_j be the share of the variance along the j-th direction that is between the classes, t_j
        the share of the squared norm that the direction gets, and σ the noise. The loss Σ F_j·σ²/(F_j·t_j + σ²) is
        least at t_j = max(0, w − σ²/F_j): reverse water-filling. With F_j = 1/j the first p directions get something,
        for the largest p with p·(p − 1) < 2/σ². Along the first 46 principal directions of images of digits and of
        clothes F_j, averaged over seven neighbours, is within a factor of three of 1/j. For other features no plan can
        know what it is.
        """
        most = math.ceil((1 + math.sqrt(1 + 8 / self.noise**2)) / 2) - 1
        return min(self.features, max(1, most))

    def verdict(self) -> Verdict:
        """Return whether class means stand out from their noise; if not, with what would have to change."""
        spent = f"a total ε of {self.epsilon:g}" if self.shuffled is None else f"a total {self.total}"
        reason = f"signal-to-noise {self.signal_to_noise:.3g} of a class mean at {spent}"
        if self.feasible:
            return Verdict(True, self.signal_to_noise, reason)

        def works(features: int, clients: int, epsilon: float) -> bool:
            if self.shuffled is not None:
                return self.classes * self.shuffled.likely_mse(features, clients, epsilon) <= 1
            return plan_classifier(self.classes, features, clients, epsilon).feasible

        remedies = find_remedies(
            clients=(
                whole_numbers(self.clients, int(RANGES["clients"][1])),
                lambda n: works(self.features, n, self.epsilon),
            ),
            epsilon=(
                three_digits(self.epsilon, RANGES["epsilon"][1]),
                lambda epsilon: works(self.features, self.clients, epsilon),
            ),
            features=(
                whole_numbers(1, self.features)[::-1],
                lambda features: works(features, self.clients, self.epsilon),
            ),
        )
        return Verdict(False, self.signal_to_noise, reason, remedies)

    def python(self) -> str:
        """The line of Python that simulates it, from examples `X`, labels `y` and unlabelled examples `public`."""
        return f"sstq.learning.PrivateClassifier(epsilon={self.epsilon!r}, public=public).fit(X, y)"


def plan_classifier(
    classes: int,
    features: int,
    clients: int,
    epsilon: float,
    *,
    trust: str = "local",
    delta: float | None = None,
    messages: int | None = None,
) -> ClassifierPlan:
    """Plan a classifier to which every person contributes once: one message, or several to a shuffler.

    Args:
        classes: the number of classes.
        features: p, the number of features, as the public feature map gives them; their norm is 1.
        clients: n, the people.
        epsilon: the total ε per person: of the message, or of all messages behind the shuffler.
        trust: "local", or "shuffler" for people who trust one.
        delta: the δ behind the shuffler; 1e-6 by default.
        messages: the maximum number of messages per person behind the shuffler; 16 by default.

    Examples:
        >>> found = plan_classifier(classes=10, features=441, clients=59_000, epsilon=3.0)
        >>> found.mechanism.blocks, round(found.noise, 4), found.feasible
        (10, 0.031, True)
        >>> found.usual_features, found.most_features
        (46, 1039)
        >>> found = plan_classifier(10, 64, clients=59_000, epsilon=1.0, trust="shuffler", messages=1)
        >>> round(found.noise, 4), round(found.mechanism.epsilon, 2)
        (0.0068, 7.48)
    """
    classes = check_number("classes", classes, 2, 2**20, integer=True)
    features = check_number("features", features, 1, 2**24, integer=True)
    clients = check_argument("clients", clients, of="crowd")
    epsilon = check_argument("epsilon", epsilon)
    if check_option("trust", trust, ("local", "shuffler")) == "shuffler":
        most, delta = MOST_MESSAGES if messages is None else messages, USUAL_DELTA if delta is None else delta
        found = plan_shuffled(features, clients, epsilon, delta, messages=most, groups=classes)
        noise = class_noise(found.error, classes, features)
        return ClassifierPlan(classes, features, clients, epsilon, cast(GroupUnit, found.mechanism), noise, found)
    for name, value in (("delta", delta), ("messages", messages)):
        if value is not None:
            raise ArgumentError(name, f"must be left out unless trust='shuffler', got {value!r}")
    mechanism = GroupUnit(features, epsilon, groups=classes, clients=clients)
    noise = class_noise(math.sqrt(mechanism.typical_error(clients).total), classes, features)
    return ClassifierPlan(classes, features, clients, epsilon, mechanism, noise)


def class_noise(error: float, classes: int, features: int) -> float:
    """The standard deviation of one coordinate of a class mean: the sums over the people are 1/classes of the means."""
    return classes * error / math.sqrt(classes * features)
