"""What frames leave beside the noise: the one rule that plans, specs, notes, warnings and error bars of FrameUnit ask.

One frame leaves the squared bias b² of `frame_alignment.frame_bias2`, and G frames leave b²/G, however many clients
there are. One client's estimate has the mean squared error e² over frames, so that the variance of a mean of n clients
on G given frames is (e² − b²/G)/n. The bias matters when it exceeds a fifth of the error of the mean.
"""

from __future__ import annotations

import math
from functools import lru_cache

from sstq.mechanisms.base import ExpectedError
from sstq.mechanisms.closest import KClosest
from sstq.mechanisms.frameunit.alignment import alignment, frame_bias2, second_moment

__all__ = [
    "BIAS_SHARE",
    "CLIENTS_MAX",
    "FRAMES_MAX",
    "bias_matters",
    "client_error",
    "clients_allowed",
    "frame_error",
    "frames_needed",
]

BIAS_SHARE = 0.2
"""The frames' bias matters when it is more than this share of the error of the mean."""

FRAMES_MAX = 1 << 30
"""No mechanism has more frames."""

CLIENTS_MAX = 1 << 62
"""More clients than anybody asks for."""


def frame_error(draw: KClosest, dim: int, size: int, frames: int, clients: int) -> ExpectedError:
    """The error of the mean of clients that all hold one unit vector, on average over frame seeds: a closed form.

    Args:
        draw: of one of the signed rows that take part, which holds ε.
        dim: d.
        size: N.
        frames: G.
        clients: n.

    Examples:
        >>> from sstq.mechanisms.frameunit.alignment import best_draw
        >>> error = frame_error(best_draw(3.0, 16_384), dim=10_000, size=16_384, frames=4, clients=1000)
        >>> round(error.bias2, 3), round(error.variance, 2)
        (0.074, 7.43)
    """
    of_frame, of_client = _one_frame_bias2(draw, dim, size), client_error(draw, dim, size)
    return ExpectedError(of_frame / frames, max(of_client - of_frame / frames, 0.0) / clients)


def bias_matters(error: ExpectedError, share: float = BIAS_SHARE) -> bool:
    """Whether the bias is more than that share of the error.

    Examples:
        >>> bias_matters(ExpectedError(bias2=0.04, variance=0.96)), bias_matters(ExpectedError(0.041, 0.96))
        (False, True)
    """
    return error.bias2 > share**2 * error.total


def frames_needed(draw: KClosest, dim: int, size: int, clients: int, share: float = BIAS_SHARE) -> int:
    """The least power of two of frames with which the bias does not matter; `FRAMES_MAX` where that is not enough.

    Examples:
        >>> from sstq.mechanisms.frameunit.alignment import best_draw
        >>> frames_needed(best_draw(3.0, 256), dim=256, size=256, clients=100_000)
        8192
    """
    of_frame, of_client = _one_frame_bias2(draw, dim, size), client_error(draw, dim, size)
    # From b²/G = share²·(b²/G + (e² − b²/G)/n).
    needed = of_frame / of_client * (1 + clients * (1 / share**2 - 1))
    frames = 1 << math.ceil(math.log2(max(needed, 1.0)))
    while frames < FRAMES_MAX and bias_matters(frame_error(draw, dim, size, frames, clients), share):
        frames *= 2
    return min(frames, FRAMES_MAX)


def clients_allowed(draw: KClosest, dim: int, size: int, frames: int) -> int:
    """The most clients for which so many frames are enough; none where not even for one.

    Examples:
        >>> from sstq.mechanisms.frameunit.alignment import best_draw
        >>> clients_allowed(best_draw(3.0, 256), dim=256, size=256, frames=8192)
        132639
    """
    of_frame, of_client = _one_frame_bias2(draw, dim, size), client_error(draw, dim, size)
    if not of_frame:
        return CLIENTS_MAX
    allowed = max(0, int((of_client * frames / of_frame - 1) / (1 / BIAS_SHARE**2 - 1)))
    while allowed and bias_matters(frame_error(draw, dim, size, frames, allowed)):
        allowed -= 1
    return min(allowed, CLIENTS_MAX)


@lru_cache(maxsize=4096)
def client_error(draw: KClosest, dim: int, size: int) -> float:
    """The e² of one client's estimate of a unit vector, bias and variance together, over all frames.

    E‖x̂‖² is E‖u‖²/m² of the row u that is sent.

    Examples:
        >>> from sstq.mechanisms.frameunit.alignment import best_draw
        >>> round(client_error(best_draw(3.0, 16_384), 10_000, 16_384) / 10_000, 4)
        0.7425
    """
    return max(second_moment(draw, dim, size) / alignment(draw, dim, size) ** 2 - 1, 1e-12)


@lru_cache(maxsize=4096)
def _one_frame_bias2(draw: KClosest, dim: int, size: int) -> float:
    """The b² of one frame; kept, because with few public rows it takes seconds for ten million dimensions."""
    return max(frame_bias2(draw, dim, size), 0.0)
