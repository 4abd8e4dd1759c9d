"""`plan_shuffled`: chooses the mechanism for people who trust a shuffler, and predicts its error and cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

from sstq.accounting import gaussian_sigma
from sstq.accounting.bounds import check_delta
from sstq.checks import check_argument
from sstq.mechanisms import FrameUnit, GroupUnit
from sstq.planning.plans import Plan, Request
from sstq.planning.shuffled_draw import (
    MESSAGE_BITS,
    MOST_MESSAGES,
    ShuffleBudget,
    best_share,
    likely_mse,
    shuffled_mechanism,
)

USUAL_DELTA = 1e-6
"""The δ behind a shuffler, where none is given."""

# The increase in squared error that is accepted for half as many messages.
_SLACK = 0.02
# Replacing one person changes the sum of all vectors by this many times clip.
_SENSITIVITY = 2.0


@dataclass(frozen=True, repr=False, kw_only=True)
class ShuffledPlan(Plan):
    """The mechanism for a shuffler, with its predicted error and cost; see `Plan` for the other attributes.

    Attributes:
        local_error: the error of the same task without any trust, at a local ε equal to `epsilon`.
        central_error: the error of (ε, δ)-private Gaussian noise added by a trusted server.
        most_messages: the maximum messages per person that were allowed.
    """

    mechanism: FrameUnit | GroupUnit
    local_error: float
    central_error: float
    most_messages: int

    @property
    def total_epsilon(self) -> float:
        """The total ε of a person's messages, behind the shuffler."""
        return cast("float", self.request.epsilon)

    @property
    def messages(self) -> int:
        """m, the messages per person."""
        return self.mechanism.messages

    @property
    def cheated_epsilon(self) -> float:
        """The local ε per person that remains if the shuffler colludes with the server."""
        return self.mechanism.bundle_epsilon

    @property
    def person_bytes(self) -> int:
        """The bytes that a person sends, without envelopes; each message takes whole bytes."""
        return self.messages * -(-self.bits // 8)

    @property
    def total_bytes(self) -> int:
        """The bytes that all people send together."""
        return self.clients * self.person_bytes

    def likely_mse(self, dim: int, clients: int, epsilon: float) -> float:
        """About the squared error over clip² of another such task, hardly less than a plan of it would predict."""
        budget = ShuffleBudget(epsilon, self.request.delta, clients, self.most_messages)
        return likely_mse(budget, dim, self.mechanism.groups or 1, self.request.bits or MESSAGE_BITS)


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
    mean_norm: float | None = None,
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
        mean_norm: how long you expect the mean to be, for the verdict; by default as long as clip.

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
    alone: FrameUnit | GroupUnit = FrameUnit(dim, epsilon, clients=clients, clip=clip)
    if groups is not None:
        alone = GroupUnit(dim, epsilon, groups=groups, clients=clients, clip=clip)
    return ShuffledPlan(
        request=Request(dim, clients, epsilon, bits, delta=delta, clip=clip, mean_norm=mean_norm),
        mechanism=mechanism,
        label=f"{'FrameUnit' if groups is None else 'GroupUnit'}, {chosen} message{'s' * (chosen > 1)} per person",
        clients=clients,
        bias=math.sqrt(error.bias2),
        standard_deviation=math.sqrt(error.variance),
        local_error=math.sqrt(alone.typical_error(clients).total),
        central_error=clip * central_error(dim * (groups or 1), epsilon, delta, clients),
        most_messages=messages,
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
