"""What malicious clients can do to a mean, mechanism by mechanism.

Local privacy lets a client send what it likes: nobody can tell a lie from noise. Let a fraction α of the messages be
malicious. The mean is (1 − α) times that of the honest clients and α times that of the others, so it is moved away from
the honest clients' mean by α·‖m̄ − x̄‖. Two kinds of attackers:

* Those who may send any valid message: ‖m̄‖ ≤ R, the largest estimate of a single message. Messages that are not valid
  are refused. In expectation over the honest messages and public coins the shift is at most α·(R + H), where
  H = max ‖E[x̂]‖ is clip for an unbiased mechanism.
* Those who follow the protocol with data of their choice: they move the expectation by at most 2α·H, if they choose the
  data without regard to the public coin. (Who knows its assigned coordinate can do as much as √d·B instead of clip.)

R/clip is of the order of the root mean square error of a single message, √d/ε: noise hides attackers, and the attack is
as large as the noise that a single message has. (A. Cheu, A. Smith, J. Ullman, *Manipulation attacks in local
differential privacy*, IEEE S&P 2021, show that it must be so, up to constants.)

In means by strata (`sstq.aggregation.strata`) a few messages decide over the mean of a small stratum, and attackers who
may choose their strata gather in some of them. Let A = α·n messages be malicious, x = A/N a stratum, and H honest ones
in a stratum, binomial. With a attackers its mean moves by a share f = a/(a + H) of at most D = max|w| + max|E[w]|, and
x̂ by at most √(d/N)·D·√(Σ f²)/P, the sum being over the strata. As a function of a, up to A, f² lies below the concave
function that is linear up to a* = min(H, A) and f² beyond. So for attackers who do not know the honest counts

    E Σ f² ≤ N·(P[H = 0]·min(1, x) + Σ_h P[H = h]·(x/a*·(a*/(a* + h))² if x ≤ a*, else (x/(x + h))²)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np

from sstq.aggregation.strata import uses_strata
from sstq.exactness import TOTAL
from sstq.mechanisms.base import Mechanism, check_number
from sstq.mechanisms.candidates.compressed_privunitg import CompressedPrivUnitG
from sstq.mechanisms.candidates.mmrc import MMRC
from sstq.mechanisms.candidates.rrsc import RRSC
from sstq.mechanisms.clean import Clean
from sstq.mechanisms.csgm.coordinate_gaussian import CoordinateGaussian
from sstq.mechanisms.frameunit.mechanism import FrameUnit
from sstq.mechanisms.privunit.mechanism import PrivUnit, PrivUnitG
from sstq.mechanisms.projunit.mechanism import ProjUnit
from sstq.mechanisms.projunit.projections import FastProjection
from sstq.mechanisms.sqkr.mechanism import SQKR
from sstq.mechanisms.sstq import SSTQ
from sstq.mechanisms.turboquant import TurboQuant
from sstq.mechanisms.vqsgd import VqSGD

__all__ = ["PoisoningBound", "largest_honest_mean", "largest_message", "poisoning_bound"]

# Messages carry norms in single precision, which are checked to these tolerances.
_UNIT_NORM_TOLERANCE = 1e-3
_BALL_TOLERANCE = 1e-6
# A Gaussian vector or matrix of any of 2^64 clients (and 2^12 candidates each) exceeds its typical norm by more than
# this with a probability of e^(−13²/2)·2^76 < 1e-13.
_GAUSSIAN_EXCESS = 13.0
# The probability of the honest counts of a stratum that are too rare to be looked at.
_LEFT_OUT = 1e-12


@dataclass(frozen=True)
class PoisoningBound:
    """What a fraction of malicious clients can do to a mean at most; norms are Euclidean, in the vectors' unit.

    Attributes:
        fraction: α, the malicious share of all messages.
        message: R, the largest norm of the estimate of a single valid message.
        shift: how far messages of the attackers' choice move the expectation of the mean, away from that of the honest
            clients alone. For strata it is a root mean square over the public coin.
        input_shift: the same for attackers who follow the protocol with data of their choice.
        estimator: "mean" or "strata".
    """

    fraction: float
    message: float
    shift: float
    input_shift: float
    estimator: str


def poisoning_bound(
    mechanism: Mechanism, fraction: float, clients: int | None = None, *, strata: bool | None = None
) -> PoisoningBound:
    """What a fraction of malicious clients can do to the mean at most.

    Args:
        mechanism: any of the registry.
        fraction: α, the malicious share of all messages, 0 to 1.
        clients: n, all of them. It matters for means by strata only, and is needed there.
        strata: whether the mean is taken by strata; by default as the mechanism's own aggregator does for that many.

    Examples:
        >>> import sstq
        >>> bound = poisoning_bound(sstq.SSTQ(dim=1000, epsilon=3.0, bits=2), fraction=0.01)
        >>> bound.input_shift, round(bound.shift, 2)
        (0.02, 0.7)
    """
    fraction = check_number("fraction", fraction, 0, 1)
    if clients is not None:
        clients = check_number("clients", clients, 1, 2**32, integer=True)
    message, honest = largest_message(mechanism), largest_honest_mean(mechanism)
    plain = PoisoningBound(fraction, message, fraction * (message + honest), 2 * fraction * honest, "mean")
    if not isinstance(mechanism, SSTQ):
        if strata:
            raise ValueError(f"strata must be False or None for {mechanism.name}, whose means are not taken by strata")
        return plain
    if not (mechanism.index == "assigned" if strata is None else strata):
        return plain
    if clients is None:
        raise ValueError("clients is needed: whether the mean is taken by strata depends on their number")
    if not uses_strata(clients, mechanism.frame.size):
        return plain
    return replace(plain, shift=_stratified_shift(mechanism, fraction, clients), estimator="strata")


def _stratified_shift(mechanism: SSTQ, fraction: float, clients: int) -> float:
    from scipy.stats import binom

    size = mechanism.frame.size
    honest = binom(round((1 - fraction) * clients), 1 / size)
    count = np.arange(1, int(honest.isf(_LEFT_OUT)) + 1)
    attackers = fraction * clients
    each = attackers / size
    # Where they are fewer than the honest ones on average, some strata with as many attackers as honest ones are best.
    gathered = np.maximum(np.minimum(count, attackers), each)
    control = each * gathered / (gathered + count) ** 2 if fraction else np.zeros(len(count))
    # The counts that are left out could not add more than their probability.
    shares = honest.pmf(0) * min(1.0, each) + float(honest.pmf(count) @ control) + _LEFT_OUT * bool(fraction)
    moved = mechanism.bound * (_largest_value(mechanism) + _largest_expected_value(mechanism))
    not_empty = -math.expm1(clients * math.log1p(-1 / size)) if size > 1 else 1.0
    return math.sqrt(mechanism.dim * shares) * moved / not_empty


@singledispatch
def largest_message(mechanism: Mechanism) -> float:
    """R, the largest norm that the estimate of one valid message can have.

    It is attained, up to rounding, by FrameUnit on one frame, vqSGD, SQKR with a private coin, PrivUnit, RRSC, MMRC,
    Clean and SSTQ; for the others it is an upper bound. Behind a public coin many attackers reach it together only if
    they may use one identifier again and again, or find enough identifiers that suit them.

    Examples:
        >>> import sstq
        >>> largest_message(sstq.mechanism("clean", dim=10, clip=2.0))
        2.000002
    """
    raise ValueError(f"no bound is known for the messages of {mechanism.name}")


@largest_message.register
def _(mechanism: SSTQ) -> float:
    return mechanism.dim * mechanism.bound * _largest_value(mechanism) * _longest_row(mechanism)


@largest_message.register
def _(mechanism: FrameUnit) -> float:
    # (d/N)·U·Uᵀ is a projection, so no row of any frame is longer than √(N/d); a single frame can be looked at.
    longest = _longest_row(mechanism) if mechanism.frames == 1 else math.sqrt(mechanism.frame.redundancy)
    return mechanism.gain * longest


@largest_message.register
def _(mechanism: VqSGD) -> float:
    return mechanism.dim * mechanism.decoding_scale


@largest_message.register
def _(mechanism: SQKR) -> float:
    if mechanism.k is None:
        # ‖Uᵀz‖ ≤ √(N/d)·‖z‖ for N signs; a column of the Hadamard matrix attains it.
        return math.sqrt(mechanism.dim) * mechanism.bound / mechanism.coder.gain
    # All k coordinates may be the same one.
    return mechanism.dim * mechanism.decoding_scale * mechanism.k * _longest_row(mechanism)


@largest_message.register
def _(mechanism: PrivUnit) -> float:
    return (1 + _UNIT_NORM_TOLERANCE) * mechanism.clip / mechanism.cap.gain


@largest_message.register
def _(mechanism: PrivUnitG) -> float:
    return mechanism.largest_norm * mechanism.clip / mechanism.cap.gain


@largest_message.register
def _(mechanism: ProjUnit) -> float:
    projection, factor = mechanism.projection, mechanism.clip / (mechanism.cap.gain * mechanism.alignment)
    fast = isinstance(projection, FastProjection)
    stretch = 1.0 if fast else math.sqrt(mechanism.dim) + math.sqrt(projection.projected) + _GAUSSIAN_EXCESS
    return (1 + _UNIT_NORM_TOLERANCE) * factor * stretch


@largest_message.register(RRSC)
@largest_message.register(MMRC)
def _(mechanism: RRSC | MMRC) -> float:
    # Candidates are unit vectors, to the rounding of a decomposition.
    return (1 + _BALL_TOLERANCE) * mechanism.clip / mechanism.alignment


@largest_message.register
def _(mechanism: CompressedPrivUnitG) -> float:
    return (1 + _GAUSSIAN_EXCESS / math.sqrt(mechanism.dim)) * mechanism.clip / mechanism.alignment


@largest_message.register
def _(mechanism: TurboQuant) -> float:
    return (1 + _BALL_TOLERANCE) * mechanism.clip * float(np.max(np.abs(mechanism.decoding_values)))


@largest_message.register
def _(mechanism: CoordinateGaussian) -> float:
    kept, rate = mechanism.sampling.most, mechanism.sampling.inclusion[0]
    return math.sqrt(mechanism.dim * kept / mechanism.frame.size) * mechanism.bound / rate


@largest_message.register
def _(mechanism: Clean) -> float:
    return (1 + _BALL_TOLERANCE) * mechanism.clip


@singledispatch
def largest_honest_mean(mechanism: Mechanism) -> float:
    """H, the largest norm of an honest client's expected estimate, over messages and public coins: clip if unbiased.

    Examples:
        >>> import sstq
        >>> largest_honest_mean(sstq.SSTQ(dim=100, epsilon=1.0, clip=0.5))
        0.5
    """
    return mechanism.clip if mechanism.unbiased else largest_message(mechanism)


@largest_honest_mean.register
def _(mechanism: SSTQ) -> float:
    if mechanism.unbiased:
        return mechanism.clip
    # E[x̂] = (d/N)·Uᵀ·E[w], and no E[w_j] exceeds this.
    return math.sqrt(mechanism.dim) * mechanism.bound * _largest_expected_value(mechanism)


@largest_honest_mean.register
def _(mechanism: SQKR) -> float:
    return mechanism.clip if mechanism.unbiased else math.sqrt(mechanism.dim) * mechanism.bound


@largest_honest_mean.register
def _(mechanism: FrameUnit) -> float:
    # Signed rows come in pairs that cancel out, so E[x̂] = gain·(p_in − p_out)·Σ_j ±P_j·u_j, P_j ≤ M/2N being the chance
    # that row j takes part and is inside. With Σ P_j = k, ‖Σ ±P_j·u_j‖² ≤ (N/d)·Σ P_j² ≤ k·M/2d.
    inside, size = mechanism.choice.inside, mechanism.choice.size
    share = mechanism.choice.threshold / TOTAL
    contrast = share / inside - (1 - share) / (size - inside)
    return mechanism.gain * contrast * math.sqrt(inside * size / (2 * mechanism.dim))


@largest_honest_mean.register
def _(mechanism: ProjUnit) -> float:
    # E[x̂ | W] = clip·Wᵀu/E‖Wx‖ for a unit vector u, and Wᵀ does not stretch unless it is Gaussian.
    return mechanism.clip if mechanism.unbiased else mechanism.clip / mechanism.alignment


def _largest_value(mechanism: SSTQ) -> float:
    """max|w| over the codes that occur, in units of B."""
    return float(np.max(np.abs(mechanism.decoding_values[mechanism.channel.used])))


def _largest_expected_value(mechanism: SSTQ) -> float:
    """max|E[w]| over the tokens, in units of B."""
    return float(np.max(np.abs(mechanism.channel.moments(mechanism.decoding_values)[0])))


def _longest_row(mechanism: SSTQ | SQKR | FrameUnit) -> float:
    return math.sqrt(float(np.max(mechanism.frame.squared_row_norms())))
