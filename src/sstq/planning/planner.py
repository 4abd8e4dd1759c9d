"""`plan`: chooses the mechanism for a task, and predicts its error and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from sstq.accounting import compose
from sstq.accounting.bounds import check_delta
from sstq.cards import card
from sstq.checks import check_argument, check_number, check_option
from sstq.federated.cohorts import Cohorts, Participation, answers_of
from sstq.mechanisms import Mechanism, mechanism
from sstq.mechanisms.frameunit.bias import BIAS_SHARE
from sstq.planning import solving
from sstq.planning.cohorts import cohorts_for
from sstq.planning.comparison import Times, time_mechanism
from sstq.planning.offers import Offer, Terms, most_rrsc_bits, rrsc
from sstq.planning.shuffler import ShuffledPlan, plan_shuffled
from sstq.planning.tuning import Strata
from sstq.planning.verdict import LEAST_SIGNAL_TO_NOISE, Remedy, Task, Verdict

_SLACK = 0.02  # the share of the squared error that is given up for a shorter message
_RRSC_BITS = 8  # up to which RRSC is mentioned; beyond them it is hardly better than FrameUnit
_MANY_FRAMES = 10  # clients per frame: with fewer, the transforms are most of the server's work
_FRESH = "use a fresh frame_seed every round, so that the rest averages out"


@dataclass(frozen=True)
class Alternative:
    """A mechanism that was not chosen: its bits per message, the predicted error of the mean, and what it needs."""

    label: str
    bits: int
    error: float
    needs: str = ""


@dataclass(frozen=True, repr=False)
class Plan:
    """The mechanism to use, with its predicted error and cost. Lengths are Euclidean, in the unit of clip.

    Predictions are for clients that all hold one typical vector of norm clip, the worst case for the bias of frames,
    averaged over frame seeds; `alike` says otherwise for strata.

    Attributes:
        epsilon: the ε of one message. It may be less than allowed, if more would be worse.
        solved_for: "error", "clients", "epsilon" or "bits".
        label: the mechanism for people; `name` and `arguments` are for the registry.
        bias: the norm of the bias of the mean, which more clients do not reduce.
        standard_deviation: the standard deviation of the mean, the root of the summed variance.
        total_epsilon_basic: the total ε of a client's rounds, as a sum.
        total_epsilon_optimal: the same for δ, by optimal composition; None without δ.
        explanation: why this mechanism was chosen, and what to watch.
        alternatives: the other allowed mechanisms, the least error first; then those with a public coin.
        wish: the arguments given to `plan`; `terms` are those by which the mechanisms are compared.
        cohorts: the schedule, if people take turns; then `clients` is one cohort, and `rounds` the answers per person.

    Examples:
        >>> found = plan(dim=300, clients=1000, epsilon=3.0)
        >>> found.name, found.feasible, round(found.relative_error, 2)
        ('frameunit', True, 0.48)
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
    wish: Mapping[str, Any]
    terms: Terms
    cohorts: Cohorts | None = None

    def __repr__(self) -> str:
        crowd = f"{self.clients:,} clients of dimension {self.dim:,} at ε = {self.epsilon:g}"
        error = f"error {self.relative_error:.3g} of clip{'' if self.feasible else ', infeasible'}"
        return f"<Plan for {crowd}: {self.label}, {self.bits} bits, {error}>"

    def _repr_html_(self) -> str:
        facts = {
            "mechanism": self.label,
            "bits per message": self.bits,
            "ε per message": f"{self.epsilon:g}",
            "ε of all rounds": f"{self.total_epsilon_basic:g}",
            "error of the mean": f"{self.relative_error:.3g} × clip",
            "verdict": str(self.verdict()),
            "build it with": self.python(),
        }
        return card(f"Plan for {self.clients:,} clients of dimension {self.dim:,}", facts)

    @property
    def error(self) -> float:
        """The root mean square error of the mean of one round: of bias and standard deviation together."""
        return math.hypot(self.bias, self.standard_deviation)

    @property
    def relative_error(self) -> float:
        """The error divided by clip."""
        return self.error / self.clip

    @property
    def signal_to_noise(self) -> float:
        """The length of the clients' mean divided by its error, for all rounds together: √rounds · clip / error.

        In cohorts these are the rounds of the whole training, each with the error of its cohort.
        The mean is as long as clip if all clients hold one vector, and `alike` times that if `alike` is given.
        It is an upper bound: if clients differ, or vectors are shorter than clip, it is less.
        """
        return math.sqrt(self._all_rounds) * self._agreement / self.relative_error

    @property
    def feasible(self) -> bool:
        """Whether the signal-to-noise ratio is at least 1; with a `target_error`, always."""
        return "target_error" in self.wish or self.signal_to_noise >= LEAST_SIGNAL_TO_NOISE

    def verdict(self) -> Verdict:
        """Return whether the task can work, in one line; if it cannot, with what would have to change.

        Examples:
            >>> print(plan(dim=300, clients=1000, epsilon=3.0).verdict())
            feasible: signal-to-noise 2.08, the mean has an error of 0.481 × clip
            >>> refused = plan(dim=300, clients=100, epsilon=3.0, coin="public").verdict()
            >>> print(refused)  # doctest: +NORMALIZE_WHITESPACE
            infeasible: signal-to-noise 0.664, the mean has an error of 1.51 × clip; needs 2.28 times the people, a
            total ε of 4.69 or at most 132 dimensions
            >>> print(refused.remedies[0].commands[0])
            sstq plan --dim 300 --clients 228 --epsilon 3 --coin public
        """
        return Verdict(self.feasible, self.signal_to_noise, self._reason(), () if self.feasible else self._remedies())

    @property
    def total_bytes(self) -> int:
        """The bytes of all messages in all rounds, without the identifiers that a public coin needs."""
        people = self.clients if self.cohorts is None else self.cohorts.people
        return -(-people * self.bits // 8) * self.rounds

    def build(self) -> Mechanism:
        """Create the mechanism, with frame seed 0."""
        return mechanism(self.name, **self._all_arguments())

    def python(self) -> str:
        """Return the line of Python that builds the mechanism."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._all_arguments().items())
        return f"sstq.mechanism({self.name!r}, {arguments})".replace("'", '"')

    def spec(self) -> str:
        """Return the mechanism's JSON, which clients and server share."""
        return self.build().to_json()

    def times(self) -> Times:
        """Measure how long encoding and decoding take on this machine, within about a second if possible."""
        return time_mechanism(self.build(), self.clients)

    @property
    def _all_rounds(self) -> int:
        return self.rounds if self.cohorts is None else self.cohorts.rounds

    @property
    def _agreement(self) -> float:
        return 1.0 if self.terms.alike is None else self.terms.alike

    def _reason(self) -> str:
        error = f"{self.relative_error:.3g} × clip"
        if self._all_rounds == 1:
            return f"signal-to-noise {self.signal_to_noise:.3g}, the mean has an error of {error}"
        return (
            f"signal-to-noise {self.signal_to_noise:.3g} over {self._all_rounds} rounds with an error of {error} each"
        )

    def _remedies(self) -> tuple[Remedy, ...]:
        terms, signal2 = self.terms, self._all_rounds * self._agreement**2

        def works(dim: int, clients: int, epsilon: float) -> bool:
            noise2 = solving.weigh(replace(terms, dim=dim), epsilon, clients)[0].mse
            return signal2 >= LEAST_SIGNAL_TO_NOISE**2 * noise2

        rounds = {"rounds": self._all_rounds} if self._all_rounds > 1 else {}
        return Task("sstq plan", {**self.wish, **rounds}, "dim", works).remedies()

    def _all_arguments(self) -> dict[str, Any]:
        return {"dim": self.dim, "epsilon": self.epsilon, "clip": self.clip, **self.arguments}


@overload
def plan(
    dim: int,
    clients: int,
    epsilon: float,
    *,
    trust: Literal["shuffler"],
    delta: float = ...,
    messages: int = ...,
    bits: int = ...,
    clip: float = ...,
) -> ShuffledPlan: ...


@overload
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
    trust: Literal["local"] = "local",
    server: str = "fast",
    alike: float | None = None,
    participation: Participation | None = None,
) -> Plan: ...


