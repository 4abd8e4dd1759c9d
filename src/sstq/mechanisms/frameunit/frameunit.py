"""FrameUnit: one signed row of a fast frame, preferring aligned rows; optimal error for ε-LDP in log₂ 2N bits."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sstq.aggregation import Estimator, FrameEstimator
from sstq.array_types import Ints
from sstq.inputs.bounds import read_ranges
from sstq.mechanisms.agreement import Ranges
from sstq.mechanisms.base import SIGNS, Rows
from sstq.mechanisms.frameunit.row_estimates import RowEstimator
from sstq.mechanisms.frameunit.rows import (
    RowMechanism,
    RowSolved,
    check_frame_size,
    solve_rows,
    usual_size,
)

# Two mixings leave a few spikes misaligned by more than 1 % up to so many coordinates (7 % at d = 300, ε = 10), which
# also matters where the bias of single frames averages out over so many frames.
_THREE_MIXINGS = 4096
_MANY_FRAMES = 32


@dataclass(frozen=True, eq=False, kw_only=True)
class FrameUnitSolved(RowSolved):
    """The values of FrameUnit."""

    bits: None  # JSON of version 2 has it
    bounds: Ranges | None = None


class FrameUnit(RowMechanism):
    """PrivUnit restricted to the signed rows of a fast frame: optimal error, exactly ε-LDP, O(1) per message.

    PrivUnit draws from the cap around x or from the rest of the sphere. Here the sphere is the 2N signed rows of U, the
    N×d Hadamard frame mixed twice (three times up to 4096 dimensions or from 32 frames on), and the cap the k rows best
    aligned with x: with c = U x those of the k largest |c_j|, with the sign of c_j; ties go to the smaller j, and
    c_j = 0 counts as positive. A row inside is sent with probability
    T/2^62, else one of the others, uniformly on either side. The estimate is x̂ = clip·(±u_j)/m with the alignment
    m = E⟨±u_j, x⟩/‖x‖ over messages and frames, from the order statistics of a uniform direction of R^N
    (`sstq.mechanisms.frameunit.alignment`). A vector shorter than clip is flipped with probability (1 − ‖x‖/clip)/2.

    On average over frames the squared error is clip²/m² − ‖x‖², up to terms of relative order 1/d from the norms of
    rows; at d = 10,000 that is PrivUnitG's optimum to 0.02 % for ε up to 6, and to 0.4 % at ε = 10. Privacy is exact
    and holds for every frame: T is the largest integer with T·⌈2^62/k⌉ ≤ e^ε·(2^62 − T)·⌊2^62/(2N − k)⌋.

    With `frames=G` every client draws one of G frames and sends its number in log₂ G more bits.

    Related: RRSC (Isik et al., NeurIPS 2023) is k-closest encoding on a simplex rotated afresh for every client.

    Warning:
        Unbiased on average over random frames; one frame is slightly biased. `unbiased` is "over frames", which counts
        as False. For one frame the mean has a bias² ≈ 0.49·(d/N)·‖x‖² at ε = 3, mostly orthogonal to x, which more
        clients do not reduce; G frames reduce it to 1/G of that. `expected_mse` states it, exactly for up to 64 frames.
        With ``clients=n`` there are enough frames to keep the bias below a fifth of the error. Use fresh frames every
        round, ``mechanism.with_seed(sstq.mix_seed(base_seed, round_number))``.

    Args:
        frames: G, the number of frames that clients spread over, up to 2^30; 1 by default.
        clients: n, the clients per round, which gives G = ``frames_for(clients)``; instead of `frames`.
        messages: m, the messages per client, each on its own frame, for a shuffler that mixes every slot
            separately. `epsilon` is that of one message; without a shuffler a client spends `bundle_epsilon`, m·ε.
        inside: k, the number of rows inside; by default the k of least error at ε. A shuffler favours other values
            (`sstq.planning.shuffled_mechanism`).
        frame_size: N, a power of two from d to 2^30; by default the least one that is at least 256. Fewer rows
            than 256 are just as private, but their alignment is not m.
        bounds: the range of each column, {name: (low, high)} or an array of shape (dim, 2): columns are centred and
            scaled into the ball, and the mean is in their units.

    Examples:
        >>> mechanism = FrameUnit(dim=10_000, epsilon=3.0)
        >>> mechanism.message_bits, round((mechanism.alignment**-2 - 1) / 10_000, 4)
        (15, 0.7425)
        >>> mechanism.frames_for(clients=1_000_000), FrameUnit(dim=10_000, epsilon=3.0, clients=1_000_000).frames
        (1024, 1024)
        >>> FrameUnit(dim=10_000, epsilon=3.0, frames=1024).message_bits
        25
    """

    name = "frameunit"
    variants: ClassVar = {"FrameUnit": {}}

    solved_class = FrameUnitSolved
    solved: FrameUnitSolved

    def __init__(
        self,
        dim: int,
        epsilon: float,
        *,
        clip: float = 1.0,
        frames: int | None = None,
        clients: int | None = None,
        messages: int = 1,
        frame_size: int | None = None,
        inside: int | None = None,
        frame_seed: int = 0,
        bounds: Any = None,
    ) -> None:
        given = dict(locals())
        common = self.checked(
            dim=dim,
            epsilon=epsilon,
            clip=clip,
            messages=messages,
            frame_seed=frame_seed,
        )
        shown: dict[str, Any] = {}
        if bounds is not None:
            bounds = read_ranges(bounds, common["dim"])
            shown["bounds"] = {name: (low, high) for name, low, high in bounds}
        size = usual_size(dim) if frame_size is None else frame_size
        size = check_frame_size(size, dim, blocks=1)
        shape = dim, size, 1, dim, 0.0
        solved = solve_rows(
            common, *shape, inside=inside, frames=frames, clients=clients
        )
        self.settle(
            given,
            FrameUnitSolved(
                **common, **solved, bits=None, bounds=bounds, coin="private"
            ),
            **shown,
        )

    def check_solved(self) -> None:
        """Refuse solved values that do not belong together."""
        self._check_rows()

    def _in_block(self, rows: Rows) -> tuple[Ints, Rows]:
        return np.zeros(len(rows), dtype=np.int64), rows

    @property
    def _mixings(self) -> int:
        return 3 if self.dim <= _THREE_MIXINGS or self.frames >= _MANY_FRAMES else 2

    @cached_property
    def estimator(self) -> Estimator:
        """Sums of one frame, or the rows that were sent of several."""
        if self.frames == 1:
            return FrameEstimator(self, self.frame, SIGNS, self.gain / self.dim)
        return RowEstimator(
            self, self.family, self.row_draw, self.gain, self.vector_frames, self.dim
        )
