"""What the planner weighs: terms that hold throughout, families of mechanisms, and what each offers to n clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Family", "Offer", "Terms", "Unbiased", "fewest_bits"]


@dataclass(frozen=True)
class Terms:
    """What is given and does not change while ε, clients or bits are solved for.

    Attributes:
        dim: d.
        bits: the most bits of a message, or None.
        coin: "private", "public" or "any".
        server: "fast" for O(1) work a message, or "any".
        alike: the cosine of each client's vector with their common direction, or None if nothing is known.
        slack: the share of the squared error that may be given up for fewer bits.
    """

    dim: int
    bits: int | None
    coin: str
    server: str
    alike: float | None
    slack: float

    def allows(self, bits: int) -> bool:
        """Whether a message may be so long."""
        return self.bits is None or bits <= self.bits


@dataclass(frozen=True)
class Offer:
    """One mechanism for n clients who all hold a typical vector of norm 1, and what it is predicted to do.

    Attributes:
        label: what it is, for people.
        name: in the registry.
        arguments: of the mechanism, besides dim, epsilon and clip.
        epsilon: ε that it spends, which may be less than is allowed.
        bits: of one message.
        coin: "private" or "public".
        bias2: the squared bias of the mean.
        variance: of the mean.
        wanted_frames: of FrameUnit, the frames that would make the bias negligible.
    """

    label: str
    name: str
    arguments: Mapping[str, Any]
    epsilon: float
    bits: int
    coin: str
    bias2: float
    variance: float
    wanted_frames: int = 1

    @property
    def mse(self) -> float:
        """The mean squared error of the mean."""
        return self.bias2 + self.variance


class Family(Protocol):
    """Mechanisms of one kind, of which the number of clients decides."""

    def offer(self, clients: int) -> Offer | None:
        """The best of them for so many clients; None where there is none."""
        ...

    def worth_asking(self, mse: float, clients: int, *, thorough: bool) -> bool:
        """Whether to ask for an offer, which may take seconds, when there is one with this error.

        Unless `thorough`, those that cannot win are left out.
        """
        ...


@dataclass(frozen=True)
class Unbiased:
    """A mechanism without bias: its variance is that of one client over n."""

    label: str
    name: str
    arguments: Mapping[str, Any]
    epsilon: float
    bits: int
    coin: str
    variance: float

    def offer(self, clients: int) -> Offer:
        """The same mechanism for any number of clients."""
        variance = self.variance / clients
        return Offer(self.label, self.name, self.arguments, self.epsilon, self.bits, self.coin, 0.0, variance)

    def worth_asking(self, mse: float, clients: int, *, thorough: bool) -> bool:  # noqa: ARG002 (it is free)
        """Always."""
        return True


def fewest_bits(candidates: list[Unbiased], slack: float) -> list[Unbiased]:
    """Of the candidates whose variance is within the slack of the least, the one of fewest bits; of none, none.

    Examples:
        >>> pairs = ((9, 1.0), (5, 1.01), (4, 1.03))
        >>> candidates = [Unbiased("", "", {}, 1.0, bits, "private", variance) for bits, variance in pairs]
        >>> [kept.bits for kept in fewest_bits(candidates, slack=0.02)]
        [5]
    """
    if not candidates:
        return []
    enough = (1 + slack) * min(candidate.variance for candidate in candidates)
    good = [candidate for candidate in candidates if candidate.variance <= enough]
    return [min(good, key=lambda candidate: (candidate.bits, candidate.variance))]
