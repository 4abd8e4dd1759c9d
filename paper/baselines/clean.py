"""Clean: the clipped vector itself in single precision, without privacy, as a baseline for the other mechanisms."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from paper.baselines.not_private import ROUNDING, NotPrivate
from sstq.extending import (
    Batch,
    Columns,
    FloatField,
    Floats,
    Layout,
    Messages,
    Rows,
    Solved,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class CleanSolved(Solved):
    """The values of Clean. ε is infinite, which JSON cannot express."""

    dim: int
    clip: float


class Clean(NotPrivate):
    """The clipped vector as d single-precision numbers: unbiased (rounding aside), of variance 0, in 32·d bits.

    Warning:
        Nothing is private: `epsilon` and `privacy_loss` are infinite, and `exact` is False, because there is no privacy
        to be exact about.

    Examples:
        >>> mechanism = Clean(dim=3, clip=2.0)
        >>> mechanism.message_bits, mechanism.privacy_loss()
        (96, inf)
        >>> mechanism.decode(mechanism.encode(np.array([3.0, 0.0, 4.0]))).round(6)
        array([[1.2, 0. , 1.6]])
    """

    name = "clean"
    variants: ClassVar = {"Clean": {}}
    solved_class = CleanSolved

    def __init__(self, dim: int, *, clip: float = 1.0) -> None:
        given = dict(locals())
        self.settle(given, CleanSolved(**self.checked(dim=dim, clip=clip)))

    @cached_property
    def layout(self) -> Layout:
        """The vector in units of clip."""
        return Layout((FloatField("value", count=self.dim),))

    @property
    def decoding_bound(self) -> float:
        """The largest decoded coordinate, with room for the rounding to single precision."""
        return self.clip * (1 + ROUNDING)

    def encode_batch(self, batch: Batch) -> Columns:
        """Encode checked rows."""
        unit = self.unit_ball(batch.rows, batch.report)
        return (unit[:, 0] if self.dim == 1 else unit,)

    def check_messages(self, messages: Messages) -> None:
        """Refuse messages that no client sends."""
        values = messages.column("value").reshape(-1, self.dim)
        # In double precision the square of a float32 cannot overflow.
        norms = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
        for row in np.flatnonzero(norms > 1 + ROUNDING):
            raise ValueError(
                f"message {row}: its norm must be at most clip, got {norms[row]:g} times clip"
            )

    def _decoded(self, messages: Messages) -> Floats:
        return (
            messages.column("value").reshape(-1, self.dim).astype(np.float64)
            * self.clip
        )

    def largest_message(self) -> float:
        """The clipped vector."""
        return self.decoding_bound

    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """The mean and the variance of the estimate of each row."""
        return self.unit_ball(rows).astype(np.float64) * self.clip, np.zeros(len(rows))
