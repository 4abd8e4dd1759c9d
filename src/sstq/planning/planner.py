"""The plan: the mechanism for what is wished for, and what it will cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sstq.accounting.bounds import check_delta
from sstq.checks import check_argument, check_number, check_option
from sstq.mechanisms import Mechanism, mechanism
from sstq.planning.budget import allowed_epsilon, allowed_rounds, together
from sstq.planning.explanation import explain
from sstq.planning.families import COINS, SERVERS
from sstq.planning.offers import Offer, Terms
from sstq.planning.solving import (
    CLIENTS_MAX,
    EPSILON_MAX,
    EPSILON_MIN,
    least_bits,
    least_clients,
    least_epsilon,
    weigh,
)
from sstq.planning.timing import Times, time_mechanism

__all__ = ["Alternative", "Plan", "plan"]

# Of the squared error so much is given up for a shorter message.
_SLACK = 0.02
_BITS_MAX = 4096


@dataclass(frozen=True)
class Alternative:
    """A mechanism that was not chosen.

    Attributes:
        label: what it is.
        bits: of one message.
        error: the predicted root mean square error of the mean.
        needs: what it needs that was not allowed, or nothing.
    """

    label: str
    bits: int
    error: float
    needs: str = ""


@dataclass(frozen=True)
class Plan:
    """The mechanism to use and what is predicted of it. Lengths are Euclidean, in the unit of clip.

    Predictions are for clients that all hold one typical vector of norm clip, averaged over frame seeds; that is the
    worst case for the bias of frames. `alike` says otherwise for strata.

    Attributes:
        dim: d.
        clients: n.
        epsilon: ε of one message. It may be less than was allowed, where more would be worse.
        clip: of the vectors.
        rounds: T.
        delta: δ of all rounds together.
        solved_for: "error", "clients", "epsilon" or "bits".
        label: the mechanism, for people.
        name: of the mechanism in the registry.
        arguments: of the mechanism.
        bits: of one message.
        coin: "private" or "public".
        bias: the norm of the bias of the mean, which more clients do not lower.
        standard_deviation: of the mean, the root of the summed variance.
        total_epsilon_basic: ε of all rounds of a client together, the sum.
        total_epsilon_optimal: the same for δ, by optimal composition; None without δ.
        explanation: why this mechanism, and what to mind.
        alternatives: the other mechanisms that the terms allow, the least error first; then what a public coin has.
    """

    dim: int
    clients: int
    epsilon: float
    clip: float
    rounds: int
    delta: float
    solved_for: str
    label: str
    name: str
    arguments: Mapping[str, Any]
    bits: int
    coin: str
    bias: float
    standard_deviation: float
    total_epsilon_basic: float
    total_epsilon_optimal: float | None
    explanation: str
    alternatives: tuple[Alternative, ...]

    @property
    def error(self) -> float:
        """The root mean square error of the mean of one round: of bias and standard deviation together."""
        return math.hypot(self.bias, self.standard_deviation)

    @property
    def relative_error(self) -> float:
        """The error over clip."""
        return self.error / self.clip

    @property
    def total_bytes(self) -> int:
        """All messages of all clients in all rounds; identifiers, which a public coin needs, are not counted."""
        return -(-self.clients * self.bits // 8) * self.rounds

    def build(self) -> Mechanism:
        """The mechanism itself, with frame seed 0."""
        return mechanism(self.name, **self._all_arguments())

    def python(self) -> str:
        """The line of Python that builds it."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._all_arguments().items())
        return f"sstq.mechanism({self.name!r}, {arguments})".replace("'", '"')

    def spec(self) -> str:
        """The mechanism's JSON, which clients and server share."""
        return self.build().to_json()

    def times(self) -> Times:
        """How long encoding and decoding take on this machine, measured within about a second where possible."""
        return time_mechanism(self.build(), self.clients)

    def _all_arguments(self) -> dict[str, Any]:
        return {"dim": self.dim, "epsilon": self.epsilon, "clip": self.clip, **self.arguments}