def plan(  # noqa: D417 (the options stand with the overloads)
    dim: int, clients: Any = None, epsilon: Any = None, *, trust: str = "local", **options: Any
) -> Any:
    """Choose a mechanism and its parameters, and solve for what is left out of ε, clients, error and bits.

    The least predicted error within the allowed bits wins; in one family, the shortest message whose squared error is
    within 2 % of the least. With ε, clients and `target_error` all given, the shortest message with that error wins.

    Args:
        dim: d, the length of the vectors.
        clients: n, the clients per round; solved for if `epsilon` and `target_error` are given without it.
        epsilon: the ε per message, 0.01 to 20; or give `rounds` and `total_epsilon`. Solved for if `clients`
            and `target_error` are given without it.
        bits: the maximum bits per message; no limit by default.
        target_error: the root mean square error of the mean to reach, as a fraction of clip.
        rounds: T, the rounds in which one client may take part; by default as many as `total_epsilon` allows, or one.
        total_epsilon: the total ε of all rounds of a client.
        delta: the total δ; with δ > 0 the rounds are composed optimally, otherwise their ε add up.
        clip: vectors longer than this are scaled down to it.
        coin: "private" (default); "public" if both sides have client identifiers and a shared seed, which saves the
            bits of the index; "any" for whichever is better.
        trust: "local" (default) if every message must be private by itself; "shuffler" for a `ShuffledPlan` of (ε, δ)
            behind a shuffler, see `plan_shuffled`, which takes delta, messages, bits and clip.
        server: "fast" (default) for O(1) work per message and one transform per frame; "any" also considers RRSC.
        alike: the cosine of each client's vector with their common direction, 0 to 1, if known; then strata are
            considered.
        participation: in how many of the rounds each person answers, "once" or a number. Then `clients` are all people,
            who take turns in cohorts, `rounds` is the length of the training, and the total is for a person's answers.

    Returns:
        The plan; its `feasible` and `verdict()` say whether the task can work. ValueError if it is impossible, with
        the closest possible values.

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
        >>> found = plan(dim=7_850, clients=6_000, rounds=60, total_epsilon=8.0, participation="once")
        >>> found.clients, found.epsilon, found.total_epsilon_basic, round(found.relative_error, 2)
        (100, 8.0, 8.0, 3.27)
        >>> plan(dim=300, clients=20_000, epsilon=1.0, trust="shuffler", messages=4)
        <ShuffledPlan for 20,000 people of dimension 300 at (1, 1e-06): 4 messages of 30 bits per person, error ...>
    """
    if check_option("trust", trust, ("local", "shuffler")) == "shuffler":
        return plan_shuffled(dim, clients, epsilon, **options)
    return _plan_locally(dim, clients, epsilon, **options)


