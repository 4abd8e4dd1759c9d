"""`plan`: chooses the mechanism for a task, and solves for what is left out of ε, clients, error and bits."""

from __future__ import annotations

import math
from bisect import bisect_left
from decimal import ROUND_CEILING, Context
from typing import Any, cast

from sstq.checks import ArgumentError
from sstq.mechanisms import FrameUnit, GroupUnit
from sstq.planning.candidates import Candidate, best_candidate
from sstq.planning.plans import Plan
from sstq.planning.requests import (
    CLIENTS_MAX,
    EPSILON_MAX,
    EPSILON_MIN,
    FIRST_DIRECTIONS,
    SLACK,
    Request,
    usual_directions,
)
from sstq.planning.shuffled_draw import (
    MESSAGE_BITS,
    MOST_MESSAGES,
    ShuffleBudget,
    fewest_messages,
    shuffled_mechanism,
)

_SHUFFLER_DELTA = 1e-6
# Errors that differ by less count as equal, so that a predicted error can be used as a target.
_ROUNDING = 1 + 1e-9


def plan(
    dim: int,
    clients: int | None = None,
    epsilon: float | None = None,
    *,
    bits: int | None = None,
    target_error: float | None = None,
    rounds: int = 1,
    delta: float | None = None,
    clip: float = 1.0,
    mean_norm: float | None = None,
    trust: str = "local",
    classes: int | None = None,
) -> Plan:
    """Choose a mechanism and its parameters, and solve for what is left out of ε, clients, error and bits.

    The least predicted error within the allowed bits wins; in one family, the shortest message whose squared error is
    within 2 % of the least. With ε, clients and `target_error` all given, the shortest message with that error wins.

    Args:
        dim: d, the length of the vectors.
        clients: n, the people; computed if `epsilon` and `target_error` are given without it.
        epsilon: the total ε per person, of all rounds; 0.01 to 20 per message. Solved for if `clients` and
            `target_error` are given without it.
        bits: the maximum bits per message; no limit by default, 32 behind a shuffler.
        target_error: the root mean square error of the mean to reach, as a fraction of clip.
        rounds: T, the rounds of the task, in each of which every person takes part.
        delta: the total δ. With δ > 0 the rounds are composed optimally, otherwise their ε add up. 1e-6 by default
            behind a shuffler, otherwise 0.
        clip: vectors longer than this are scaled down to it.
        mean_norm: how long you expect the mean to be, for the verdict; by default as long as clip.
        trust: "local" (default) if every message must be private by itself; "shuffler" for people who trust one, but
            not the server. It mixes the messages of each slot and drops all metadata; then ε and δ are those of central
            differential privacy, for people who differ in one person's vector. Count only people who are sure to answer
            honestly. The plan has 16 messages per person, or half as many as long as that adds at most 2 % squared
            error; `shuffled_mechanism` takes any number.
        classes: the number of classes, for a classifier to which every person contributes once; `dim` is then the
            number of features, of norm 1. It is feasible if a class mean is at least as long as its noise, along the
            directions that are sent; `Plan.useful_below`, `Plan.useless_above` and `Plan.chance` say how likely it is
            better than guessing.

    Returns:
        The plan; its `feasible` and `verdict()` say whether the task can work. ValueError if it is impossible, with
        the closest possible values.

    Examples:
        >>> best = plan(dim=25_450, clients=100_000, epsilon=3.0, bits=20)
        >>> best.bits, round(best.relative_error, 2), best.total_bytes
        (20, 0.46, 250000)
        >>> print(best.python())
        sstq.FrameUnit(dim=25450, epsilon=3.0, frames=16)
        >>> plan(dim=25_450, epsilon=3.0, target_error=0.5).clients
        77412
        >>> plan(dim=25_450, clients=100_000, target_error=0.5).epsilon
        2.63969
        >>> best = plan(dim=100, clients=10_000, epsilon=1.0, delta=1e-6, trust="shuffler")
        >>> best.mechanism.messages, best.bits, round(best.relative_error, 3), round(best.mechanism.bundle_epsilon)
        (16, 28, 0.02, 53)
        >>> round(best.local_error, 2), round(best.central_error, 4)
        (0.25, 0.0084)
        >>> best = plan(classes=10, dim=441, clients=59_000, epsilon=3.0)
        >>> best.mechanism.dim, round(best.noise, 4), best.feasible
        (45, 0.031, True)
    """
    usual_delta = _SHUFFLER_DELTA if trust == "shuffler" else 0.0
    total_delta = usual_delta if delta is None else delta
    options = (bits, target_error, rounds, total_delta, clip, mean_norm, trust, classes)
    request = Request(dim, clients, epsilon, *options)
    return _plan_once(request) if request.once else _solve(request)


