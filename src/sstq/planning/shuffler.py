"""`plan_shuffled`: chooses the mechanism for people who trust a shuffler, and predicts its error and cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sstq.accounting import gaussian_sigma
from sstq.accounting.bounds import check_delta
from sstq.checks import RANGES, check_argument
from sstq.mechanisms import FrameUnit, GroupUnit
from sstq.planning.shuffled_draw import (
    MESSAGE_BITS,
    MOST_MESSAGES,
    ShuffleBudget,
    best_share,
    likely_mse,
    shuffled_mechanism,
)
from sstq.planning.verdict import LEAST_SIGNAL_TO_NOISE, Remedy, Verdict, find_remedies, three_digits, whole_numbers

USUAL_DELTA = 1e-6
"""The δ behind a shuffler, where none is given."""

# The increase in squared error that is accepted for half as many messages.
_SLACK = 0.02
# Replacing one person changes the sum of all vectors by this many times clip.
_SENSITIVITY = 2.0


@dataclass(frozen=True, repr=False)
class ShuffledPlan:
    """The mechanism for a shuffler, with its predicted error and cost. Lengths are Euclidean, in the unit of clip.

    Predictions are for people who all hold one vector of norm clip, averaged over frame seeds.

    Attributes:
        clients: n, the people.
        epsilon: the total ε of a person's messages, behind the shuffler.
        delta: the total δ.
        mechanism: the mechanism of the messages; its `epsilon` is the local ε of one message.
        bias: the norm of the bias of the mean, which more people do not reduce.
        standard_deviation: the standard deviation of the mean, the root of the summed variance.
        local_error: the error of the same task without any trust, at a local ε equal to `epsilon`.
        central_error: the error of (ε, δ)-private Gaussian noise added by a trusted server.
        most_messages: the maximum messages per person that were allowed.
        most_bits: the maximum bits per message that were allowed.
    """

    clients: int
    epsilon: float
    delta: float
    mechanism: FrameUnit | GroupUnit
    bias: float
    standard_deviation: float
    local_error: float
    central_error: float
    most_messages: int = MOST_MESSAGES
    most_bits: int = MESSAGE_BITS

    def __repr__(self) -> str:
        sent = f"{self.messages} message{'s' * (self.messages > 1)} of {self.mechanism.message_bits} bits per person"
        crowd = f"{self.clients:,} people of dimension {self.mechanism.dim:,} at ({self.epsilon:g}, {self.delta:g})"
        return f"<ShuffledPlan for {crowd}: {sent}, error {self.relative_error:.3g} of clip>"

    @property
    def messages(self) -> int:
        """m, the messages per person."""
        return self.mechanism.messages

    @property
    def cheated_epsilon(self) -> float:
        """The local ε per person that remains if the shuffler colludes with the server."""
        return self.mechanism.bundle_epsilon

    @property
    def error(self) -> float:
        """The root mean square error of the mean, from bias and standard deviation."""
        return math.hypot(self.bias, self.standard_deviation)

    @property
    def relative_error(self) -> float:
        """The error divided by clip."""
        return self.error / self.mechanism.clip

    @property
    def signal_to_noise(self) -> float:
        """The length of the mean divided by its error if all people hold one vector, an upper bound."""
        return 1 / self.relative_error

    @property
    def feasible(self) -> bool:
        """Whether the signal-to-noise ratio is at least 1."""
        return self.signal_to_noise >= LEAST_SIGNAL_TO_NOISE

    @property
    def person_bytes(self) -> int:
        """The bytes that a person sends, without envelopes; each message takes whole bytes."""
        return self.messages * -(-self.mechanism.message_bits // 8)

    @property
    def total_bytes(self) -> int:
        """The bytes that all people send together."""
        return self.clients * self.person_bytes

    def verdict(self) -> Verdict:
        """Return whether the task can work, in one line; if it cannot, with what would have to change.

        Examples:
            >>> print(plan_shuffled(dim=100, clients=10_000, epsilon=1.0).verdict())
            feasible: signal-to-noise 50.1, the mean has an error of 0.0199 × clip
        """
        reason = (
            f"signal-to-noise {self.signal_to_noise:.3g}, the mean has an error of {self.relative_error:.3g} × clip"
        )
        return Verdict(self.feasible, self.signal_to_noise, reason, () if self.feasible else self._remedies())

    def build(self) -> FrameUnit | GroupUnit:
        """Return the mechanism."""
        return self.mechanism

    def python(self) -> str:
        """Return the line of Python that builds the mechanism."""
        return f"sstq.{self.mechanism!r}"

    def spec(self) -> str:
        """Return the mechanism's JSON, which clients and server share."""
        return self.mechanism.to_json()

    def _remedies(self) -> tuple[Remedy, ...]:
        dim, people, epsilon = self.mechanism.dim, self.clients, self.epsilon
        return find_remedies(
            clients=(whole_numbers(people, int(RANGES["clients"][1])), lambda n: self.likely_mse(dim, n, epsilon) <= 1),
            epsilon=(three_digits(epsilon, RANGES["epsilon"][1]), lambda e: self.likely_mse(dim, people, e) <= 1),
            dim=(whole_numbers(1, dim)[::-1], lambda d: self.likely_mse(d, people, epsilon) <= 1),
        )

    def likely_mse(self, dim: int, clients: int, epsilon: float) -> float:
        """About the squared error over clip² of another such task, hardly less than a plan of it would predict."""
        budget = ShuffleBudget(epsilon, self.delta, clients, self.most_messages)
        return likely_mse(budget, dim, self.mechanism.groups or 1, self.most_bits)


