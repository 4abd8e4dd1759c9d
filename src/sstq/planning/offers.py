"""The candidates of the planner: mechanisms with their predicted errors. SSTQ is in `sstq.planning.tuning`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sstq.baselines import RRSC, SQKR, VqSGD
from sstq.mechanisms import FrameUnit, Mechanism
from sstq.mechanisms.base import Coin, ExpectedError
from sstq.mechanisms.frameunit.bias import BIAS_SHARE, frames_needed

_PUBLIC_BIAS_SHARE = BIAS_SHARE / 2  # with a public coin frames take no bits
# The ε below the allowed one that are tried where frames are too few: the error is within 0.1 % of its least.
_SPENDINGS = tuple(float(f"{20 * 1.05**-step:.3g}") for step in range(156))
_ANY_BITS, _VQSGD_DIM_MAX, _MOST_K = 1 << 20, 2**24, 16


@dataclass(frozen=True)
class Terms:
    """The arguments of `plan` that stay fixed while it solves for ε, clients or bits."""

    dim: int
    bits: int | None
    coin: str
    server: str
    alike: float | None
    slack: float  # the share of the squared error that may be given up for fewer bits

    @property
    def room(self) -> int:
        """The maximum bits per message, as a number."""
        return _ANY_BITS if self.bits is None else self.bits


@dataclass(frozen=True)
class Offer:
    """A mechanism for n clients who all hold a typical vector of norm 1, and the predicted error of their mean."""

    label: str
    mechanism: Mechanism  # which may spend less ε than is allowed
    arguments: Mapping[str, Any]  # besides dim, epsilon and clip
    bias2: float
    variance: float
    wanted_frames: int = 1  # of FrameUnit: those that would make the bias negligible

    @property
    def mse(self) -> float:
        """The mean squared error of the mean."""
        return self.bias2 + self.variance

    @property
    def bits(self) -> int:
        """The bits of one message."""
        return self.mechanism.message_bits

    def shared(self, clients: int, *_: object) -> Offer:
        """Scale an unbiased offer for one client to more clients."""
        return replace(self, variance=self.variance / clients)


# Mechanisms of one kind: the best for so many clients, if there is one. It also takes the least error of the offers so
# far and whether the search is thorough; if it is not, a slow family that cannot win makes no offer.
Family = Callable[[int, float, bool], Offer | None]


def fewest_bits(candidates: list[Offer], slack: float) -> Offer:
    """Of the candidates whose variance is within the slack of the least, the one of fewest bits."""
    enough = (1 + slack) * min(candidate.variance for candidate in candidates)
    good = [candidate for candidate in candidates if candidate.variance <= enough]
    return min(good, key=lambda candidate: (candidate.bits, candidate.variance))


def _shortest(candidates: list[Offer], slack: float) -> list[Family]:
    return [fewest_bits(candidates, slack).shared] if candidates else []


def rrsc(dim: int, epsilon: float, bits: int) -> Offer:
    """RRSC for one client, the least error of its bits."""
    mechanism = RRSC(dim, epsilon, bits=bits)
    return Offer(f"RRSC, b = {bits}", mechanism, {"bits": bits}, 0.0, mechanism.alignment**-2 - 1)


def most_rrsc_bits(dim: int) -> int:
    """The maximum bits of RRSC in this many dimensions; 0 if it does not exist."""
    return min(12, dim.bit_length() - 1)


def rrsc_family(terms: Terms, epsilon: float) -> list[Family]:
    """RRSC, for servers that may be slow."""
    most = min(most_rrsc_bits(terms.dim), terms.room)
    return _shortest([rrsc(terms.dim, epsilon, bits) for bits in range(1, most + 1)], terms.slack)


def sqkr_family(terms: Terms, epsilon: float, coin: Coin) -> list[Family]:
    """SQKR with its best k."""
    candidates = []
    for k in range(1, _MOST_K + 1):
        mechanism = SQKR(terms.dim, epsilon, k=k, coin=coin)
        if mechanism.message_bits > terms.room:
            break
        coder = mechanism.coder
        variance = (terms.dim * mechanism.decoding_scale) ** 2 * coder.sent + coder.cross - 1
        candidates.append(Offer(f"SQKR, {coin} coin, k = {k}", mechanism, {"k": k, "coin": coin}, 0.0, variance))
    return _shortest(candidates, terms.slack)


def vqsgd_family(terms: Terms, epsilon: float) -> list[Family]:
    """vqSGD, whose messages all have the same norm."""
    if terms.dim > _VQSGD_DIM_MAX or (2 * terms.dim - 1).bit_length() > terms.room:
        return []
    mechanism = VqSGD(terms.dim, epsilon)
    return [Offer("vqSGD", mechanism, {}, 0.0, mechanism.largest_message() ** 2 - 1).shared]


# FrameUnit. One frame leaves a bias that more clients do not lower. G frames leave 1/G of its square. With a private
# coin they cost log₂ G bits. Where the bits are capped the frames are too few, and since the bias grows with ε it may
# then be better to spend less than the ε that is allowed.
@lru_cache(maxsize=1024)
def _frameunit(dim: int, epsilon: float, bits: int | None, frames: int = 1) -> FrameUnit:
    return FrameUnit(dim, epsilon, bits=bits, frames=frames)


def frameunit_error(dim: int, epsilon: float, bits: int | None = None) -> float:
    """The error of one client over frames for a unit vector: with all rows, the optimum in high dimensions."""
    # Without the bias of one frame, which takes long to compute.
    return _frameunit(dim, epsilon, bits).row_draw.client_error()


def frameunit_offer(terms: Terms, epsilon: float, bits: int | None, clients: int) -> Offer:
    """All rows and a private coin, or b public bits, with as many frames as make the bias negligible or have room."""
    one = _frameunit(terms.dim, epsilon, bits)
    share = BIAS_SHARE if bits is None else _PUBLIC_BIAS_SHARE
    frames = wanted = frames_needed(lambda frames: one.row_draw.error(frames, clients), share)
    if bits is None and terms.bits is not None:
        frames = min(wanted, 1 << min(30, terms.bits - one.message_bits))
    label, arguments = ("FrameUnit", {}) if bits is None else (f"FrameUnit, public coin, b = {bits}", {"bits": bits})
    if frames > 1:
        label, arguments = f"{label}, {frames} frames", {**arguments, "frames": frames}

    def error(spent: float) -> ExpectedError:
        return _frameunit(terms.dim, spent, bits).row_draw.error(frames, clients)

    best = epsilon
    for spent in () if frames == wanted else (spent for spent in _SPENDINGS if spent < epsilon):
        # The noise alone grows as less is spent.
        if frameunit_error(terms.dim, spent, bits) / clients >= error(best).total:
            break
        best = min(best, spent, key=lambda tried: error(tried).total)
    mechanism = _frameunit(terms.dim, best, bits, frames)
    return Offer(label, mechanism, arguments, error(best).bias2, error(best).variance, wanted)


def frameunit_family(terms: Terms, epsilon: float, coin: Coin) -> list[Family]:
    """All rows and a private coin, if one frame fits; or a public coin with the fewest bits within the slack."""
    bits, all_bits = None, _frameunit(terms.dim, epsilon, None).message_bits
    if coin == "public":
        most = min(all_bits, terms.room)
        enough = (1 + terms.slack) * frameunit_error(terms.dim, epsilon, most)
        bits = next(b for b in range(1, most + 1) if frameunit_error(terms.dim, epsilon, b) <= enough)
    elif all_bits > terms.room:
        return []
    return [lambda clients, *_: frameunit_offer(terms, epsilon, bits, clients)]
