"""FrameUnit: one signed row of a fast frame, the well aligned ones likelier; the least error of ε-LDP in log₂ 2N bits.

PrivUnit draws from the cap around x or from the rest of the sphere. Here the sphere is replaced by the 2N signed rows
of a mixed Hadamard frame, and the cap by the k of them that are best aligned with x: k-closest encoding on a rotated
cross-polytope.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation import FrameAggregator
from sstq.layouts import Column, Field, Layout
from sstq.messages import Messages
from sstq.randomness import BitSource
from sstq.schemes.base import LocalReport, check_number, row_chunks
from sstq.schemes.closest import KClosest, draw_places
from sstq.schemes.frame_alignment import alignment, best_draw
from sstq.schemes.framed import FramedMechanism
from sstq.schemes.mixed_frame import MixedFrame
from sstq.schemes.sphere import random_directions

__all__ = ["FrameUnit"]

# Below this many coordinates two mixings are not enough, and fewer rows are not like a uniform direction's coordinates.
_MIXED_SIZE = 256
_SIZE_MAX = 1 << 30

# Draws that are not better aligned than chance would leave nothing to decode.
_ALIGNMENT_MIN = 1e-30
# Two machines compute the alignment alike to about 1e-12; the JSON's is what both use.
_ALIGNMENT_TOLERANCE = 1e-6

_NEVER_FLIPPED = np.uint64(2**64 - 1)

_SIGNS = np.array([1.0, -1.0])
_SIGNS.setflags(write=False)


@dataclass(frozen=True, init=False, eq=False)
class FrameUnit(FramedMechanism):
    """PrivUnit restricted to the signed rows of a fast frame: optimal error, exactly ε-LDP, O(1) a message.

    U is the N×d Hadamard frame mixed twice (three times below 256 dimensions), c = U x. Of the 2N signed rows ±u_j the
    k best aligned with x are inside: since they come in pairs, those of the k largest |c_j|, with the sign of c_j; ties
    go to the smaller j, and c_j = 0 counts as positive. A row inside is sent with probability T/2^62, else one of the
    others, uniformly on either side. The estimate is x̂ = clip·(±u_j)/m with the alignment m = E⟨±u_j, x⟩/‖x‖ over
    messages and frames, from the order statistics of a uniform direction of R^N (`sstq.schemes.frame_alignment`). A
    vector shorter than clip is flipped with probability (1 − ‖x‖/clip)/2.

    On average over frames the squared error is clip²/m² − ‖x‖², up to terms of relative order 1/d from the norms of
    rows; at d = 10,000 that is PrivUnitG's optimum to 0.02 % for ε up to 6, and to 0.4 % at ε = 10. Privacy is exact
    and holds for every frame: T is the largest integer with T·⌈2^62/k⌉ ≤ e^ε·(2^62 − T)·⌊2^62/(2N − k)⌋.

    Kin: RRSC (Isik et al., *Exact optimality of communication-privacy-utility tradeoffs in distributed mean
    estimation*, NeurIPS 2023) is k-closest encoding on a simplex rotated anew for every client.

    Warning:
        Unbiased over messages and frame seeds together (`unbiased_over_frames`), not for one frame: `unbiased` is
        False. The mean for one frame is off by bias² ≈ 0.49·(d/N)·‖x‖² at ε = 3, mostly orthogonally to x, which more
        clients do not lower. `expected_mse` states it exactly for the frame at hand. Use a fresh frame every round,
        ``mechanism.with_frame_seed(sstq.mix_seed(base_seed, round_number))``, and fewer clients than dimensions (the
        noise of a mean of n is about 0.74·d/n there); for n > d/10 the bias is no longer negligible.

    Args:
        dim: d, the length of the vectors, up to 2^30.
        epsilon: ε of the local differential privacy of one message, 0.01 to 20.
        clip: vectors longer than this are scaled down to it.
        frame_size: N, a power of two from d to 2^30; the least one that is also at least 256 unless given. Fewer rows
            than 256 are private all the same, but not aligned as m says.
        frame_seed: the public seed of the frame.

    Examples:
        >>> mechanism = FrameUnit(dim=10_000, epsilon=3.0)
        >>> mechanism.message_bits
        15
        >>> round((mechanism.alignment**-2 - 1) / 10_000, 4)
        0.7425
        >>> error = mechanism.expected_mse(np.full(10_000, 0.01), clients=100)
        >>> error.bias2 < 0.4 < 70 < error.variance < 80
        True
    """

    name: ClassVar[str] = "frameunit"
    exact: ClassVar[bool] = True
    unbiased_over_frames: ClassVar[bool] = True

    dim: int
    epsilon: float
    clip: float
    frame: MixedFrame
    choice: KClosest
    alignment: float

    def __init__(
        self, dim: int, epsilon: float, clip: float = 1.0, *, frame_size: int | None = None, frame_seed: int = 0
    ) -> None:
        dim = check_number("dim", dim, 1, _SIZE_MAX, integer=True)
        epsilon = check_number("epsilon", epsilon, 0.01, 20)
        size = 1 << (max(dim, _MIXED_SIZE) - 1).bit_length() if frame_size is None else frame_size
        frame = _mixed_frame(dim, size, frame_seed)
        draw = best_draw(epsilon, frame.size)
        self._set_parts(dim=dim, epsilon=epsilon, clip=clip, frame=frame, choice=draw, alignment=alignment(draw, dim))

    def _set_parts(self, **parts: Any) -> None:
        """Take the parts, whether built from options or read from JSON."""
        parts["clip"] = check_number("clip", parts["clip"], 1e-100, 1e100)
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"FrameUnit(dim={self.dim}, epsilon={self.epsilon}, clip={self.clip}, frame_size={self.frame.size}, "
            f"frame_seed={self.frame.seed})"
        )

    @property
    def unbiased(self) -> bool:
        """No: over messages and frame seeds together the mean is x, but not for the one frame that is used."""
        return False

    @property
    def layout(self) -> Layout:
        """One field of log₂ 2N bits: row 2j is u_j, row 2j + 1 its opposite."""
        return Layout((Field("row", self.frame.size.bit_length(), 2 * self.frame.size),))

    @property
    def decoding_values(self) -> NDArray[np.float64]:
        """The sign of a row by its lowest bit."""
        return _SIGNS

    @property
    def decoding_scale(self) -> float:
        """The w with x̂ = ±d·w·u_j, which is clip/(d·m)."""
        return self.clip / (self.dim * self.alignment)

    def indices_and_codes(self, messages: Messages) -> tuple[NDArray[Any], NDArray[Any]]:
        """The frame row and the sign's code of every message."""
        row = messages.column("row")
        return row >> 1, row & 1

    @property
    def _row_cost(self) -> int:
        return 4 * self.frame.size

    def _encode_unit(
        self,
        unit: NDArray[np.float32],
        clients: NDArray[np.uint64] | None,  # noqa: ARG002 (the coin is private)
        source: BitSource,
        report: LocalReport | None,  # noqa: ARG002 (there is nothing to miss)
    ) -> tuple[Column, ...]:
        # Always three words a message, drawn before anything is known of the data.
        words = source.words(3 * len(unit)).reshape(-1, 3)
        # Scores only tell the inside from the outside; no rounding error here can cost privacy.
        scores = self._scores(random_directions(unit, words[:, 0]))
        inside = _largest(np.abs(scores), self.choice.inside)
        places = draw_places(self.choice.size, self.choice.inside, np.uint64(self.choice.threshold), words[:, 1:])
        return (_rows_at(places, scores, inside, self.choice.inside),)

    def _scores(self, directions: NDArray[np.float64]) -> NDArray[Any]:
        return self.frame.analyze(directions.astype(np.float32))

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate ±clip·u_j/m of each message alone, (n, d): for diagnosis; a mean comes from `aggregator`."""
        self._check_own(messages)
        index, code = self.indices_and_codes(messages)
        estimates = np.empty((len(messages), self.dim))
        for part in row_chunks(len(messages), self.frame.size):
            estimates[part] = self.frame.rows(index[part].astype(np.int64))
        estimates *= (self.dim * self.decoding_scale * self.decoding_values[code])[:, None]
        return estimates

    def aggregator(self) -> FrameAggregator:
        """An empty aggregator for this mechanism's messages, O(1) a message."""
        return FrameAggregator(self)

    def privacy_loss(self) -> float:
        """The exact largest log-ratio of the draw's integers, rounded up to a double."""
        return self.choice.privacy_loss()

    @cached_property
    def _squared_row_norms(self) -> NDArray[np.float64]:
        return self.frame.squared_row_norms()

    def _row_error(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Exact for this frame, to the 2^62 of the second word: all signed rows sum to zero, those inside do not."""
        unit, _ = self._unit_ball(rows)
        norms = np.minimum(np.linalg.norm(unit.astype(np.float64), axis=1, keepdims=True), 1.0)
        scores = self._scores(random_directions(unit, np.full(len(unit), _NEVER_FLIPPED)))
        inside = _largest(np.abs(scores), self.choice.inside)
        # A flip, of probability (1 − ‖x‖)/2, turns every sign but those of scores that are zero.
        signs: NDArray[np.float64] = np.where(scores == 0, 1.0, norms * np.sign(scores)) * inside
        own, other = self.choice.probabilities
        gain = self.clip / self.alignment
        mean = np.asarray(self.frame.synthesize(signs), dtype=np.float64)
        mean *= gain * (own - other) * self.frame.redundancy
        power = gain**2 * (2 * self.frame.size * other + (own - other) * (inside @ self._squared_row_norms))
        return mean, power - np.einsum("ij,ij->i", mean, mean)

    def to_dict(self) -> dict[str, Any]:
        """Everything public, the draw's integers and the alignment included, as JSON values."""
        return {
            "dim": self.dim,
            "epsilon": self.epsilon,
            "clip": self.clip,
            "frame": {"size": self.frame.size, "seed": self.frame.seed, "rounds": self.frame.rounds},
            "inside": self.choice.inside,
            "threshold": self.choice.threshold,
            "alignment": self.alignment,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FrameUnit:
        """The mechanism whose `to_dict` this is; its integers are checked again, not solved again."""
        dim = check_number("dim", data["dim"], 1, _SIZE_MAX, integer=True)
        epsilon = check_number("epsilon", data["epsilon"], 0.01, 20)
        frame = _mixed_frame(dim, data["frame"]["size"], data["frame"]["seed"])
        if data["frame"]["rounds"] != frame.rounds:
            raise ValueError(f"rounds must be {frame.rounds} for dim={dim}, got {data['frame']['rounds']!r}")
        # With more than N inside some rows would be inside with both signs, which the best draw never has.
        inside = check_number("inside", data["inside"], 1, frame.size, integer=True)
        draw = KClosest(epsilon, 2 * frame.size, inside, data["threshold"])
        stated = check_number("alignment", data["alignment"], _ALIGNMENT_MIN, _SIZE_MAX)
        if not abs(stated - alignment(draw, dim)) <= _ALIGNMENT_TOLERANCE * stated:
            raise ValueError(f"alignment must be {alignment(draw, dim):.9g} for these integers, got {stated}")
        mechanism = object.__new__(cls)
        mechanism._set_parts(dim=dim, epsilon=epsilon, clip=data["clip"], frame=frame, choice=draw, alignment=stated)
        return mechanism


def _mixed_frame(dim: int, size: Any, seed: Any) -> MixedFrame:
    size = check_number("frame_size", size, dim, _SIZE_MAX, integer=True)
    seed = check_number("frame_seed", seed, 0, 2**64 - 1, integer=True)
    return MixedFrame(dim, size, seed, rounds=2 if dim >= _MIXED_SIZE else 3)


def _largest(values: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Which are the `count` largest of each row: exactly so many, ties going to the smaller index."""
    place = values.shape[1] - count
    bar = np.partition(values, place, axis=1)[:, place, None]
    chosen: NDArray[np.bool_] = values >= bar
    surplus = np.count_nonzero(chosen, axis=1) - count
    tied = np.flatnonzero(surplus)
    if len(tied):
        ties = values[tied] == bar[tied]
        ties_from_here = np.cumsum(ties[:, ::-1], axis=1)[:, ::-1]
        chosen[tied] &= ~ties | (ties_from_here > surplus[tied, None])
    return chosen


def _rows_at(
    places: NDArray[np.int64], scores: NDArray[Any], inside: NDArray[np.bool_], count: int
) -> NDArray[np.int64]:
    """The signed rows at the given places: those inside by index, then their opposites, then both signs of the rest."""
    is_rest = places >= 2 * count
    rank = np.where(is_rest, (places - 2 * count) >> 1, places % count)
    passed = np.cumsum(inside ^ is_rest[:, None], axis=1, dtype=np.int32)
    index = np.count_nonzero(passed <= rank[:, None], axis=1)
    is_negative = np.take_along_axis(scores, index[:, None], axis=1)[:, 0] < 0
    rows: NDArray[np.int64] = 2 * index + np.where(is_rest, places & 1, is_negative ^ (places >= count))
    return rows