def _plan_locally(
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
    server: str = "fast",
    alike: float | None = None,
    participation: Participation | None = None,
) -> Plan:
    clip = check_number("clip", clip, 1e-100, 1e100)
    clients = _optional("clients", clients, 1, solving.CLIENTS_MAX, integer=True)
    epsilon = _optional("epsilon", epsilon, solving.EPSILON_MIN, solving.EPSILON_MAX)
    target_error = _optional("target_error", target_error, 1e-9, 1e9)
    rounds = None if rounds is None else check_argument("rounds", rounds)
    total_epsilon = None if total_epsilon is None else check_argument("total_epsilon", total_epsilon)
    delta = check_delta(delta)
    people, cohorts, training = clients, None, rounds
    if participation is not None:
        rounds = answers_of(participation)
        if training is None:
            raise ValueError("rounds must be given with participation: the number of rounds of the whole training")
        cohorts = cohorts_for(1, training, rounds) if clients is None else Cohorts(clients, training, rounds)
        # The smallest cohort, since sizes may differ by one.
        clients = None if clients is None else clients * rounds // training
    terms = Terms(
        dim=check_number("dim", dim, 1, 2**30, integer=True),
        bits=_optional("bits", bits, 1, 4096, integer=True),
        coin=check_option("coin", coin, ("private", "public", "any")),
        server=check_option("server", server, ("fast", "any")),
        alike=_optional("alike", alike, 0, 1),
        slack=_SLACK,
    )
    wish = _given(
        dim=terms.dim,
        clients=people,
        epsilon=epsilon,
        bits=terms.bits,
        target_error=target_error,
        rounds=training,
        total_epsilon=total_epsilon,
        delta=delta or None,
        clip=None if clip == 1.0 else clip,
        coin=None if coin == "private" else terms.coin,
        server=None if server == "fast" else terms.server,
        alike=terms.alike,
        participation=participation,
    )
    allowed = solving.allowed_epsilon(epsilon, rounds, total_epsilon, delta)
    solved_for, allowed, clients, found = _solve(terms, allowed, clients, target_error)
    best, spent, shortest = found[0], found[0].mechanism.epsilon, solved_for == "bits"
    if cohorts is not None and solved_for == "clients":
        cohorts = cohorts_for(clients, cohorts.rounds, cohorts.answers)
    rounds = solving.allowed_rounds(spent, rounds, total_epsilon, delta)
    # A total that was given is known to suffice.
    optimal = min(compose(spent, rounds, delta), total_epsilon or math.inf) if delta else None
    others = [(offer, "") for offer in found[1:]]
    if terms.coin == "private":
        others.append((solving.weigh(replace(terms, coin="public"), allowed, clients)[0], "a public coin"))
    return Plan(
        dim=terms.dim,
        clients=clients,
        epsilon=spent,
        clip=clip,
        rounds=rounds,
        delta=delta,
        solved_for=solved_for,
        label=best.label,
        name=best.mechanism.name,
        arguments=best.arguments,
        bits=best.bits,
        coin=best.mechanism.coin,
        bias=clip * math.sqrt(best.bias2),
        standard_deviation=clip * math.sqrt(best.variance),
        total_epsilon_basic=compose(spent, rounds),
        total_epsilon_optimal=optimal,
        explanation=f"{_reason(terms, found, shortest)} {_price(terms, allowed, clients, best, shortest)}",
        alternatives=tuple(Alternative(o.label, o.bits, clip * math.sqrt(o.mse), needs) for o, needs in others),
        wish=wish,
        terms=terms,
        cohorts=cohorts,
    )


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _optional(name: str, value: Any, low: float, high: float, *, integer: bool = False) -> Any:
    return None if value is None else check_number(name, value, low, high, integer=integer)


