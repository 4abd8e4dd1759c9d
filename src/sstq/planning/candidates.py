"""The mechanisms that a plan chooses from, with the predicted error of their mean.

FrameUnit has the least error from two dimensions on. SSTQ and vqSGD are for one dimension and for few bits: they have
shorter messages below 256 dimensions, and no bias of frames. The others are left out. SQKR is no shorter than SSTQ and
no better; PrivUnit is private only up to floating point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sstq.baselines import VqSGD
from sstq.mechanisms import SSTQ, FrameUnit, Mechanism, mechanism, mechanism_class
from sstq.mechanisms.errors import ExpectedError
from sstq.mechanisms.frameunit.alignment import RowDraw
from sstq.mechanisms.registry import installed_mechanisms, options_of

# Beyond it what cannot win is not computed, which takes seconds.
_COMPARED_DIM_MAX = 2**16
_SSTQ_BITS = 8
# The ε below the allowed one that are tried where frames are too few: the error is within 0.1 % of its least.
_SPENDINGS = tuple(float(f"{20 * 1.05**-step:.3g}") for step in range(156))


@dataclass(frozen=True)
class Candidate:
    """A mechanism for clients who all hold a typical vector of norm 1, and the predicted error of their mean.

    `wanted_frames` are those of FrameUnit that would make its bias negligible.
    """

    label: str
    name: str
    options: Mapping[str, Any]  # which may spend less ε than is allowed
    bits: int
    error: ExpectedError
    frames: int = 1
    wanted_frames: int = 1

    @property
    def mse(self) -> float:
        """The mean squared error of the mean."""
        return self.error.total

    def build(self, clip: float = 1.0) -> Mechanism:
        """Create the mechanism; a clip of 1 is left out, so that its line of Python is short."""
        return mechanism(
            self.name, **self.options, **({} if clip == 1 else {"clip": clip})
        )


def best_candidate(
    dim: int, epsilon: float, clients: int, bits: int | None, slack: float = 0.0
) -> Candidate | None:
    """Return the allowed mechanism of least error, or None if the bits are too few for any.

    Args:
        dim: d.
        epsilon: the ε that one message may spend.
        clients: n.
        bits: the maximum bits per message; None for any.
        slack: the share of the squared error that may be given up for fewer bits within one family.
    """
    candidates = []
    enough = False
    if bits is None or _one_frame(dim, epsilon)[1] <= bits:
        framed = _frameunit(dim, epsilon, clients, bits)
        candidates.append(framed)
        # SSTQ has at least 1.5 times the error of FrameUnit with enough frames (measured for d up to 10⁶).
        enough = dim > _COMPARED_DIM_MAX or framed.frames == framed.wanted_frames
    if dim == 1 or not enough:
        candidates += _without_frames(dim, epsilon, clients, bits, slack)
    candidates += _of_packages(dim, epsilon, clients, bits)
    return min(candidates, key=lambda one: (one.mse, one.bits), default=None)


def _without_frames(
    dim: int, epsilon: float, clients: int, bits: int | None, slack: float
) -> list[Candidate]:
    """SSTQ and vqSGD, which have no bias, as far as the bits are enough."""
    most = float("inf") if bits is None else bits
    candidates = []
    flat = [one for one in _flat_channels(dim, epsilon) if one[1] <= most]
    if flat:
        enough = (1 + slack) * min(variance for *_, variance in flat)
        code, size, variance = next(one for one in flat if one[2] <= enough)
        options = {"dim": dim, "epsilon": epsilon, "bits": code}
        candidates.append(
            Candidate(
                f"SSTQ, b = {code}",
                "sstq",
                options,
                size,
                ExpectedError(0.0, variance / clients),
            )
        )
    if (size := (2 * dim - 1).bit_length()) <= min(most, 25):
        variance = VqSGD(dim, epsilon).largest_message() ** 2 - 1
        options = {"dim": dim, "epsilon": epsilon}
        candidates.append(
            Candidate(
                "vqSGD", "vqsgd", options, size, ExpectedError(0.0, variance / clients)
            )
        )
    return candidates


def _of_packages(
    dim: int, epsilon: float, clients: int, bits: int | None
) -> list[Candidate]:
    """The exact mechanisms of vectors that installed packages bring, as far as the bits are enough."""
    candidates = []
    for name in installed_mechanisms():
        cost = _of_package(name, dim, epsilon)
        if cost is not None and (bits is None or cost[0] <= bits):
            size, error = cost
            options = {"dim": dim, "epsilon": epsilon}
            mean = ExpectedError(error.bias2, error.variance / clients)
            candidates.append(Candidate(name, name, options, size, mean))
    return candidates


@lru_cache(maxsize=1024)
def _of_package(
    name: str, dim: int, epsilon: float
) -> tuple[int, ExpectedError] | None:
    """The bits of a mechanism and the error of one message; None if it is not for such vectors."""
    needed = {
        option
        for option, taken in options_of(name).items()
        if taken.default is taken.empty
    }
    if needed != {"dim", "epsilon"} or not mechanism_class(name).exact:
        return None
    try:
        built = mechanism(name, dim=dim, epsilon=epsilon)
    except ValueError:
        return None
    return built.message_bits, built.typical_error()


@lru_cache(maxsize=64)
def _flat_channels(dim: int, epsilon: float) -> list[tuple[int, int, float]]:
    """The bits of the code, of the message, and the variance of one client of SSTQ, until more bits are worse."""
    channels: list[tuple[int, int, float]] = []
    for bits in range(1, _SSTQ_BITS + 1):
        built = SSTQ(dim, epsilon, bits=bits)
        channels.append((bits, built.message_bits, built.typical_error().variance))
        if bits > 1 and channels[-1][2] > channels[-2][2]:
            break
    return channels


@lru_cache(maxsize=1024)
def _one_frame(dim: int, epsilon: float) -> tuple[RowDraw, int]:
    """The draw of FrameUnit and its bits, with one frame."""
    built = FrameUnit(dim, epsilon)
    return built.row_draw, built.message_bits


def _choose_frames(
    dim: int, epsilon: float, clients: int, bits: int | None
) -> tuple[float, int, int]:
    """Return the ε to spend, the frames, and the frames that would make the bias negligible.

    G frames cost log₂ G bits. Where they are too few it may be better to spend less ε, because the
    bias grows with it.
    """
    draw, size = _one_frame(dim, epsilon)
    wanted = draw.frames_for(clients)
    if bits is None or wanted.bit_length() - 1 <= bits - size:
        return epsilon, wanted, wanted
    frames = 1 << (bits - size)

    def mse(spent: float) -> float:
        return _one_frame(dim, spent)[0].error(frames, clients).total

    best = epsilon
    for spent in (spent for spent in _SPENDINGS if spent < epsilon):
        if _one_frame(dim, spent)[0].client_error() / clients >= mse(best):
            break  # the noise alone grows as less is spent
        best = min(best, spent, key=mse)
    return best, frames, wanted


def _frameunit(dim: int, epsilon: float, clients: int, bits: int | None) -> Candidate:
    spent, frames, wanted = _choose_frames(dim, epsilon, clients, bits)
    draw, size = _one_frame(dim, spent)
    options = {"dim": dim, "epsilon": spent} | (
        {"frames": frames} if frames > 1 else {}
    )
    label = f"FrameUnit, {frames} frames" if frames > 1 else "FrameUnit"
    size += (frames - 1).bit_length()
    return Candidate(
        label, "frameunit", options, size, draw.error(frames, clients), frames, wanted
    )
