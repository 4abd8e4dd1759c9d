"""`plan`: chooses the mechanism for a task, solves for what is left out, and predicts error and cost."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Any, Literal, overload

from sstq.accounting import compose, epsilon_per_round, rounds_allowed
from sstq.accounting.bounds import check_delta
from sstq.cards import card
from sstq.checks import RANGES, ArgumentError, check_argument, check_number, check_option
from sstq.federated.cohorts import Cohorts, Participation, answers_of
from sstq.mechanisms import Mechanism
from sstq.planning.candidates import COMPARED_DIM_MAX, Candidate, candidates, least_mse
from sstq.planning.comparison import Times, time_mechanism
from sstq.planning.shuffled_draw import MESSAGE_BITS
from sstq.planning.shuffler import USUAL_DELTA, ShuffledPlan, plan_shuffled
from sstq.planning.verdict import LEAST_SIGNAL_TO_NOISE, Verdict, find_remedies, three_digits, whole_numbers

EPSILON_MIN, EPSILON_MAX, _ = RANGES["epsilon"]
CLIENTS_MAX = 10**12
_SLACK = 0.02  # the share of the squared error that is given up for a shorter message
# Errors that differ by less count as equal, so that a predicted error can be used as a target.
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class Request:
    """The arguments of `plan`, checked."""

    dim: int
    clients: int | None
    epsilon: float | None
    bits: int | None
    target_error: float | None
    rounds: int | None
    total_epsilon: float | None
    delta: float
    clip: float
    coin: str
    participation: Participation | None

    def __post_init__(self) -> None:
        check_argument("dim", self.dim)
        check_argument("clip", self.clip)
        check_delta(self.delta)
        check_option("coin", self.coin, ("private", "public", "any"))
        ranges: dict[str, tuple[float, float, bool]] = {
            "clients": (1, CLIENTS_MAX, True),
            "epsilon": RANGES["epsilon"],
            "bits": (1, 4096, True),
            "target_error": (1e-9, 1e9, False),
            "rounds": RANGES["rounds"],
            "total_epsilon": RANGES["total_epsilon"],
        }
        for name, (low, high, integer) in ranges.items():
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), low, high, integer=integer)
        if self.participation is not None and self.rounds is None:
            raise ArgumentError("rounds", "must be given with participation: the rounds of the whole training")

    @property
    def answers(self) -> int | None:
        """The rounds that one person takes part in; None if that follows from the total ε."""
        return self.rounds if self.participation is None else answers_of(self.participation)

    def cohort(self, people: int) -> int:
        """The clients of the smallest round if so many people take part."""
        if self.participation is None:
            return people
        return people * answers_of(self.participation) // (self.rounds or 1)

    def message_epsilon(self, total: float | None) -> float | None:
        """The ε that one message may spend within a total; None if that has to be solved for."""
        if total is None or self.answers is None:
            return self.epsilon
        each = min(EPSILON_MAX, epsilon_per_round(self.answers, total, self.delta))
        if each < EPSILON_MIN:
            raise ArgumentError(
                "total_epsilon",
                f"leaves {each:.3g} for each of {self.answers} rounds, but mechanisms need at least {EPSILON_MIN:g}; "
                f"pass rounds={rounds_allowed(EPSILON_MIN, total, self.delta)}",
            )
        if self.epsilon is None:
            return each
        if (fitting := rounds_allowed(self.epsilon, total, self.delta)) < self.answers:
            spent = compose(self.epsilon, self.answers, self.delta)
            raise ArgumentError(
                "epsilon",
                f"must be at most {each:.6g} for {self.answers} rounds within total_epsilon = {total:g}, got "
                f"{self.epsilon:g}, which is {spent:.6g} in total; or pass rounds={fitting}",
            )
        return self.epsilon

    def least_mse(self, epsilon: float, clients: int, dim: int | None = None) -> float:
        """The least error of a mean of so many clients, over clip²."""
        return least_mse(dim or self.dim, epsilon, clients, self.bits, self.coin, slack=_SLACK)

    def candidates(
        self, epsilon: float, clients: int, bits: int | None = None, slack: float = _SLACK
    ) -> list[Candidate]:
        """The allowed mechanisms, the least error first; ArgumentError if the bits are too few for any."""
        found = candidates(self.dim, epsilon, clients, bits or self.bits, self.coin, slack=slack)
        if not found:
            index = (self.dim - 1).bit_length()
            raise ArgumentError(
                "bits",
                f"must be at least {index + 1} for a private coin at dim = {self.dim}, got {self.bits}: the index "
                f"alone takes {index}; or pass coin='public', for which 1 bit is enough",
            )
        return found


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
    averaged over frame seeds.

    Attributes:
        request: the arguments given to `plan`.
        mechanism: the mechanism, with frame seed 0. Its ε may be less than allowed, if more would be worse.
        label: the mechanism for people.
        clients: n, the clients per round.
        rounds: the rounds that one person takes part in.
        solved_for: "error", "clients", "epsilon" or "bits".
        bias: the norm of the bias of the mean, which more clients do not reduce.
        standard_deviation: the standard deviation of the mean, the root of the summed variance.
        total_epsilon_basic: the total ε of a person's rounds, as a sum.
        total_epsilon_optimal: the same for δ, by optimal composition; None without δ.
        alternatives: the other allowed mechanisms, the least error first; then the best with a public coin.
        cohorts: the schedule, if people take turns; then `clients` is one cohort.

    Examples:
        >>> found = plan(dim=300, clients=1000, epsilon=3.0)
        >>> found.mechanism.name, found.feasible, round(found.relative_error, 2)
        ('frameunit', True, 0.48)
    """

    request: Request
    mechanism: Mechanism
    label: str
    clients: int
    rounds: int
    solved_for: str
    bias: float
    standard_deviation: float
    total_epsilon_basic: float
    total_epsilon_optimal: float | None
    explanation: str
    alternatives: tuple[Alternative, ...]
    cohorts: Cohorts | None = None

    def __repr__(self) -> str:
        crowd = f"{self.clients:,} clients of dimension {self.mechanism.dim:,} at ε = {self.epsilon:g}"
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
        return card(f"Plan for {self.clients:,} clients of dimension {self.mechanism.dim:,}", facts)

    @property
    def epsilon(self) -> float:
        """The ε of one message."""
        return self.mechanism.epsilon

    @property
    def bits(self) -> int:
        """The bits of one message."""
        return self.mechanism.message_bits

    @property
    def error(self) -> float:
        """The root mean square error of the mean of one round: of bias and standard deviation together."""
        return math.hypot(self.bias, self.standard_deviation)

    @property
    def relative_error(self) -> float:
        """The error divided by clip."""
        return self.error / self.request.clip

    @property
    def all_rounds(self) -> int:
        """The rounds of the whole training."""
        return self.rounds if self.cohorts is None else self.cohorts.rounds

    @property
    def signal_to_noise(self) -> float:
        """The length of the clients' mean divided by its error, for all rounds together: √rounds · clip / error.

        The mean is as long as clip if all clients hold one vector. So it is an upper bound.
        """
        return math.sqrt(self.all_rounds) / self.relative_error

    @property
    def feasible(self) -> bool:
        """Whether the signal-to-noise ratio is at least 1; with a `target_error`, always."""
        return self.request.target_error is not None or self.signal_to_noise >= LEAST_SIGNAL_TO_NOISE

    def verdict(self) -> Verdict:
        """Return whether the task can work, in one line; if it cannot, with the numbers that would suffice.

        Examples:
            >>> print(plan(dim=300, clients=1000, epsilon=3.0).verdict())
            feasible: signal-to-noise 2.08, the mean has an error of 0.481 × clip
            >>> print(plan(dim=300, clients=100, epsilon=3.0, coin="public").verdict())
            infeasible: signal-to-noise 0.664, the mean has an error of 1.51 × clip; needs 228 people, ε = 4.69 or at
            most 132 dimensions
        """
        error = f"{self.relative_error:.3g} × clip"
        reason = f"signal-to-noise {self.signal_to_noise:.3g}, the mean has an error of {error}"
        if self.all_rounds > 1:
            over = f"over {self.all_rounds} rounds with an error of {error} each"
            reason = f"signal-to-noise {self.signal_to_noise:.3g} {over}"
        if self.feasible:
            return Verdict(True, self.signal_to_noise, reason)
        request = self.request
        people = self.clients if self.cohorts is None else self.cohorts.people
        allowed = request.message_epsilon(request.total_epsilon) or self.epsilon

        def works(dim: int, people: int, epsilon: float) -> bool:
            cohort = request.cohort(people)
            return cohort > 0 and request.least_mse(epsilon, cohort, dim) * LEAST_SIGNAL_TO_NOISE**2 <= self.all_rounds

        def total_works(total: float) -> bool:
            answers = request.answers or 1
            return works(request.dim, people, min(EPSILON_MAX, epsilon_per_round(answers, total, request.delta)))

        # The squared error grows about with the dimension, so no more than twice this many can suffice.
        largest = min(request.dim, 100 + 2 * math.ceil(request.dim * self.signal_to_noise**2))
        searches: dict[str, Any] = {
            "clients": (whole_numbers(people, CLIENTS_MAX), lambda n: works(request.dim, n, allowed)),
            "epsilon": (three_digits(allowed, EPSILON_MAX), lambda epsilon: works(request.dim, people, epsilon)),
            "dim": (whole_numbers(1, largest)[::-1], lambda dim: works(dim, people, allowed)),
        }
        if request.total_epsilon is not None:
            most = min(RANGES["total_epsilon"][1], EPSILON_MAX * (request.answers or 1))
            searches["epsilon"] = (three_digits(request.total_epsilon, most), total_works)
        named = {"total_epsilon" if n == "epsilon" and request.total_epsilon else n: s for n, s in searches.items()}
        return Verdict(False, self.signal_to_noise, reason, find_remedies(**named))

    @property
    def total_bytes(self) -> int:
        """The bytes of all messages in all rounds, without the identifiers that a public coin needs."""
        people = self.clients if self.cohorts is None else self.cohorts.people
        return -(-people * self.bits // 8) * self.rounds

    def build(self) -> Mechanism:
        """Return the mechanism."""
        return self.mechanism

    def python(self) -> str:
        """Return the line of Python that builds the mechanism."""
        return f"sstq.{self.mechanism!r}"

    def spec(self) -> str:
        """Return the mechanism's JSON, which clients and server share."""
        return self.mechanism.to_json()

    def times(self) -> Times:
        """Measure how long encoding a vector and adding a message take on this machine."""
        return time_mechanism(self.mechanism, self.clients)


@overload
def plan(
    dim: int, clients: int, epsilon: float, *, trust: Literal["shuffler"], delta: float = ..., clip: float = ...
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
    delta: float | None = None,
    clip: float = 1.0,
    coin: str = "private",
    trust: Literal["local"] = "local",
    participation: Participation | None = None,
) -> Plan: ...


def plan(
    dim: int,
    clients: Any = None,
    epsilon: Any = None,
    *,
    bits: int | None = None,
    target_error: float | None = None,
    rounds: int | None = None,
    total_epsilon: float | None = None,
    delta: float | None = None,
    clip: float = 1.0,
    coin: str = "private",
    trust: str = "local",
    participation: Participation | None = None,
) -> Plan | ShuffledPlan:
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
        delta: the total δ. With δ > 0 the rounds are composed optimally, otherwise their ε add up. 1e-6 by default
            behind a shuffler, otherwise 0.
        clip: vectors longer than this are scaled down to it.
        coin: "private" (default); "public" if both sides have client identifiers and a shared seed, which saves the
            bits of the index; "any" for whichever is better.
        trust: "local" (default) if every message must be private by itself; "shuffler" for a `ShuffledPlan` of (ε, δ)
            behind a shuffler with `delta`, `bits` and `clip`. `plan_shuffled` has more options.
        participation: in how many of the rounds each person answers, "once" or a number. Then `clients` are all people,
            who take turns in cohorts, `rounds` is the length of the training, and the total is for a person's answers.

    Returns:
        The plan; its `feasible` and `verdict()` say whether the task can work. ValueError if it is impossible, with
        the closest possible values.

    Examples:
        >>> found = plan(dim=25_450, clients=100_000, epsilon=3.0, bits=20)
        >>> found.bits, round(found.relative_error, 2), found.total_bytes
        (20, 0.46, 250000)
        >>> print(found.python())
        sstq.FrameUnit(dim=25450, epsilon=3.0, frames=16)
        >>> plan(dim=25_450, epsilon=3.0, target_error=0.5).clients
        77412
        >>> plan(dim=25_450, clients=100_000, target_error=0.5).epsilon
        2.63969
        >>> found = plan(dim=7_850, clients=6_000, rounds=60, total_epsilon=8.0, participation="once")
        >>> found.clients, found.epsilon, found.total_epsilon_basic, round(found.relative_error, 2)
        (100, 8.0, 8.0, 3.27)
    """
    if check_option("trust", trust, ("local", "shuffler")) == "shuffler":
        local = {"target_error": target_error, "rounds": rounds, "total_epsilon": total_epsilon}
        for name, value in (local | {"participation": participation}).items():
            if value is not None:
                raise ArgumentError(name, f"must be left out with trust='shuffler', got {value!r}")
        check_option("coin", coin, ("private",))
        usual_delta, usual_bits = USUAL_DELTA if delta is None else delta, MESSAGE_BITS if bits is None else bits
        return plan_shuffled(dim, clients, epsilon, usual_delta, bits=usual_bits, clip=clip)
    return _plan(
        Request(
            dim, clients, epsilon, bits, target_error, rounds, total_epsilon, delta or 0.0, clip, coin, participation
        )
    )


def _plan(request: Request) -> Plan:
    cohorts, clients = None, request.clients
    if request.participation is not None and request.rounds is not None:
        answers = answers_of(request.participation)
        cohorts = Cohorts(clients or -(-request.rounds // answers), request.rounds, answers)
        # The smallest cohort, since sizes may differ by one.
        clients = None if clients is None else request.cohort(clients)
    solved_for, allowed, clients, found = _solve(request, request.message_epsilon(request.total_epsilon), clients)
    best, spent = found[0], found[0].mechanism.epsilon
    if cohorts is not None and solved_for == "clients":
        cohorts = Cohorts(-(-clients * cohorts.rounds // cohorts.answers), cohorts.rounds, cohorts.answers)
    rounds = request.answers or 1
    if request.answers is None and request.total_epsilon is not None:
        rounds = rounds_allowed(spent, request.total_epsilon, request.delta)
        if not rounds:
            raise ArgumentError(
                "epsilon", f"must be at most total_epsilon = {request.total_epsilon:g}, got {spent:g}: no round fits"
            )
    others = [(one, "") for one in found[1:]]
    if request.coin == "private" and request.dim <= COMPARED_DIM_MAX:
        others.append((candidates(request.dim, allowed, clients, request.bits, "public")[0], "a public coin"))
    clip = request.clip
    return Plan(
        request=request,
        mechanism=best.mechanism if clip == 1.0 else best.mechanism.replace(clip=clip),
        label=best.label,
        clients=clients,
        rounds=rounds,
        solved_for=solved_for,
        bias=clip * math.sqrt(best.bias2),
        standard_deviation=clip * math.sqrt(best.variance),
        total_epsilon_basic=compose(spent, rounds),
        # A total that was given is known to suffice.
        total_epsilon_optimal=min(compose(spent, rounds, request.delta), request.total_epsilon or math.inf)
        if request.delta
        else None,
        explanation=_explanation(request, found, solved_for, allowed),
        alternatives=tuple(Alternative(o.label, o.bits, clip * math.sqrt(o.mse), needs) for o, needs in others),
        cohorts=cohorts,
    )


def _solve(request: Request, epsilon: float | None, clients: int | None) -> tuple[str, float, int, list[Candidate]]:
    """Return what was solved for, the allowed ε, the clients, and the candidates for them."""
    target = request.target_error
    solved_for = "error"
    if clients is None and epsilon is not None and target is not None:
        solved_for, clients = "clients", _least_clients(request, epsilon, target)
    elif epsilon is None and clients is not None and target is not None:
        solved_for, epsilon = "epsilon", _least_epsilon(request, clients, target)
    elif epsilon is None or clients is None:
        given = "epsilon= (or rounds= and total_epsilon=), clients= and target_error="
        raise ValueError(f"at least two of {given} must be given")
    elif target is not None:
        return "bits", epsilon, clients, _least_bits(request, epsilon, clients, target)
    return solved_for, epsilon, clients, request.candidates(epsilon, clients)


def _least_clients(request: Request, epsilon: float, target: float) -> int:
    """The least number of clients whose mean has the target error."""
    enough, least = _ROUNDING * target**2, request.candidates(epsilon, CLIENTS_MAX)[0].mse
    if least > enough:
        raise ArgumentError(
            "target_error",
            f"must be at least {math.sqrt(least):.4g} of clip at epsilon = {epsilon:g}, even for {CLIENTS_MAX:.0e} "
            f"clients, got {target:g}",
        )
    works = bisect_left(range(1, CLIENTS_MAX + 1), True, key=lambda n: request.least_mse(epsilon, n) <= enough)
    return works + 1


def _least_epsilon(request: Request, clients: int, target: float) -> float:
    """The least ε for which the mean has the target error, rounded up to six digits."""
    from scipy.optimize import brentq

    def excess(log_epsilon: float) -> float:
        epsilon = min(max(math.exp(log_epsilon), EPSILON_MIN), EPSILON_MAX)
        return math.log(request.least_mse(epsilon, clients) / (_ROUNDING * target**2))

    request.candidates(EPSILON_MAX, clients)  # refuses too few bits
    low, high = math.log(EPSILON_MIN), math.log(EPSILON_MAX)
    if excess(low) <= 0:
        return EPSILON_MIN
    if excess(high) > 0:
        _refuse_target(request, EPSILON_MAX, clients, target)
    root = brentq(excess, low, high, xtol=1e-7, rtol=1e-7)
    six_digits = Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float
    found = float(six_digits(math.exp(root)))
    while excess(math.log(found)) > 0 and found < EPSILON_MAX:  # the error may jump there, or be found from below
        found = float(six_digits(found * (1 + 1e-5)))
    return min(found, EPSILON_MAX)


def _least_bits(request: Request, epsilon: float, clients: int, target: float) -> list[Candidate]:
    """The candidates within the fewest bits that have the target error, the best first."""
    enough, found = _ROUNDING * target**2, request.candidates(epsilon, clients, slack=0.0)
    if found[0].mse > enough:
        _refuse_target(request, epsilon, clients, target)
    # One after the other: the number of frames is rounded, so that errors may be out of order.
    for bits in range(1, min(one.bits for one in found if one.mse <= enough)):
        within = candidates(request.dim, epsilon, clients, bits, request.coin)
        if within and within[0].mse <= enough:
            return within
    most = min(one.bits for one in found if one.mse <= enough)
    return request.candidates(epsilon, clients, bits=most, slack=0.0)


def _refuse_target(request: Request, epsilon: float, clients: int, target: float) -> None:
    least = math.sqrt(request.least_mse(epsilon, clients))
    try:
        more = f"; {_least_clients(request, epsilon, target)} clients would have it"
    except ArgumentError:
        more = ""
    raise ArgumentError(
        "target_error",
        f"must be at least {least:.4g} of clip for clients = {clients} at epsilon = {epsilon:g}, got {target:g}{more}",
    )


def _explanation(request: Request, found: list[Candidate], solved_for: str, allowed: float) -> str:
    """Why this mechanism was chosen, and what to watch."""
    best, spent = found[0], found[0].mechanism.epsilon
    what = "the shortest message with the target error" if solved_for == "bits" else "the least predicted error"
    within = "" if request.bits is None else f" within {request.bits} bits"
    chosen = f"{best.label} has {what}{within}: {math.sqrt(best.mse):.3g} of clip."
    if best.mechanism.name != "frameunit":
        return f"{chosen} It is unbiased for every vector."
    frames, bias = best.frames, f"{math.sqrt(best.bias2):.3g} of clip"
    if best.mechanism.coin == "private" and frames < best.wanted_frames:
        more = best.bits + (best.wanted_frames // frames).bit_length() - 1
        less = "" if spent == allowed else f" Only ε = {spent:g} is spent, because more would increase the bias."
        return f"{chosen} The bias of its frames is {bias}; with {more} bits it would be negligible.{less}"
    return f"{chosen} The bias of its frames is {bias}; use a fresh frame_seed every round, so that it averages out."
