"""Public candidate vectors of every client, of which its message names one: for RRSC, MMRC and compressed PrivUnitG.

Client and server know M = 2^bits Gaussian vectors that belong to the client's identifier alone. The client sends the
index of one of them, drawn so that the well aligned ones are likelier, by at most e^ε.

The client's seed is the word of its identifier in the stream (seed, "cand") of `sstq.randomness.streams`. Candidate m
takes words m·w, …, (m+1)·w − 1 of the stream (client's seed, "normals"), w = 4·⌈d/8⌉, so that any part of it is made
without the rest. A word gives two coordinates by the Box–Muller formula (`sstq.mechanisms.sphere.gaussians`, offset 1).
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np

from sstq.aggregation import VectorAggregator
from sstq.chunks import row_chunks
from sstq.mechanisms.base import Batch, Columns, Floats, Floats32, Ints, Mechanism, Rows, Words
from sstq.mechanisms.sphere import gaussians, random_directions
from sstq.mechanisms.two_level_draw import KClosest, k_closest
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field, Layout
from sstq.randomness import streams

# Candidates are made this many numbers at a time (about 20 MB with all intermediate arrays).
_NUMBERS_AT_A_TIME = 1 << 20
# A Philox block is four words, hence eight coordinates.
_BLOCK = 8
# Other versions of a library may integrate to other last digits.
_ALIGNMENT_TOLERANCE = 1e-6
_NORMALS_KEY = int.from_bytes(b"normals", "little")


class CandidateMechanism(Mechanism):
    """A mechanism whose message is the index of one of the client's 2^bits public candidates.

    The estimate is clip·z/μ, z being the named candidate and μ = E⟨z, u⟩ its expected alignment with the direction u.
    The candidates are rotation-invariant, so E[z] points along u and the estimate is unbiased over the public coin.

    Attributes:
        bits: b, the bits of a message, 1 to 12 (8 by default); a client has M = 2^b candidates.
        seed: the public seed of all candidates.
        alignment: μ.
    """

    exact = True
    _aggregator = VectorAggregator
    seed_option = "seed"
    coin = "public"

    bits: int
    seed: int
    alignment: float

    def _set_draw(self, **parts: Any) -> None:
        """Keep the draw, and μ from its integers, or the stated μ if it is theirs."""
        self._set(**parts, layout=Layout((Field("code", self.bits, self.size),)))
        self._set(alignment=self._stated_or("alignment", self._expected_alignment(), _ALIGNMENT_TOLERANCE))

    def to_dict(self) -> dict[str, Any]:
        """The options, the draw's integers and the alignment, as JSON values."""
        common = self._named("dim", "epsilon", "bits", "clip", "alignment")
        return common | {"seed": str(self.seed)} | self._draw_dict()

    @abstractmethod
    def _expected_alignment(self) -> float:
        """μ from the integers of the draw."""

    @abstractmethod
    def _draw_dict(self) -> dict[str, Any]:
        """The integers and options of the draw, as JSON values."""

    @property
    def size(self) -> int:
        """M, the number of candidates of a client."""
        return 1 << self.bits

    @abstractmethod
    def _scores(self, seeds: Words, directions: Floats) -> Floats:
        """The scores by which candidates are well aligned with the client's direction, (n, M)."""

    @abstractmethod
    def _draw(self, scores: Floats, words: Words) -> Ints:
        """The index to send, from two secret words per row."""

    @abstractmethod
    def _vectors(self, seeds: Words, codes: Ints) -> Floats:
        """The named candidates z, (n, d)."""

    @property
    def _power(self) -> float:
        """E‖z‖² of the candidate that is sent."""
        return 1.0

    def _encode(self, batch: Batch) -> Columns:
        unit = self._unit_ball(batch.rows, batch.report)
        directions = random_directions(unit, batch.words[:, 0])
        # Scores only sort or classify the candidates; no rounding error here can cost privacy.
        return (self._draw(self._scores(self._seeds(batch.clients), directions), batch.words[:, 1:]),)

    def _decode(self, messages: Messages) -> Floats:
        seeds, codes = self._seeds(messages.clients), messages.column("code").astype(np.int64)
        estimates = np.empty((len(codes), self.dim))
        for part in row_chunks(len(codes), self._vector_cost):
            estimates[part] = self._vectors(seeds[part], codes[part])
        estimates *= self.clip / self.alignment
        return estimates

    @property
    def decoding_scale(self) -> float:
        """The root mean square of a decoded coordinate."""
        return self.clip / (self.alignment * math.sqrt(self.dim))

    def largest_message(self) -> float:
        """Candidates are unit vectors, to the rounding of a decomposition."""
        return (1 + 1e-6) * self.clip / self.alignment

    @property
    def _row_cost(self) -> int:
        return 2 * self.size * self.dim

    @property
    def _vector_cost(self) -> int:
        """How many numbers the decoding of one message keeps at a time."""
        return 2 * self.dim

    def _row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact: E[x̂] = x, and E‖x̂‖² = clip²·E‖z‖²/μ² whatever x is."""
        return self._unbiased_error(rows, (self.clip / self.alignment) ** 2 * self._power)

    def _seeds(self, clients: Words | None) -> Words:
        # Behind a public coin the contract has already refused messages without clients.
        return streams.words_of(self.seed, "cand", cast("Words", clients))

    def _columns(self, rows: int) -> list[slice]:
        """Slices over the coordinates, so that all candidates of `rows` clients fit in memory on each."""
        width = -(-_NUMBERS_AT_A_TIME // (rows * self.size * _BLOCK)) * _BLOCK
        return [slice(start, min(start + width, self.dim)) for start in range(0, self.dim, width)]

    def _gaussians(self, seeds: Words, columns: slice) -> Floats:
        """The given coordinates of all candidates, (n, M, width)."""
        width = columns.stop - columns.start
        count = -(-width // _BLOCK)
        if count == self._blocks_each:
            # All candidates of a client follow each other in its stream: one request per client.
            numbers = _normals(seeds, np.zeros(len(seeds), dtype=np.int64), count * self.size)
        else:
            blocks = np.arange(self.size) * self._blocks_each + columns.start // _BLOCK
            numbers = _normals(np.repeat(seeds, self.size), np.tile(blocks, len(seeds)), count)
        return numbers.reshape(len(seeds), self.size, -1)[:, :, :width].astype(np.float64)

    def _chosen_gaussians(self, seeds: Words, codes: Ints) -> Floats:
        """One whole candidate of each client, (n, d), without the others."""
        return _normals(seeds, codes * self._blocks_each, self._blocks_each)[:, : self.dim].astype(np.float64)

    @property
    def _blocks_each(self) -> int:
        return -(-self.dim // _BLOCK)

    def _pieces(self, seeds: Words, directions: Floats) -> Iterator[tuple[Floats, Floats]]:
        """The candidates, and their inner products with the directions, on successive ranges of coordinates."""
        for columns in self._columns(len(seeds)):
            gaussians = self._gaussians(seeds, columns)
            yield gaussians, (gaussians @ directions[:, columns, None])[:, :, 0]


class ClosestMechanism(CandidateMechanism):
    """A mechanism that draws from the k best aligned candidates with one probability, else from the others."""

    _draws_by = "choice"

    choice: KClosest

    def _set_closest(self, error: Callable[[Floats, Floats], Floats]) -> None:
        """Keep the draw of the k of least error, or the stated one."""
        stated, given = self._stated, (self.epsilon, self.size)
        self._set_draw(choice=k_closest(*given, error) if stated is None else KClosest.stated(*given, stated))

    def _draw(self, scores: Floats, words: Words) -> Ints:
        return self.choice.draw(scores, words)

    def _draw_dict(self) -> dict[str, Any]:
        return self.choice.to_dict()


def _normals(seeds: Words, blocks: Ints, count: int) -> Floats32:
    """8·count standard normal numbers per row, starting from the given block of the row's stream."""
    words = np.empty((len(seeds), 4 * count), dtype=np.uint64)
    # Setting the state of one generator is several times cheaper than making one per row.
    generator = np.random.Philox(key=0)
    state: Any = generator.state
    for row, seed, block in zip(words, seeds.tolist(), blocks.tolist(), strict=True):
        state["state"]["key"][:] = (seed, _NORMALS_KEY)
        state["state"]["counter"][:] = (block, 0, 0, 0)
        generator.state = state
        row[:] = generator.random_raw(4 * count)
    return gaussians(words, offset=1.0)
