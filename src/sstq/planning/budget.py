"""The ε of a round and the ε of all rounds: what a budget leaves for each, and what the rounds cost together."""

from __future__ import annotations

from sstq.accounting import compose, epsilon_per_round, rounds_allowed
from sstq.planning.solving import EPSILON_MAX, EPSILON_MIN

__all__ = ["allowed_epsilon", "allowed_rounds", "together"]


def allowed_epsilon(epsilon: float | None, rounds: int | None, total: float | None, delta: float) -> float | None:
    """The ε that a round may spend; None if neither it nor a total for a number of rounds is given.

    Examples:
        >>> allowed_epsilon(None, 4, 8.0, 0.0), allowed_epsilon(1.0, None, None, 0.0)
        (2.0, 1.0)
    """
    if total is None or rounds is None:
        return epsilon
    each = min(EPSILON_MAX, epsilon_per_round(rounds, total, delta))
    if each < EPSILON_MIN:
        raise ValueError(
            f"total_epsilon = {total:g} leaves {each:.3g} for each of {rounds} rounds, and mechanisms take at least "
            f"{EPSILON_MIN:g}; the closest is rounds = {rounds_allowed(EPSILON_MIN, total, delta)}"
        )
    if epsilon is None:
        return each
    fitting = rounds_allowed(epsilon, total, delta)
    if fitting < rounds:
        raise ValueError(
            f"epsilon = {epsilon:g} in {rounds} rounds is {compose(epsilon, rounds, delta):.6g} together, above "
            f"total_epsilon = {total:g}; the closest are epsilon = {each:.6g}, or rounds = {fitting}"
        )
    return epsilon


def allowed_rounds(epsilon: float, rounds: int | None, total: float | None, delta: float) -> int:
    """The number of rounds: as given, else as many as the total has room for, else one.

    Examples:
        >>> allowed_rounds(0.5, None, 8.0, 0.0), allowed_rounds(0.5, None, None, 0.0)
        (16, 1)
    """
    if rounds is not None or total is None:
        return rounds or 1
    fitting = rounds_allowed(epsilon, total, delta)
    if not fitting:
        raise ValueError(f"epsilon = {epsilon:g} is above total_epsilon = {total:g}: not even one round fits")
    return fitting


def together(epsilon: float, rounds: int, total: float | None, delta: float) -> tuple[float, float | None]:
    """What the rounds cost a client that takes part in all: by the sum, and for δ > 0 by optimal composition.

    A total that was given is known to suffice, so that the second is at most that.

    Examples:
        >>> together(0.5, 4, None, 0.0)
        (2.0, None)
        >>> together(0.15649885235533673, 100, 8.0, 1e-6)[1]
        8.0
    """
    optimal = compose(epsilon, rounds, delta) if delta else None
    return compose(epsilon, rounds), optimal if optimal is None or total is None else min(optimal, total)
