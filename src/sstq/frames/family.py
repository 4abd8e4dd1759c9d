"""Families of mixed Hadamard frames of one shape, over which clients spread so that the bias of frames averages out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sstq.array_types import Floats32, Ints, Reals, Words
from sstq.frames.tight import HadamardFrame, transform_rounds
from sstq.randomness import streams


@dataclass(frozen=True)
class FrameFamily:
    """The G frames of a base frame's shape whose seeds derive from its seed: the word of the frame's number.

    `base` is a frame of two or three rounds and `count` is G; a single frame, G = 1, is the base frame itself. Frames
    are worked on many at a time, one row each: Python objects for 2^16 of them would take longer than their transforms.
    """

    base: HadamardFrame
    count: int

    def __post_init__(self) -> None:
        if self.base.rounds == 1:
            raise ValueError("rounds must be 2 or 3 for a family of frames, got 1")

    def seeds(self, numbers: Ints) -> Words:
        """Return the public seeds of the frames with these numbers."""
        if self.count == 1:
            return np.full(len(numbers), self.base.seed, dtype=np.uint64)
        return streams.words_of(self.base.seed, "frames", numbers.astype(np.uint64))

    def frame(self, number: int) -> HadamardFrame:
        """Return one of the frames as a separate object."""
        return replace(self.base, seed=int(self.seeds(np.array([number]))[0]))

    def signs(self, numbers: Ints) -> tuple[Floats32, Floats32]:
        """The signs before the first transform, (n, d), and before the later ones, (n, rounds − 1, N)."""
        seeds = self.seeds(numbers)
        base = self.base
        # Words are stacked before they are signs: they are a thirty-second of the memory.
        later = [
            streams.word_rows(seeds, f"signs{k}", -(-base.size // 64))
            for k in range(2, base.rounds + 1)
        ]
        rows = np.stack(later, axis=1).reshape(len(seeds) * len(later), -1)
        signs = streams.signs_of_words(rows, base.size).reshape(
            len(seeds), len(later), base.size
        )
        return streams.sign_rows(seeds, "signs1", base.dim), signs

    def synthesize(self, y: Reals, numbers: Ints) -> Reals:
        """Return the vectors x = (d/N)·Uᵀy of each row, each in its own frame."""
        first, later = self.signs(numbers)
        x = (
            transform_rounds(np.array(y, order="C"), later.swapaxes(0, 1)[::-1])[
                :, : self.base.dim
            ]
            * first
        )
        x *= self.base.synthesis_scale
        return x