def _plan_once(request: Request) -> Plan:
    """The plan of one round of given people and ε: behind a shuffler, or of a classifier."""
    for name in ("clients", "epsilon"):
        if getattr(request, name) is None:
            raise ArgumentError(
                name, "must be given with trust='shuffler' or classes, got None"
            )
    clients = cast("int", request.clients)
    classes = request.classes
    dim = request.dim
    if classes is not None:
        first = _mechanism(request, min(dim, FIRST_DIRECTIONS))
        dim = usual_directions(
            classes * first.typical_error(clients).total / first.dim, dim
        )
    mechanism = _mechanism(request, dim)
    error = mechanism.typical_error(clients)
    many = mechanism.messages
    label = "FrameUnit" if classes is None else f"GroupUnit, {classes} groups"
    if request.trust == "shuffler":
        label = f"{label}, {many} message{'s' * (many > 1)} per person"
    return Plan(
        request=request,
        mechanism=mechanism,
        label=label,
        clients=clients,
        bias=math.sqrt(error.bias2),
        standard_deviation=math.sqrt(error.variance),
    )


def _mechanism(request: Request, dim: int) -> FrameUnit | GroupUnit:
    clients = cast("int", request.clients)
    epsilon = cast("float", request.epsilon)
    groups = request.classes
    if request.trust == "local":
        return GroupUnit(dim, epsilon, groups=cast("int", groups), clients=clients)
    messages = fewest_messages(
        ShuffleBudget(epsilon, request.delta, clients, MOST_MESSAGES), groups or 1
    )
    options: dict[str, Any] = {
        "groups": groups,
        "bits": request.bits or MESSAGE_BITS,
        "clip": request.clip,
    }
    return shuffled_mechanism(
        dim, epsilon, request.delta, clients, messages=messages, **options
    )


def _solve(request: Request) -> Plan:
    clients = request.clients
    target = request.target_error
    epsilon = (
        None if request.epsilon is None else request.message_epsilon(request.epsilon)
    )
    if sum(given is None for given in (epsilon, clients, target)) > 1:
        raise ValueError(
            "at least two of epsilon=, clients= and target_error= must be given"
        )
    solved_for = "error" if target is None else "bits"
    if epsilon is None:
        solved_for = "epsilon"
        epsilon = _least_epsilon(request, cast("int", clients))
    if clients is None:
        solved_for = "clients"
        clients = _least_clients(request, epsilon)
    best = (_least_bits if solved_for == "bits" else _best)(request, epsilon, clients)
    return Plan(
        request=request,
        mechanism=best.build(request.clip),
        label=best.label,
        clients=clients,
        bias=request.clip * math.sqrt(best.error.bias2),
        standard_deviation=request.clip * math.sqrt(best.error.variance),
        solved_for=solved_for,
        explanation=_explanation(request, best, solved_for, epsilon),
    )


def _enough(request: Request) -> float:
    return _ROUNDING * (request.target_error or 0.0) ** 2


def _best(
    request: Request, epsilon: float, clients: int, slack: float = SLACK
) -> Candidate:
    best = best_candidate(request.dim, epsilon, clients, request.bits, slack)
    if best is None:
        index = (request.dim - 1).bit_length()
        raise ArgumentError(
            "bits",
            f"must be at least {index + 1} for dim = {request.dim}, got {request.bits}: the index alone takes {index}",
        )
    return best


