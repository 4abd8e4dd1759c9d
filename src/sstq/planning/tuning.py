"""The Kashin level and the redundancy of SSTQ, tuned together for a channel.

The error of an unbiased channel at level β = K/√ρ is MSE/d = β²·E[w²] − 1/d, E[w²] being that of the decoded coordinate
in units of the bound, under the density of typical coordinates at that level. At small ε the channel's noise dominates,
which grows with β²: the lowest level that still has exact representations is best, and a more redundant frame allows a
lower one, down to √(π/2). Each doubling of N costs one bit of the index and twice the time of encoding. At large ε the
coordinates themselves dominate, and E[t²] falls as the level rises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sstq.checks import check_number
from sstq.frames.kashin import least_level
from sstq.frames.tight import default_frame_size
from sstq.mechanisms import SSTQ
from sstq.scalar.channels import decoded_second_moment
from sstq.scalar.densities import Density

# Levels above the least that are tried, upward until the error rises.
_HIGHER = (1.8, 2.0, 2.2, 2.5, 3.0, 4.0)
# Frames up to this many times the default are tried; of those within the slack of the best, the smallest is taken.
_LARGEST_FACTOR = 4
_SLACK = 0.005


@dataclass(frozen=True)
class Tuned:
    """The mechanism with the chosen frame size and level, the default one, and the predicted MSE/d of both."""

    mechanism: SSTQ
    default: SSTQ
    mse: float
    default_mse: float

    @property
    def gain(self) -> float:
        """The share of the default's error that is saved."""
        return 1 - self.mse / self.default_mse


def predicted_error(mechanism: SSTQ) -> float:
    """The MSE/d of one typical unit vector, without a representation; the decoder must be unbiased."""
    beta = mechanism.kashin.bound(mechanism.frame)
    typical = Density.kashin(beta, mechanism.frame.redundancy)
    power = decoded_second_moment(mechanism.channel, mechanism.codebook, mechanism.decoder.values, typical)
    return beta**2 * power - 1 / mechanism.dim


def tune(
    dim: int,
    epsilon: float,
    bits: int = 4,
    *,
    channel: str = "flat",
    codebook: str | None = None,
    decoder: str | None = None,
    message_bits: int | None = None,
) -> Tuned:
    """Choose N and K of an unbiased SSTQ with a Hadamard frame for the least predicted error.

    Args:
        dim: d.
        epsilon: ε.
        bits: b, of the code.
        channel: as in `sstq.SSTQ`.
        codebook: as in `sstq.SSTQ`.
        decoder: as in `sstq.SSTQ`; a biased one is refused.
        message_bits: the most bits of a message, index included; by default two more than with the default frame.

    Examples:
        >>> tuned = tune(1000, 3.0, 2)
        >>> tuned.mechanism.frame.size, tuned.mechanism.message_bits, round(tuned.mse, 2), round(tuned.gain, 2)
        (16384, 16, 1.83, 0.08)
    """
    given: dict[str, Any] = {"bits": bits, "channel": channel, "codebook": codebook, "decoder": decoder}
    options = {name: value for name, value in given.items() if value is not None}
    default = SSTQ(dim, epsilon, **options)
    dim, bits = default.dim, default.bits
    if default.decoder.name != "unbiased":
        raise ValueError(f"decoder must be 'unbiased' to be tuned, got {default.decoder.name!r}: a bias is no variance")
    least = 1 << (dim - 1).bit_length()
    most = default_frame_size(dim) * _LARGEST_FACTOR
    if message_bits is not None:
        floor = (least - 1).bit_length() + bits
        most = min(most, least << check_number("message_bits", message_bits, floor, 64, integer=True) - floor)

    def best_level(size: int) -> tuple[float, SSTQ]:
        """The least error with a frame, and its mechanism."""
        lowest, best = least_level(dim, size), (math.inf, default)
        higher = (beta * math.sqrt(size / dim) for beta in _HIGHER)
        for level in (lowest, *(level for level in higher if level > lowest)):
            mechanism = SSTQ(dim, epsilon, frame_size=size, level=level, **options)
            error = predicted_error(mechanism)
            if error >= best[0]:
                break
            best = error, mechanism
        return best

    found = [best_level(least << doublings) for doublings in range((most // least).bit_length())]
    default_error, lowest = predicted_error(default), min(error for error, _ in found)
    enough = max(lowest, min((1 + _SLACK) * lowest, default_error))
    mse, chosen = next((error, mechanism) for error, mechanism in found if error <= enough)
    return Tuned(chosen, default, mse, default_error)
