"""The Kashin level and the redundancy of SSTQ, tuned together for a channel.

The error of an unbiased channel at level β = K/√ρ is MSE/d = β²·E[w²] − 1/d, E[w²] being that of the decoded coordinate
in units of the bound, under the density of typical coordinates at that level. At small ε the noise of the channel
rules, which grows with β²: the lowest level that still has exact representations is best, and a more redundant frame
allows a lower one, down to √(π/2). Each doubling of N costs one bit of the index and twice the time of encoding. At
large ε the coordinates themselves rule, and E[t²] falls as the level rises. `tune` weighs frames and levels against
each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sstq.checks import check_number
from sstq.frames.kashin import default_level, default_steps, least_level
from sstq.frames.tight import default_frame_size
from sstq.mechanisms.parts import build_scalar
from sstq.scalar.channels import decoded_second_moment
from sstq.scalar.densities import Density

__all__ = ["Tuned", "tune"]

# Levels above the least that are tried, upward until the error rises.
_HIGHER = (1.8, 2.0, 2.2, 2.5, 3.0, 4.0)

# Frames up to this many times the default are tried; of those within the slack of the best, the smallest is taken.
_LARGEST_FACTOR = 4
_SLACK = 0.005


@dataclass(frozen=True)
class Tuned:
    """A frame size and a level, with what they are predicted to give.

    Attributes:
        frame_size: N.
        level: K.
        steps: of the representation.
        message_bits: of one message with a private coin, ⌈log₂ N⌉ + b.
        mse: the predicted MSE/d of one unit vector.
        default_mse: that of the default N = 2^⌈log₂ 2.5d⌉ and its default level.
        default_message_bits: of the default.
    """

    frame_size: int
    level: float
    steps: int
    message_bits: int
    mse: float
    default_mse: float
    default_message_bits: int

    @property
    def gain(self) -> float:
        """The share of the default's error that is saved."""
        return 1 - self.mse / self.default_mse


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

    Returns:
        The choice, for `sstq.SSTQ(..., frame_size=tuned.frame_size, level=tuned.level, steps=tuned.steps)`.

    Examples:
        >>> tuned = tune(1000, 3.0, 2)
        >>> tuned.frame_size, tuned.message_bits, round(tuned.mse, 2), round(tuned.gain, 2)
        (16384, 16, 1.83, 0.08)
    """
    dim = check_number("dim", dim, 1, 2**30, integer=True)
    epsilon = check_number("epsilon", epsilon, 0.01, 20)
    bits = check_number("bits", bits, 1, 12, integer=True)
    default = default_frame_size(dim)
    least = 1 << (dim - 1).bit_length()
    most = default * _LARGEST_FACTOR
    if message_bits is not None:
        floor = _bits_of(least) + bits
        most = least << check_number("message_bits", message_bits, floor, 64, integer=True) - floor
        most = min(most, default * _LARGEST_FACTOR)

    def error(size: int, level: float) -> float:
        beta = level * math.sqrt(dim / size)
        typical = Density.kashin(beta, size / dim)
        parts = build_scalar(bits, epsilon, channel=channel, codebook=codebook, decoder=decoder, typical=typical)
        if parts[2].name != "unbiased":
            raise ValueError(f"decoder must be 'unbiased' to be tuned, got {parts[2].name!r}: a bias is no variance")
        return beta**2 * decoded_second_moment(parts[0], parts[1], parts[2].values, typical) - 1 / dim

    def best_level(size: int) -> tuple[float, float]:
        """The least error with a frame, and its level."""
        level = least_level(dim, size)
        best = error(size, level), level
        for beta in _HIGHER:
            higher = beta * math.sqrt(size / dim)
            if higher > level:
                tried = error(size, higher), higher
                if tried > best:
                    break
                best = tried
        return best

    sizes = [least << doublings for doublings in range((most // least).bit_length())]
    found = {size: best_level(size) for size in sizes}
    default_error = error(default, default_level(dim, default))
    lowest = min(found.values())[0]
    enough = max(lowest, min((1 + _SLACK) * lowest, default_error))
    chosen = next(size for size in sizes if found[size][0] <= enough)
    mse, level = found[chosen]
    return Tuned(
        frame_size=chosen,
        level=level,
        steps=default_steps(dim, chosen, level),
        message_bits=_bits_of(chosen) + bits,
        mse=mse,
        default_mse=default_error,
        default_message_bits=_bits_of(default) + bits,
    )


def _bits_of(size: int) -> int:
    return (size - 1).bit_length()
