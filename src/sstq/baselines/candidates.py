"""Public candidate vectors of every client, of which its message names one: for RRSC, MMRC and compressed PrivUnitG.

Client and server know M = 2^bits Gaussian vectors that belong to the client's identifier alone. The client sends the
index of one of them, drawn so that the well aligned ones are likelier, by at most e^ε.

The client's seed is the word of its identifier in the stream (seed, "cand") of `sstq.randomness.streams`. Candidate m
takes words m·w, …, (m+1)·w − 1 of the stream (client's seed, "normals"), w = 4·⌈d/8⌉, so that it is made without the
others. A word gives two coordinates by the Box–Muller formula (`sstq.mechanisms.sphere.gaussians`, offset 1).
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from sstq.aggregation import VectorAggregator
from sstq.checks import check_number
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Columns, EncoderInput, Floats, Ints, Mechanism, Rows, Words
from sstq.mechanisms.parameters import Parameters, Word
from sstq.mechanisms.sphere import gaussians, random_directions
from sstq.mechanisms.two_level_draw import KClosest, k_closest
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field, Layout
from sstq.randomness import streams

# A Philox block is four words, hence eight coordinates.
_BLOCK = 8
# Other versions of a library may integrate to other last digits.
_ALIGNMENT_TOLERANCE = 1e-6
_NORMALS_KEY = int.from_bytes(b"normals", "little")


@dataclass(frozen=True, eq=False, kw_only=True)
class CandidateParameters(Parameters):
    """What all candidate mechanisms have; `alignment` is μ."""

    dim: int
    epsilon: float
    bits: int
    clip: float
    seed: Word
    alignment: float


@dataclass(frozen=True, eq=False, kw_only=True)
class ClosestParameters(CandidateParameters):
    """The parameters of a draw with exactly k = `inside` candidates inside, T of 2^62."""

    inside: int
    threshold: Word


class CandidateMechanism(Mechanism):
    """A mechanism whose message is the index of one of the client's 2^bits public candidates.

    The estimate is clip·z/μ, z being the named candidate and μ = E⟨z, u⟩ its expected alignment with the direction u.
    The candidates are rotation-invariant, so E[z] points along u and the estimate is unbiased over the public coin. A
    client makes M·d numbers at a time.

    Attributes:
        bits: b, the bits of a message, 1 to 12 (8 by default); a client has M = 2^b candidates.
        seed: the public seed of all candidates.
        alignment: μ.
    """

    exact = True
    aggregator_class = VectorAggregator
    parameters_class: ClassVar[type[Parameters]] = ClosestParameters
    _draws_by = "choice"
    seed_option = "seed"
    coin = "public"

    parameters: Any
    bits: int
    seed: int
    alignment: float

    def _hold_closest(self, loss: Callable[[Floats, Floats], Floats], common: dict[str, Any]) -> None:
        """Solve for the k of least loss, a function of the first two moments of the score drawn."""
        choice = k_closest(common["epsilon"], 1 << common["bits"], loss)
        alignment = self._alignment(choice, common["dim"])
        self._hold(ClosestParameters(**common, inside=choice.inside, threshold=choice.threshold, alignment=alignment))

    def _check_solved(self) -> None:
        computed = self._alignment(self.choice, self.dim)
        low, high = (max(computed * (1 + way * _ALIGNMENT_TOLERANCE), 1e-30) for way in (-1, 1))
        check_number("alignment", self.alignment, low, high)

    @cached_property
    def layout(self) -> Layout:
        """The number of the candidate."""
        return Layout((Field("code", self.bits, self.size),))

    @property
    def size(self) -> int:
        """M, the number of candidates of a client."""
        return 1 << self.bits

    @cached_property
    def choice(self) -> Any:
        """The draw, checked exactly: `draw(scores, words)` takes scores, (n, M), and two secret words per row."""
        return KClosest(self.epsilon, self.size, self.parameters.inside, self.parameters.threshold)

    @staticmethod
    @abstractmethod
    def _alignment(choice: Any, dim: int) -> float:
        """μ of a draw among candidates in R^`dim`, from its integers."""

    @abstractmethod
    def _scores(self, candidates: Floats, directions: Floats) -> Floats:
        """The scores by which Gaussian candidates, (n, M, d), are well aligned with the client's direction, (n, M)."""

    @abstractmethod
    def _vectors(self, seeds: Words, codes: Ints) -> Floats:
        """The named candidates z, (n, d)."""

    @property
    def _power(self) -> float:
        """E‖z‖² of the candidate that is sent."""
        return 1.0

    def _encode(self, batch: EncoderInput) -> Columns:
        unit = self._unit_ball(batch.rows, batch.report)
        directions = random_directions(unit, batch.words[:, 0])
        # Scores only sort or classify the candidates; no rounding error here can cost privacy.
        scores = self._scores(self._gaussians(self._seeds(batch.clients)), directions)
        return (self.choice.draw(scores, batch.words[:, 1:]),)

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

    @property
    def _largest_norm(self) -> float:
        """Candidates are unit vectors, to the rounding of a decomposition."""
        return 1 + 1e-6

    def largest_message(self) -> float:
        """The longest candidate; a bound if they are Gaussian."""
        return self._largest_norm * self.clip / self.alignment

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

    def _gaussians(self, seeds: Words, codes: Ints | None = None) -> Floats:
        """All Gaussian candidates of each client, (n, M, d), or the one with the given code, (n, 1, d)."""
        blocks, count = -(-self.dim // _BLOCK), self.size if codes is None else 1
        starts = np.zeros(len(seeds), dtype=np.int64) if codes is None else codes * blocks
        words = np.empty((len(seeds), 4 * blocks * count), dtype=np.uint64)
        # Setting the state of one generator is several times cheaper than making one per row.
        generator = np.random.Philox(key=0)
        state: Any = generator.state
        for row, seed, start in zip(words, seeds.tolist(), starts.tolist(), strict=True):
            state["state"]["key"][:] = (seed, _NORMALS_KEY)
            state["state"]["counter"][:] = (start, 0, 0, 0)
            generator.state = state
            row[:] = generator.random_raw(len(row))
        numbers = gaussians(words, offset=1.0).reshape(len(seeds), count, -1)
        return numbers[:, :, : self.dim].astype(np.float64)
