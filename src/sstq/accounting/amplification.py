"""Amplification: how much more private a message is in a shuffled crowd, or behind a secret coin (subsampling).

**What shuffling gives.** All n clients use one ε₀-LDP mechanism. With q = 2/(e^ε₀ + 1) take two distributions of a pair
of counts, the client's own message Δ and fair *clones* of it,

    C ~ Bin(n − 1, q),  A ~ Bin(C, 1/2),  Δ ~ Bern(e^ε₀/(e^ε₀ + 1)),
    P = (A + Δ, C − A + 1 − Δ),    Q = (A + 1 − Δ, C − A + Δ).

The shuffled messages are (ε, δ)-private for δ = sup_S P(S) − e^ε·Q(S), whatever the mechanism and the vectors are. For
ε ≥ ε₀ there is nothing to prove: δ = 0. For 0 ≤ ε < ε₀ the proof is in three steps.

**1. A blanket.** Let R₀ and R₁ be the densities of the client's message for its two vectors, R₂, …, R_n those of the
others. Since R_i ≥ e^−ε₀·R₀ and R_i ≥ e^−ε₀·R₁, all others have the part ω = e^−ε₀·max(R₀, R₁) in common, of mass γ: a
message is drawn from ω/γ with probability γ, otherwise from what is left of R_i. Let the server be told who drew from
what is left, and those messages. It knows more then, and what it is told does not depend on the client. It remains to
find the client's message, from R₀ or R₁, among those of C ~ Bin(n − 1, γ) others, all from ω/γ. With s = C + 1 messages
in random order their density relative to (ω/γ)^s is γ/s·Σ_j R_h(y_j)/ω(y_j) for h = 0, 1. So, with ℓ = (R₀ − e^ε·R₁)/ω,

    δ ≤ Σ_s Pr[Bin(n − 1, γ) = s − 1]·γ/s·E(Σ_{j ≤ s} ℓ(Y_j))⁺ = 1/n·E(Z₁ + … + Z_n)⁺,

because γ/s·Pr[Bin(n − 1, γ) = s − 1] = 1/n·Pr[Bin(n, γ) = s]. The Z_i are independent: ℓ(Y), Y ~ ω/γ, with probability
γ, and 0 otherwise (Balle, Bell, Gascón and Nissim 2019).

**2. The worst mechanism.** At every y the pair (R₀, R₁) = (u, v) has a ratio within e^±ε₀, so that it is a·(e^ε₀, 1) +
b·(1, e^ε₀) with a, b ≥ 0 and a + b = (u + v)/(e^ε₀ + 1). Put mass a at z₁ = e^ε₀ − e^ε > 0 and b at z₂ = 1 − e^(ε + ε₀)
≤ 0, instead of mass ω ≤ a + b at ℓ and the rest of a + b at 0. The mean remains: a·z₁ + b·z₂ = u − e^ε·v = ω·ℓ. Both 0
and ℓ are in [z₂, z₁]: for u ≥ v, ℓ = e^ε₀·(1 − e^ε·v/u) is between e^ε₀·(1 − e^ε) ≥ z₂ and z₁, and for u < v,
ℓ = e^ε₀·(u/v − e^ε) is between z₂ and e^ε₀·(1 − e^ε) ≤ 0. Mass that moves to the ends of an interval while its mean
remains makes the expectation of every convex function larger, and x ↦ E(x + Z₂ + … + Z_n)⁺ is one; so is that of every
other Z_i. Over all y the masses add up to ∫a = ∫b = 1/(e^ε₀ + 1), hence δ ≤ 1/n·E(Z*₁ + … + Z*_n)⁺, where Z* is z₁ or
z₂ with probability q/2 each, otherwise 0.

**3. The counts.** That is the δ of P and Q. Of s = C + 1 messages with counts (a, b) the probabilities are
binom(s, a)·(e^ε₀·a + b)/(s·(e^ε₀ + 1)·2^C) and the same with a and b changed, so that δ given C is
q/s·E(z₁·a + z₂·b)⁺ for a ~ Bin(s, 1/2), and the identity of step 1 turns the mean over C ~ Bin(n − 1, q) into
1/n·E(ΣZ*)⁺. For randomized response of one bit all three steps are equalities.

The pair P, Q is the stronger clone of Feldman, McMillan and Talwar (2023). Their proof, by the decomposition of R₀ into
Q₀ = (R₀ − R₁)⁺, Q₁ = (R₁ − R₀)⁺ and a rest, has an erratum: where the total variation of R₀ and R₁ is below its maximum
(e^ε₀ − 1)/(e^ε₀ + 1) the rest tells something. The blanket has no rest. What is proved here is for one mechanism that
all clients use, and not for mechanisms chosen one after the other; for those there are the clones of their paper of
2021, C ~ Bin(n − 1, e^−ε₀).
"""