def plan(
    dim: int,
    clients: int | None = None,
    epsilon: float | None = None,
    *,
    bits: int | None = None,
    target_error: float | None = None,
    rounds: int | None = None,
    total_epsilon: float | None = None,
    delta: float = 0.0,
    clip: float = 1.0,
    coin: str = "private",
    trust: str = "local",
    server: str = "fast",
    alike: float | None = None,
) -> Plan:
    """Choose a mechanism and its parameters, and solve for what is left out of ε, clients, error and bits.

    The least predicted error wins, within the bits that are allowed. A longer message must earn its bits: within a
    family of mechanisms the shortest is taken whose squared error is within 2 % of the least. With ε, clients and
    `target_error` all given, the shortest message wins that has the error.

    Args:
        dim: d, the length of the vectors.
        clients: n, who take part in a round; solved for if `epsilon` and `target_error` are given without it.
        epsilon: ε that one message may spend, 0.01 to 20; or give `rounds` and `total_epsilon`. Solved for if `clients`
            and `target_error` are given without it.
        bits: the most bits of a message; any number unless given.
        target_error: the root mean square error of the mean that is wished for, as a share of clip.
        rounds: T, in which one client may take part. Without it, as many as `total_epsilon` has room for, or one.
        total_epsilon: ε of all rounds of a client together.
        delta: δ of all rounds together; with δ > 0 the rounds are composed optimally, otherwise their ε add up.
        clip: vectors longer than this are scaled down to it.
        coin: "private" (default); "public" if clients and server can name the clients and share a seed, which saves the
            bits of the index; "any" for whichever is better.
        trust: "local", the only one: nobody is trusted, every message is private by itself.
        server: "fast" (default) for O(1) work a message and one transform a frame, or "any", which lets RRSC in.
        alike: the cosine of each client's vector with their common direction, 0 to 1, if it is known; then strata are
            counted on.

    Returns:
        The plan. ValueError for what is impossible, with the closest that is possible.

    Examples:
        >>> found = plan(dim=25_450, clients=100_000, epsilon=3.0, bits=20)
        >>> found.name, found.bits, round(found.relative_error, 2), found.total_bytes
        ('frameunit', 20, 0.46, 250000)
        >>> print(found.python())
        sstq.mechanism("frameunit", dim=25450, epsilon=3.0, clip=1.0, frames=16)
        >>> plan(dim=25_450, epsilon=3.0, target_error=0.5).clients
        77412
        >>> plan(dim=25_450, clients=100_000, target_error=0.5).epsilon
        2.63969
    """
    dim = check_number("dim", dim, 1, 2**30, integer=True)
    clip = check_number("clip", clip, 1e-100, 1e100)
    clients = None if clients is None else check_number("clients", clients, 1, CLIENTS_MAX, integer=True)
    epsilon = None if epsilon is None else check_number("epsilon", epsilon, EPSILON_MIN, EPSILON_MAX)
    target_error = None if target_error is None else check_number("target_error", target_error, 1e-9, 1e9)
    rounds = None if rounds is None else check_argument("rounds", rounds)
    total_epsilon = None if total_epsilon is None else check_argument("total_epsilon", total_epsilon)
    delta = check_delta(delta)
    _check_trust(trust)
    terms = Terms(
        dim=dim,
        bits=None if bits is None else check_number("bits", bits, 1, _BITS_MAX, integer=True),
        coin=check_option("coin", coin, COINS),
        server=check_option("server", server, SERVERS),
        alike=None if alike is None else check_number("alike", alike, 0, 1),
        slack=_SLACK,
    )
    allowed = allowed_epsilon(epsilon, rounds, total_epsilon, delta)
    solved_for, allowed, clients, found = _solve(terms, allowed, clients, target_error)
    best = found[0]
    rounds = allowed_rounds(best.epsilon, rounds, total_epsilon, delta)
    basic, optimal = together(best.epsilon, rounds, total_epsilon, delta)
    return Plan(
        dim=dim,
        clients=clients,
        epsilon=best.epsilon,
        clip=clip,
        rounds=rounds,
        delta=delta,
        solved_for=solved_for,
        label=best.label,
        name=best.name,
        arguments=best.arguments,
        bits=best.bits,
        coin=best.coin,
        bias=clip * math.sqrt(best.bias2),
        standard_deviation=clip * math.sqrt(best.variance),
        total_epsilon_basic=basic,
        total_epsilon_optimal=optimal,
        explanation=explain(terms, allowed, clients, found, shortest=solved_for == "bits"),
        alternatives=(*_alternatives(found[1:], clip), *_public_alternative(terms, allowed, clients, clip)),
    )


def _alternatives(offers: list[Offer], clip: float, needs: str = "") -> list[Alternative]:
    return [Alternative(offer.label, offer.bits, clip * math.sqrt(offer.mse), needs) for offer in offers]


def _public_alternative(terms: Terms, epsilon: float, clients: int, clip: float) -> list[Alternative]:
    if terms.coin != "private":
        return []
    public = replace(terms, coin="public")
    return _alternatives(weigh(public, epsilon, clients)[:1], clip, needs="a public coin")


def _solve(
    terms: Terms, epsilon: float | None, clients: int | None, target_error: float | None
) -> tuple[str, float, int, list[Offer]]:
    """What was solved for, ε that is allowed, the clients, and the offers for both."""
    if epsilon is not None and clients is not None:
        if target_error is None:
            return "error", epsilon, clients, weigh(terms, epsilon, clients, thorough=True)
        return "bits", epsilon, clients, least_bits(terms, epsilon, clients, target_error)
    if target_error is None or (epsilon is None and clients is None):
        raise ValueError(
            "two of epsilon= (or rounds= and total_epsilon=), clients= and target_error= are needed to solve for the "
            "rest"
        )
    if epsilon is not None:
        clients = least_clients(terms, epsilon, target_error)
        return "clients", epsilon, clients, weigh(terms, epsilon, clients, thorough=True)
    assert clients is not None  # noqa: S101 (one of the two was given)
    epsilon = least_epsilon(terms, clients, target_error)
    return "epsilon", epsilon, clients, weigh(terms, epsilon, clients, thorough=True)


def _check_trust(trust: str) -> None:
    if trust != "local":
        raise ValueError(
            f"trust must be 'local', got {trust!r}: plans are for messages that are private by themselves; "
            "`sstq compare` also has mechanisms with a trusted aggregator"
        )
