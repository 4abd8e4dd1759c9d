"""Amplification by shuffling: a message hides among those of the other clients.

For any ε₀-LDP mechanism and any two vectors with message distributions R₀, R₁ of total variation β, let
Q₀ = (R₀ − R₁)⁺/β, Q₁ = (R₁ − R₀)⁺/β and α = β/(e^ε₀ − 1). Then, for some distribution W,

    R₀ = e^ε₀·α·Q₀ + α·Q₁ + (1 − (e^ε₀ + 1)α)·W,   R₁ the same with Q₀ and Q₁ changed,

and the message of every other client is Q₀ with probability at least α, Q₁ with probability at least α. (Where R₀ > R₁:
W ≥ 0 because R₀ ≤ e^ε₀·R₁, and R ≥ e^−ε₀·R₀ ≥ α·Q₀ because R₁ ≥ e^−ε₀·R₀.) So a server that is even told which messages
are W or none of the three sees only how many are Q₀ and how many Q₁: the client's own and C of *clones*, each of them
fair. The most revealing case is β = (e^ε₀ − 1)/(e^ε₀ + 1), where α = 1/(e^ε₀ + 1): a smaller β is what remains of it
when every message is dropped with the same probability. That leaves two distributions of a pair of counts,

    C ~ Bin(n − 1, 2/(e^ε₀ + 1)),  A ~ Bin(C, 1/2),  Δ ~ Bern(e^ε₀/(e^ε₀ + 1)),
    P = (A + Δ, C − A + 1 − Δ),    Q = (A + 1 − Δ, C − A + Δ),

whose δ(ε) is computed here. This is the stronger clone of Feldman, McMillan and Talwar (2023); in their paper of 2021
the clones are fewer, C ~ Bin(n − 1, e^−ε₀).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sstq.accounting.limits import check_clients, check_delta, check_round_epsilon
from sstq.accounting.search import least_number
from sstq.schemes.base import check_number, check_option

__all__ = ["numeric_epsilon", "shuffled_delta", "shuffled_epsilon"]

# Beyond this many standard deviations (and steps) from their mean the clones' numbers have a mass below 1e-100.
_DEVIATIONS, _STEPS = 22.0, 500
_GROUPS = 1000
# Relative errors of SciPy's binomial masses and tails stay below this, up to a thousand milliard clients.
_SPARE = 1e-9


def shuffled_delta(epsilon: float, clients: int, total_epsilon: float) -> float:
    """Return a δ for which the shuffled messages of n clients, each ε₀-LDP, are (ε, δ)-private.

    Numbers of clones are taken together in groups, each at its smallest, which errs on the safe side: a clone more is
    a random bit more and hides better.

    Args:
        epsilon: ε₀ of each message.
        clients: n.
        total_epsilon: ε of the shuffled messages, in [0, ε₀] or more.

    Examples:
        >>> shuffled_delta(1.0, 10_000, 0.04)
        2.62...e-06
        >>> shuffled_delta(1.0, 10_000, 1.0)
        0.0
    """
    epsilon, clients = check_round_epsilon(epsilon), check_clients(clients)
    total_epsilon = float(check_number("total_epsilon", total_epsilon, 0, 1e6))
    return _Clones.of(epsilon, clients).delta(total_epsilon)


def shuffled_epsilon(epsilon: float, clients: int, delta: float, method: str = "numeric") -> float:
    """Return the ε of n shuffled ε₀-LDP messages, for a given δ; never more than ε₀.

    It holds against whoever sees the messages only after a shuffler that is trusted to mix them, to drop whatever came
    with them (addresses, times) and not to side with the server. All n clients must be honest and use the same
    mechanism. The neighbouring worlds differ in one client's vector, everyone else's being known.

    Warning:
        Behind a public coin a message is read together with its client's identifier, so it cannot be shuffled: such
        mechanisms (`coin == "public"`) get nothing from this.

    Args:
        epsilon: ε₀ of each message.
        clients: n.
        delta: δ > 0.
        method: "numeric", the clones' exact distributions (2023), or "closed-form", the theorem of 2021, which needs
            ε₀ ≤ log(n/(16 log(2/δ))).

    Examples:
        >>> shuffled_epsilon(1.0, 10_000, 1e-6)
        0.0432...
        >>> shuffled_epsilon(1.0, 10_000, 1e-6, method="closed-form")
        0.214...

    References:
        Feldman, McMillan, Talwar: Hiding Among the Clones. FOCS 2021, Theorem 3.1 (closed form). The same: Stronger
        Privacy Amplification by Shuffling for Rényi and Approximate Differential Privacy. SODA 2023 (numeric).
    """
    epsilon, clients = check_round_epsilon(epsilon), check_clients(clients)
    delta = check_delta(delta, positive=True)
    if check_option("method", method, ("numeric", "closed-form")) == "closed-form":
        return min(epsilon, _closed_form(epsilon, clients, delta))
    return numeric_epsilon(epsilon, clients, delta)


def numeric_epsilon(epsilon: float, clients: int, delta: float) -> float:
    """Return the least ε at which the clones' δ(ε) is at most δ."""
    clones = _Clones.of(epsilon, clients)
    return least_number(lambda total: clones.delta(total) <= delta, 0.0, epsilon)


