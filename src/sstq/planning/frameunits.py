"""FrameUnit for the planner: the error of one frame in closed form, how many frames, and how much of ε to spend.

One frame leaves a bias that more clients do not lower. G frames leave 1/G of its square. With a private coin they cost
log₂ G bits. Where the bits are capped the frames are too few, and since the bias grows with ε it may then be better to
spend less than the ε that is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sstq.mechanisms.frameunit.bias import BIAS_SHARE, FRAMES_MAX, client_error, frame_error, frames_needed
from sstq.mechanisms.frameunit.mechanism import FrameUnit
from sstq.planning.offers import Offer, Terms

__all__ = ["FrameUnitFamily", "all_rows_error", "one_client_error", "private_family", "public_family"]

# With a public coin frames take no bits, and the share of the error that their bias may have is smaller.
_PUBLIC_BIAS_SHARE = BIAS_SHARE / 2

# The ε below the allowed one that are tried where frames are too few, to three digits. Between two of them the error is
# within 0.1 % of its least.
_SPENDINGS = tuple(float(f"{20 * 1.05**-step:.3g}") for step in range(156))


@dataclass(frozen=True)
class FrameUnitFamily:
    """FrameUnit with all rows and a private coin, or with b bits and a public one.

    Attributes:
        terms: what is given.
        epsilon: ε that may be spent.
        bits: b, or None for all rows.
    """

    terms: Terms
    epsilon: float
    bits: int | None

    def offer(self, clients: int) -> Offer:
        """As many frames as make the bias negligible, or as the bits have room for."""
        wanted = self._wanted_frames(self.epsilon, clients)
        frames = min(wanted, self._most_frames())
        best = self._spending(self.epsilon, frames, clients, wanted)
        if frames < wanted:
            for spent in (spending for spending in _SPENDINGS if spending < self.epsilon):
                # The noise alone grows as less is spent.
                if one_client_error(_one_frame(self.terms.dim, spent, self.bits)) / clients >= best.mse:
                    break
                best = min(best, self._spending(spent, frames, clients, wanted), key=lambda offer: offer.mse)
        return best

    def worth_asking(self, mse: float, clients: int, *, thorough: bool) -> bool:  # noqa: ARG002 (it is fast)
        """Always."""
        return True

    def _most_frames(self) -> int:
        if self.bits is not None or self.terms.bits is None:
            return FRAMES_MAX
        return 1 << min(30, self.terms.bits - _one_frame(self.terms.dim, self.epsilon, None).message_bits)

    def _wanted_frames(self, epsilon: float, clients: int) -> int:
        one = _one_frame(self.terms.dim, epsilon, self.bits)
        share = BIAS_SHARE if self.bits is None else _PUBLIC_BIAS_SHARE
        return frames_needed(one.choice, one.dim, one.frame.size, clients, share)

    def _spending(self, epsilon: float, frames: int, clients: int, wanted: int) -> Offer:
        mechanism = _one_frame(self.terms.dim, epsilon, self.bits)
        error = frame_error(mechanism.choice, mechanism.dim, mechanism.frame.size, frames, clients)
        arguments = {} if self.bits is None else {"bits": self.bits}
        extra = 0 if self.bits is not None else (frames - 1).bit_length()
        return Offer(
            label=_label(self.bits, frames),
            name=FrameUnit.name,
            arguments=arguments if frames == 1 else {**arguments, "frames": frames},
            epsilon=epsilon,
            bits=mechanism.message_bits + extra,
            coin=mechanism.coin,
            bias2=error.bias2,
            variance=error.variance,
            wanted_frames=wanted,
        )


def private_family(terms: Terms, epsilon: float) -> list[FrameUnitFamily]:
    """All rows and a private coin, if the bits have room for one frame."""
    fits = terms.allows(_one_frame(terms.dim, epsilon, None).message_bits)
    return [FrameUnitFamily(terms, epsilon, None)] if fits else []


def public_family(terms: Terms, epsilon: float) -> list[FrameUnitFamily]:
    """The fewest bits whose error, but for the frames' bias, is within the slack of that of the most bits allowed."""
    most = _one_frame(terms.dim, epsilon, None).message_bits
    most = most if terms.bits is None else min(most, terms.bits)
    enough = (1 + terms.slack) * one_client_error(_one_frame(terms.dim, epsilon, most))
    chosen = next(b for b in range(1, most + 1) if one_client_error(_one_frame(terms.dim, epsilon, b)) <= enough)
    return [FrameUnitFamily(terms, epsilon, chosen)]


def all_rows_error(dim: int, epsilon: float) -> float:
    """The error of one client's estimate with all rows, over frames: the optimum in high dimensions.

    Examples:
        >>> round(all_rows_error(10_000, 3.0) / 10_000, 4)
        0.7425
    """
    return one_client_error(_one_frame(dim, epsilon, None))


def one_client_error(mechanism: FrameUnit) -> float:
    """The mean squared error of one client's estimate of a unit vector, bias and variance, over all frames.

    Examples:
        >>> round(one_client_error(FrameUnit(10_000, 3.0)) / 10_000, 4)
        0.7425
    """
    return client_error(mechanism.choice, mechanism.dim, mechanism.frame.size)


@lru_cache(maxsize=512)
def _one_frame(dim: int, epsilon: float, bits: int | None) -> FrameUnit:
    return FrameUnit(dim, epsilon, bits=bits)


def _label(bits: int | None, frames: int) -> str:
    rows = "FrameUnit" if bits is None else f"FrameUnit, public coin, b = {bits}"
    return rows if frames == 1 else f"{rows}, {frames} frames"