def _solve(
    terms: Terms, epsilon: float | None, clients: int | None, target_error: float | None
) -> tuple[str, float, int, list[Offer]]:
    """Return what was solved for, the allowed ε, the clients, and the offers for them."""
    solved_for = "error"
    if clients is None and epsilon is not None and target_error is not None:
        solved_for, clients = "clients", solving.least_clients(terms, epsilon, target_error)
    elif epsilon is None and clients is not None and target_error is not None:
        solved_for, epsilon = "epsilon", solving.least_epsilon(terms, clients, target_error)
    elif epsilon is None or clients is None:
        given = "epsilon= (or rounds= and total_epsilon=), clients= and target_error="
        raise ValueError(f"at least two of {given} must be given")
    elif target_error is not None:
        return "bits", epsilon, clients, solving.least_bits(terms, epsilon, clients, target_error)
    return solved_for, epsilon, clients, solving.weigh(terms, epsilon, clients, thorough=True)


def _reason(terms: Terms, offers: list[Offer], shortest: bool) -> str:
    best = offers[0]
    coin = {"private": " with a private coin", "public": " with a public coin", "any": ""}[terms.coin]
    if shortest:
        return f"{best.label} has the shortest message{coin} with the target error: {_of_clip(best.mse)}."
    within = "" if terms.bits is None else f" within {terms.bits} bits"
    reason = f"{best.label} has the least predicted error{within}{coin}: {_of_clip(best.mse)}"
    others = [offer for offer in offers[1:] if offer.mechanism.name != best.mechanism.name] or offers[1:]
    return f"{reason}; {others[0].label} would have {_of_clip(others[0].mse)}." if others else f"{reason}."


def _price(terms: Terms, epsilon: float, clients: int, best: Offer, shortest: bool) -> str:
    name = best.mechanism.name
    if name == "frameunit":
        return _price_of_frames(terms, epsilon, clients, best, shortest)
    if name == "rrsc":
        work = f"Its server rebuilds {2**best.bits} vectors per message, which is Θ(d·4^{best.bits}) work"
        return f"{work}; FrameUnit with as many bits has a few per cent more error and O(1) work."
    if name == "sstq" and best.mechanism.coin == "public":
        unlike = Strata.of(terms.dim, epsilon, best.arguments["bits"], 0.0).offer(clients)
        rest = "" if unlike is None else f": clients with nothing in common would have {_of_clip(unlike.mse)}"
        return f"It assumes vectors with a cosine of {terms.alike:g} to their common direction{rest}."
    if name == "sstq":
        encoding = f"{best.arguments['steps']} steps over {best.arguments['frame_size']} coefficients"
        return f"It is unbiased in every frame, so more clients always reduce its error, but encoding takes {encoding}."
    return "It is unbiased for every vector, and its server does O(1) work per message."


def _price_of_frames(terms: Terms, epsilon: float, clients: int, best: Offer, shortest: bool) -> str:
    frames, coin, spent = best.arguments.get("frames", 1), best.mechanism.coin, best.mechanism.epsilon
    bias = _of_clip(best.bias2)
    if coin == "private" and frames < best.wanted_frames:
        more = best.bits + (best.wanted_frames // frames).bit_length() - 1
        room = "the target error needs no more frames" if shortest else "more frames do not fit into the bits"
        less = "" if spent == epsilon else f", and only ε = {spent:g} is spent, because more would increase it"
        excess = f"Its bias, {bias}, exceeds {100 * BIAS_SHARE:.0f} % of the error, because {room}{less}"
        return f"{excess}; pass frames={best.wanted_frames} and {more} bits."
    if coin == "public" and best.bits <= min(_RRSC_BITS, most_rrsc_bits(terms.dim)):
        better = 1 - math.sqrt(rrsc(terms.dim, spent, best.bits).variance / clients / best.mse)
        if better > 0:
            work = f"Θ(d·4^{best.bits}) work per message at the server instead of O(1)"
            gained = f"RRSC with as many bits has {100 * better:.1f} % less error, but {work}"
            return f"{gained}; the bias of the frames is {bias}: {_FRESH}."
    if frames > 1 and frames * _MANY_FRAMES > clients:
        return f"{frames} frames keep the bias at {bias}; the server does up to one transform per message."
    spread = "One frame keeps" if frames == 1 else f"{frames} frames keep"
    return f"{spread} the bias at {bias}; {_FRESH}."


def _of_clip(square: float) -> str:
    return f"{math.sqrt(square):.3g} of clip"
