"""The question of one of several categories behind a shuffler."""

from sstq.accounting import shuffled_epsilon
from sstq.accounting.bounds import furthest
from sstq.mechanisms import Frequencies

# The largest ε of a message, and the relative precision of the one that is found.
_MOST_EPSILON = 20.0
_PRECISION = 1e-5


def shuffled_frequencies(
    categories: int, epsilon: float, delta: float, people: int, messages: int = 1
) -> Frequencies:
    """Return the mechanism of the largest local ε whose messages, mixed slot by slot, are (ε, δ)-private.

    Examples:
        >>> shuffled_frequencies(2, 1.0, 1e-6, people=10_000).epsilon > 5
        True
    """

    def asked(local: float) -> Frequencies:
        return Frequencies(categories, local, messages=messages)

    def private(local: float) -> bool:
        return shuffled_epsilon(asked(local), people, delta) <= epsilon

    return asked(furthest(private, epsilon / messages, _MOST_EPSILON, _PRECISION))