def _closed_form(epsilon: float, clients: int, delta: float) -> float:
    most = math.log(clients / (16 * math.log(2 / delta)))
    if epsilon > most:
        raise ValueError(
            f"epsilon must be at most log(clients/(16 log(2/delta))) = {most:.6g} for method 'closed-form', "
            f"got {epsilon!r}"
        )
    grown = math.exp(epsilon)
    crowd = 8 * math.sqrt(grown * math.log(4 / delta) / clients) + 8 * grown / clients
    return math.log1p(math.tanh(epsilon / 2) * crowd)


@dataclass(frozen=True)
class _Clones:
    """The number of clones in groups: the smallest of each group and the probability of the group."""

    epsilon: float
    smallest: NDArray[np.int64]
    masses: NDArray[np.float64]

    @classmethod
    def of(cls, epsilon: float, clients: int) -> _Clones:
        from scipy.stats import binom

        others, chance = clients - 1, 2 / (math.exp(epsilon) + 1)
        mean = others * chance
        reach = _DEVIATIONS * math.sqrt(mean * (1 - chance)) + _STEPS
        low, high = max(0, math.floor(mean - reach)), min(others, math.ceil(mean + reach))
        starts = np.unique(np.linspace(low, high, _GROUPS).astype(np.int64))
        # Numbers below `low` count as no clone at all, those from `high` on as `high`.
        smallest = np.unique(np.concatenate(([0], starts)))
        below = binom.cdf(smallest - 1, others, chance)
        above = binom.sf(smallest - 1, others, chance)
        # Differences of whichever tail is small, so that they keep their digits.
        masses = np.where(smallest < mean, np.diff(below, append=1.0), -np.diff(above, append=0.0))
        return cls(epsilon, smallest, masses)

    def delta(self, total_epsilon: float) -> float:
        """Return E_C[δ_C(ε)], where the likelihood ratio of c clones falls with the second count b.

        With b* the greatest count whose ratio exceeds e^ε, and B ~ Bin(c, 1/2),
        δ_c = (e^ε₀ − e^ε)/(e^ε₀ + 1)·Pr[B = b*] − (e^ε − 1)·Pr[B < b*].
        """
        if total_epsilon >= self.epsilon:
            return 0.0
        from scipy.stats import binom

        # Of c + 1 messages, P/Q = (e^ε₀·a + b)/(a + e^ε₀·b) exceeds e^ε where b is less than this share of them.
        share = math.expm1(total_epsilon - self.epsilon) / (math.expm1(-self.epsilon) * (math.exp(total_epsilon) + 1))
        most = np.ceil((self.smallest + 1) * share) - 1
        difference = -math.expm1(total_epsilon - self.epsilon) / (1 + math.exp(-self.epsilon))
        gain = difference * binom.pmf(most, self.smallest, 0.5)
        loss = math.expm1(total_epsilon) * binom.cdf(most - 1, self.smallest, 0.5)
        excess = np.maximum(gain - loss, 0.0) + _SPARE * gain
        return float(np.sum(self.masses * excess))
