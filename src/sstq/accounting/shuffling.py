"""Amplification: the ε of messages in a shuffled crowd."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Self

from sstq.accounting.blanket import Blanket
from sstq.accounting.bounds import check_delta
from sstq.accounting.ledger import check_local
from sstq.accounting.losses import Losses, gaussian_sigma
from sstq.checks import RANGES, check_argument, check_number
from sstq.exactness import log_upper, round_up

if TYPE_CHECKING:
    from sstq.mechanisms import Mechanism

_SLOTS_MAX = 10**6
# A larger crowd hides a client even better; counting it as this one keeps arrays small.
_CLIENTS_MAX = 10**10
# The part of δ that the sums leave out and count as lost.
_TAIL = 1e-5
# The largest ε₀ is usually so close to the one of normal losses.
_SPREAD = 0.15


def shuffled_epsilon(
    epsilon: float | Mechanism,
    clients: int,
    delta: float,
    *,
    messages: int | None = None,
    rounds: int = 1,
) -> float:
    """Return the ε of n clients' shuffled messages for a given δ; never more than one client's total local ε.

    It holds against everyone who sees the messages only after a shuffler that is trusted to mix them, to drop all
    metadata (addresses, times) and not to collude with the server. All n clients must be honest and use the same
    mechanism. Neighbouring inputs differ in one client's vector; everyone else's may be known.

    Several messages of one client must not be linkable. Each is drawn independently, including its frame, and is
    shuffled with the n messages of its own slot and round.

    Args:
        epsilon: the mechanism, for a bound by its own law; or ε₀ of each message, for a bound that holds for every
            mechanism.
        clients: n.
        delta: δ > 0.
        messages: m, the messages per client and round, each shuffled in a separate slot; by default the mechanism's
            number, or 1.
        rounds: R, each with fresh messages and a fresh shuffle.

    Examples:
        >>> shuffled_epsilon(1.0, 10_000, 1e-6)
        0.0432...
        >>> shuffled_epsilon(1.0, 10_000, 1e-6, messages=16)
        0.190...
        >>> import sstq
        >>> mechanism = sstq.FrameUnit(dim=100, epsilon=7.0)
        >>> shuffled_epsilon(7.0, 100_000, 1e-6), shuffled_epsilon(mechanism, 100_000, 1e-6)
        (0.6..., 0.5...)

    References:
        Feldman, McMillan, Talwar: Stronger Privacy Amplification by Shuffling for Rényi and Approximate Differential
        Privacy. SODA 2023, with erratum (for every mechanism). Balle, Bell, Gascón, Nissim: The Privacy Blanket of the
        Shuffle Model. CRYPTO 2019 (by the mechanism's law). docs/proofs.md has both proofs.
    """
    crowd = Crowd.of(epsilon, clients, messages, rounds)
    return crowd.epsilon(check_delta(delta, positive=True))


def two_level_local_epsilon(
    total_epsilon: float, share: float, clients: int, delta: float, messages: int = 1
) -> float:
    """Return the largest ε₀ of a two-level draw, at most 100 and to 1e-5, whose shuffled messages stay within a total.

    Such a draw takes one of many candidates. Each of a share κ of them, those inside, is e^ε₀ times as likely as each
    of the others.

    Args:
        total_epsilon: the ε of all shuffled messages of a client.
        share: κ, the share of the candidates that is inside.
        clients: n.
        delta: δ > 0.
        messages: m, the messages per client, each shuffled in a separate slot.

    Examples:
        >>> two_level_local_epsilon(1.0, 0.002, 59_000, 1e-6)
        7.52...
    """
    from scipy.optimize import brentq

    total = check_argument("total_epsilon", total_epsilon)
    delta = check_delta(delta, positive=True)
    least, most, _ = RANGES["round_epsilon"]
    slots = check_slots("messages", messages)
    wanted = -math.log(delta)

    @cache
    def excess(epsilon: float) -> float:
        """Almost linear in ε₀: the logarithm of δ is −(ε/σ)²/2 or so, and that of σ grows like ε₀/2."""
        bound = (
            Crowd.of(epsilon, clients, messages, share=share).losses(delta).delta(total)
        )
        return math.log(wanted / -math.log(min(max(bound, 1e-300), 1 - 1e-9)))

    guess = normal_local_epsilon(normal_power(total, delta, clients, slots), share)
    # So much is safe without any shuffler.
    safe = low = float(max(least, total / slots))
    high = float(most)
    for tried in (guess - _SPREAD, guess + _SPREAD):
        if low < tried < high:
            low, high = (low, tried) if excess(tried) > 0 else (tried, high)
    if excess(high) <= 0:
        return high
    # The root may be found on either side of the edge.
    local = float(brentq(excess, low, high, xtol=2e-6)) if excess(low) < 0 else safe
    while local > safe and excess(local) > 0:
        local -= 2e-6
    return max(local, safe)


def normal_power(total_epsilon: float, delta: float, clients: int, slots: int) -> float:
    """The (e^ε₀ − 1)²·α of n clients' messages in each of m slots whose total is (ε, δ), if their losses were normal.

    The variance 2m(e^ε₀ − 1)²α/n of all losses is then that of Gaussian noise with this (ε, δ).
    """
    sigma = gaussian_sigma(min(total_epsilon, RANGES["round_epsilon"][1]), delta)
    return clients / slots / sigma**2 / 2


def normal_local_epsilon(power: float, share: float) -> float:
    """The ε₀ of a two-level draw with (e^ε₀ − 1)²·α equal to the power."""
    return math.log1p((power + math.sqrt(power**2 + 4 * power / share)) / 2)


def check_slots(name: str, value: int) -> int:
    """The privacy of several shuffled messages of one client."""
    return int(check_number(name, value, 1, _SLOTS_MAX, integer=True))


@dataclass(frozen=True)
class Crowd:
    """The messages of n clients: the local ε of each, the blanket of their law, and the number of slots."""

    local: float
    blanket: Blanket
    clients: int
    slots: int

    @classmethod
    def of(
        cls,
        message: float | Mechanism,
        clients: int,
        messages: int | None = None,
        rounds: int = 1,
        share: float = 1.0,
    ) -> Self:
        """Check the arguments of `shuffled_epsilon`, or with a share those of `two_level_local_epsilon`."""
        clients = check_argument("clients", clients, of="crowd")
        blanket = None
        if not isinstance(message, float | int) and hasattr(message, "privacy_loss"):
            blanket = law_blanket(message)
            local = message.privacy_loss()
            messages = getattr(message, "messages", 1) if messages is None else messages
        else:
            local = check_argument("epsilon", message, of="round_epsilon")
        slots = check_slots(
            "messages", 1 if messages is None else messages
        ) * check_slots("rounds", rounds)
        blanket = blanket or Blanket.two_level(
            local, check_number("share", share, 1e-30, 1)
        )
        return cls(local, blanket, clients, check_slots("messages times rounds", slots))

    def epsilon(self, delta: float) -> float:
        """The least ε for this δ, at most one client's total local ε."""
        return self.losses(delta).epsilon(
            delta, round_up(self.slots * Fraction(self.local))
        )

    def losses(self, delta: float) -> Losses:
        """The sum of one client's losses, tight near the given δ."""
        tail = _TAIL * delta
        return self.blanket.losses(
            min(self.clients, _CLIENTS_MAX), tail / self.slots
        ).times(self.slots, tail)


def law_blanket(mechanism: Mechanism) -> Blanket | None:
    """Return the blanket of a mechanism's law; None if only its ε counts.

    ValueError if shuffling does not help, or if there is no law.
    """
    check_local(mechanism)
    if not mechanism.exact:
        remedy = f"pass its epsilon, {mechanism.epsilon!r}, for the bound that holds for every mechanism"
        raise ValueError(
            f"mechanism must have a discrete law, but {mechanism.name} sends continuous values; {remedy}"
        )
    law = mechanism.law()
    # A law that does not explain the whole privacy loss is not the law of the whole message.
    return (
        Blanket.of_law(law)
        if log_upper(law.ratio()) >= mechanism.privacy_loss()
        else None
    )