def _least_clients(request: Request, epsilon: float) -> int:
    """The least number of clients whose mean has the target error."""
    if (least := _best(request, epsilon, CLIENTS_MAX).mse) > _enough(request):
        raise ArgumentError(
            "target_error",
            f"must be at least {math.sqrt(least):.4g} of clip at epsilon = {epsilon:g}, even for {CLIENTS_MAX:.0e} "
            f"clients, got {request.target_error:g}",
        )
    many = range(1, CLIENTS_MAX + 1)
    return many[
        bisect_left(
            many,
            True,
            key=lambda clients: (
                _best(request, epsilon, clients).mse <= _enough(request)
            ),
        )
    ]


def _least_epsilon(request: Request, clients: int) -> float:
    """The least ε of a message for which the mean has the target error, rounded up to six digits."""
    from scipy.optimize import brentq

    def excess(log_epsilon: float) -> float:
        epsilon = min(max(math.exp(log_epsilon), EPSILON_MIN), EPSILON_MAX)
        return math.log(_best(request, epsilon, clients).mse / _enough(request))

    low = math.log(EPSILON_MIN)
    high = math.log(EPSILON_MAX)
    if excess(high) > 0:
        _refuse_target(request, EPSILON_MAX, clients)
    if excess(low) <= 0:
        return EPSILON_MIN
    root = brentq(excess, low, high, xtol=1e-7, rtol=1e-7)
    six_digits = Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float
    least = float(six_digits(math.exp(root)))
    # the error may jump there, or be found from below
    while excess(math.log(least)) > 0 and least < EPSILON_MAX:
        least = float(six_digits(least * (1 + 1e-5)))
    return min(least, EPSILON_MAX)


def _least_bits(request: Request, epsilon: float, clients: int) -> Candidate:
    """The best mechanism within the fewest bits that have the target error."""
    widest = _best(request, epsilon, clients, slack=0.0)
    if widest.mse > _enough(request):
        _refuse_target(request, epsilon, clients)
    # One after the other: the number of frames is rounded, so that errors may be out of order.
    for bits in range(1, widest.bits):
        within = best_candidate(request.dim, epsilon, clients, bits)
        if within is not None and within.mse <= _enough(request):
            return within
    return widest


def _refuse_target(request: Request, epsilon: float, clients: int) -> None:
    least = math.sqrt(_best(request, epsilon, clients).mse)
    try:
        more = f"; {_least_clients(request, epsilon)} clients would have it"
    except ArgumentError:
        more = ""
    raise ArgumentError(
        "target_error",
        f"must be at least {least:.4g} of clip for clients = {clients} at epsilon = {epsilon:g}, got "
        f"{request.target_error:g}{more}",
    )


def _explanation(
    request: Request, best: Candidate, solved_for: str, allowed: float
) -> str:
    """Why this mechanism was chosen, and what to watch."""
    what = (
        "the shortest message with the target error"
        if solved_for == "bits"
        else "the least predicted error"
    )
    within = "" if request.bits is None else f" within {request.bits} bits"
    chosen = f"{best.label} has {what}{within}: {math.sqrt(best.mse):.3g} of clip."
    if not best.error.bias2:
        return f"{chosen} It is unbiased for every vector."
    bias = f"{math.sqrt(best.error.bias2):.3g} of clip"
    spent = best.options["epsilon"]
    if best.frames < best.wanted_frames:
        more = best.bits + (best.wanted_frames // best.frames).bit_length() - 1
        less = (
            ""
            if spent == allowed
            else f" Only ε = {spent:g} is spent, because more would increase the bias."
        )
        return f"{chosen} The bias of its frames is {bias}; with {more} bits it would be negligible.{less}"
    return f"{chosen} The bias of its frames is {bias}; use a fresh frame_seed every round, so that it averages out."