def plan_shuffled(
    dim: int,
    clients: int,
    epsilon: float,
    delta: float = USUAL_DELTA,
    *,
    messages: int = MOST_MESSAGES,
    groups: int | None = None,
    bits: int = MESSAGE_BITS,
    clip: float = 1.0,
) -> ShuffledPlan:
    """Choose a mechanism for people who trust a shuffler, but not the server.

    The shuffler mixes the messages of each slot and drops all metadata. Then (ε, δ) is that of central
    differential privacy: neighbouring inputs differ in one person's vector.

    Args:
        dim: d, the length of the vectors.
        clients: n, the people; count only those sure to answer honestly.
        epsilon: the total ε of a person's messages, 0.01 to 20.
        delta: the total δ.
        messages: the maximum messages per person. The plan takes half as many if that adds at most 2 % squared error.
        groups: the number of private groups; None for vectors alone.
        bits: the maximum bits per message.
        clip: vectors longer than this are scaled down to it.

    Examples:
        >>> found = plan_shuffled(dim=100, clients=10_000, epsilon=1.0, delta=1e-6)
        >>> found.messages, found.mechanism.message_bits, round(found.relative_error, 3)
        (16, 28, 0.02)
        >>> round(found.local_error, 2), round(found.central_error, 4), round(found.cheated_epsilon)
        (0.25, 0.0084, 53)
    """
    dim, epsilon = check_argument("dim", dim), check_argument("epsilon", epsilon)
    delta, clients = check_delta(delta, positive=True), check_argument("clients", clients)
    messages, clip = check_argument("messages", messages), check_argument("clip", clip)
    groups = None if groups is None else check_argument("groups", groups)
    chosen = fewest_messages(ShuffleBudget(epsilon, delta, clients, messages), groups or 1)
    mechanism = shuffled_mechanism(dim, epsilon, delta, clients, messages=chosen, groups=groups, bits=bits, clip=clip)
    error = mechanism.typical_error(clients)
    return ShuffledPlan(
        clients=clients,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        bias=math.sqrt(error.bias2),
        standard_deviation=math.sqrt(error.variance),
        local_error=math.sqrt(_local(dim, epsilon, clients, groups, clip)),
        central_error=clip * central_error(dim * (groups or 1), epsilon, delta, clients),
        most_messages=messages,
        most_bits=bits,
    )


def fewest_messages(budget: ShuffleBudget, blocks: int = 1) -> int:
    """The messages of a person, halved as long as that costs little."""
    messages = budget.messages

    def variance(messages: int) -> float:
        return best_share(replace(budget, messages=messages), blocks)[1] / messages

    while messages > 1 and variance(messages // 2) <= (1 + _SLACK) * variance(messages):
        messages //= 2
    return messages


def central_error(coordinates: int, epsilon: float, delta: float, clients: int) -> float:
    """Return the error of a mean of vectors of norm 1 to which a trusted server adds Gaussian noise.

    Examples:
        >>> round(central_error(1000, 1.0, 1e-6, 100_000), 5)
        0.00267
    """
    return _SENSITIVITY * gaussian_sigma(epsilon, delta) / clients * math.sqrt(coordinates)


def _local(dim: int, epsilon: float, clients: int, groups: int | None, clip: float) -> float:
    """The squared error if nobody is trusted."""
    if groups is None:
        return FrameUnit(dim, epsilon, clients=clients, clip=clip).typical_error(clients).total
    return GroupUnit(dim, epsilon, groups=groups, clients=clients, clip=clip).typical_error(clients).total