import math

import numpy as np

from sstq.accounting.bounds import furthest, round_down
from sstq.checks import check_argument, check_number
from sstq.exactness import exp_upper

# Beyond this many standard deviations (and steps) from their mean the clones' numbers have a mass below 1e-100.
_DEVIATIONS, _STEPS = 22.0, 500
_GROUPS = 1000
# Of the gain, for all that rounds: SciPy's binomial masses and tails have relative errors far below this, up to 10^12
# clients. A count b* that is off by one, where (s·share) is an integer but for rounding, costs some 1e-16 of it.
_SPARE = 1e-9


def subsampled_epsilon(epsilon: float, probability: float) -> float:
    """Return the ε′ = log(1 + q(e^ε − 1)) of a client that takes part with probability q in secret.

    It holds when nobody who sees the messages can tell whether the client took part: each client tosses a coin of its
    own, the same for every vector, and tells nobody. A client that stays out still sends a message, the encoding
    of a public vector such as zero. Then Pr[m | x] = (1 − q)·Pr[M(0) = m] + q·Pr[M(x) = m], which gives ε′ per
    message, with no trust in anybody. The price: the mean of the messages estimates q times the mean of the vectors.

    Warning:
        A server that sees who answered knows the coin. Then a client that answered has spent all of ε, and there is no
        amplification: do not use this function for clients that the server selects or that simply stay silent.

    Examples:
        >>> subsampled_epsilon(1.0, 0.1)
        0.158...
    """
    epsilon = check_argument("epsilon", epsilon, of="round_epsilon")
    probability = check_number("probability", probability, 0, 1)
    # Rounded up by some units in the last place, which covers the rounding of log1p and expm1.
    return min(epsilon, math.log1p(probability * math.expm1(epsilon)) * (1 + 1e-15))


def least_epsilon(epsilon: float, clients: int, delta: float) -> float:
    """The least ε at which the clones' δ(ε) is at most δ; arguments are not checked."""
    clones = Clones(epsilon, clients)
    return furthest(lambda total: clones.delta(total) <= delta, epsilon, 0.0)


class Clones:
    """The number of clones in groups, each with its smallest number and its probability.

    Counting a group at its smallest number is conservative: one more clone is a fair bit that the server could
    have added itself.
    """

    def __init__(self, epsilon: float, clients: int) -> None:
        from scipy.stats import binom

        # Rounded down: the fewer clones, the larger δ is.
        others, chance = clients - 1, round_down(2 / (exp_upper(epsilon) + 1))
        mean = others * chance
        reach = _DEVIATIONS * math.sqrt(mean * (1 - chance)) + _STEPS
        low, high = max(0, math.floor(mean - reach)), min(others, math.ceil(mean + reach))
        # Numbers below `low` count as no clone at all, those from `high` on as `high`.
        smallest = np.unique(np.append(np.linspace(low, high, _GROUPS).astype(np.int64), 0))
        below = binom.cdf(smallest - 1, others, chance)
        above = binom.sf(smallest - 1, others, chance)
        # Differences of whichever tail is small, which keeps their digits.
        self.masses = np.where(smallest < mean, np.diff(below, append=1.0), -np.diff(above, append=0.0))
        self._epsilon, self._smallest = epsilon, smallest

    def delta(self, total: float) -> float:
        """E_C[δ_C(ε)], where the likelihood ratio of c clones falls with the second count b.

        With b* the greatest count whose ratio exceeds e^ε, and B ~ Bin(c, 1/2),
        δ_c = (e^ε₀ − e^ε)/(e^ε₀ + 1)·Pr[B = b*] − (e^ε − 1)·Pr[B < b*].
        """
        if total >= self._epsilon:
            return 0.0
        from scipy.stats import binom

        # Of c + 1 messages, P/Q = (e^ε₀·a + b)/(a + e^ε₀·b) exceeds e^ε where b is less than this share of them.
        share = math.expm1(total - self._epsilon) / (math.expm1(-self._epsilon) * (math.exp(total) + 1))
        most = np.ceil((self._smallest + 1) * share) - 1
        difference = -math.expm1(total - self._epsilon) / (1 + math.exp(-self._epsilon))
        gain = difference * binom.pmf(most, self._smallest, 0.5)
        loss = math.expm1(total) * binom.cdf(most - 1, self._smallest, 0.5)
        return float(np.sum(self.masses * (np.maximum(gain - loss, 0.0) + _SPARE * gain)))
