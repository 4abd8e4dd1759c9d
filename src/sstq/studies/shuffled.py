"""The question of one of several categories, for people who trust nobody or a shuffler."""

from sstq.accounting import shuffled_epsilon
from sstq.accounting.bounds import furthest
from sstq.mechanisms import Frequencies

# The largest ε of a message, and the relative precision of the one that is found.
_MOST_EPSILON = 20.0
_PRECISION = 1e-5


def trusted_frequencies(
    categories: int,
    people: int,
    *,
    epsilon: float,
    trust: str,
    delta: float,
    messages: int = 1,
) -> Frequencies:
    """Return the mechanism for a person's total ε, without trust or behind a shuffler.

    Behind a shuffler it is that of the largest local ε whose messages, mixed slot by slot, are (ε, δ)-private.

    Examples:
        >>> trusted_frequencies(2, 10_000, epsilon=1.0, trust="shuffler", delta=1e-6).epsilon > 5
        True
    """
    if trust == "local":
        return Frequencies(categories, epsilon)

    def asked(local: float) -> Frequencies:
        return Frequencies(categories, local, messages=messages)

    def private(local: float) -> bool:
        return shuffled_epsilon(asked(local), people, delta) <= epsilon

    return asked(furthest(private, epsilon / messages, _MOST_EPSILON, _PRECISION))
