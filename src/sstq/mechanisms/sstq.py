"""SSTQ: one private coordinate of a Kashin representation, in ⌈log₂ N⌉ + b bits.

A client represents its vector in a tight frame with all coefficients bounded by B, takes one coordinate at random,
rounds it without bias to one of M = 2^b codewords and sends the coordinate's index with a code drawn from an exactly
ε-LDP channel (Algorithm 1 of the paper). The server adds d·w·u_j for each message (Algorithm 2), w being the code's
decoding value.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from sstq.aggregation import FrameEstimator
from sstq.array_types import Floats, Ints
from sstq.checks import ArgumentError
from sstq.frames.kashin import represent
from sstq.frames.tight import FRAMES, Frame
from sstq.inputs.bounds import read_ranges
from sstq.inputs.trial_vectors import typical_vector
from sstq.mechanisms import scalar_parts
from sstq.mechanisms.agreement import Ranges, Values, Word, WordTable
from sstq.mechanisms.base import Batch, Columns, ExpectedError, Rows
from sstq.mechanisms.framed import (
    FrameName,
    KashinMechanism,
    KashinSolved,
    Recipe,
    solve_kashin,
)
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field, Layout
from sstq.randomness import streams
from sstq.randomness.secret import channel_words, unit_interval
from sstq.scalar.channels import RESIDUAL_MAX, Channel, FlatChannel, TableChannel
from sstq.scalar.codebooks import Codebook, interpolation, stochastic_round
from sstq.scalar.densities import Density
from sstq.scalar.metric_aware import Rate
from sstq.scalar.optimal import OPTIMAL, check_unbiased

# Errors are predicted on frames of no more than twice as many dimensions.
_TYPICAL_DIM = 1024
_LARGEST_VALUE = 1e100


@dataclass(frozen=True, eq=False, kw_only=True)
class SSTQSolved(KashinSolved):
    """The values of SSTQ: names of parts, the channel's integers, codewords and decoding values in units of B.

    The flat channel has two weights, `own` and `other`; others have a table, with one row per token.
    """

    bits: int
    coin: Literal["private"]
    channel: scalar_parts.ChannelName
    codebook: scalar_parts.CodebookName
    decoder: scalar_parts.DecoderName
    codebook_values: Values
    decoder_values: Values
    own: Word | None = None
    other: Word | None = None
    weights: WordTable | None = None
    messages: int = 1
    bounds: Ranges | None = None

    def options(self) -> dict[str, Any]:
        """Codewords of one's own are an option."""
        codewords = (
            {"codebook": self.codebook_values.tolist()}
            if self.codebook == "custom"
            else {}
        )
        return super().options() | codewords


class SSTQ(KashinMechanism):
    """Subsampled Stochastic TurboQuant.

    Args:
        bits: b, the bits of the code, 1 to 12. By default those of least error with the flat channel (2 at ε = 3, where
            4 have twice the squared error), those of a codebook of your own, and 4 with other channels.
        channel: "flat" (randomized response; unbiased), "metric-aware" (truncated Laplace around the codeword),
            "discrete-laplace" (Laplace on the codewords themselves) or "optimal" (the unbiased channel of least
            variance for the density; solved once, in seconds).
        codebook: "optimized" for the flat channel's error (its default), "uniform" (the default of the Laplace
            channels), "panter-dite" or, for the metric-aware channel, "loss-optimal" for a density of the coordinates;
            or 2^bits codewords of your own from -1 to 1, as an array or a `Codebook`. The optimal channel brings its
            own.
        decoder: "unbiased" (the default for flat, the only one for optimal); "identity", the codeword itself, which
            shrinks the estimate and is biased (the paper's, and the default, for the Laplace channels); or "rescaled",
            the codeword times one public factor that undoes the shrinkage for a typical vector. What bias may be left
            for others, `decoder_bias` bounds; it is part of estimates' error bars.
        rate: the rate of the metric-aware channel: "calibrated" to spend the whole ε (default), or "paper", which
            spends about half of it.
        messages: m, the messages per client, each with its own coordinate, for a shuffler that mixes every slot
            separately. `epsilon` is that of one message, `bundle_epsilon` that of all.
        bounds: the range of each column, {name: (low, high)} or an array of shape (dim, 2): columns are centred and
            scaled into the ball, and the mean is in their units. Other vectors must be scaled to the ball before.
        frame: a name, or a `HadamardFrame`, `OrthogonalFrame` or `FourierFrame`, which also has the size and the seed.
        kashin, level, steps, frame_size: as in `sstq.mechanisms.framed.KashinMechanism`.

    Examples:
        >>> mechanism = SSTQ(dim=25_450, epsilon=3.0, bits=4, clip=0.1)
        >>> mechanism.message_bits, mechanism.privacy_loss() <= 3.0
        (20, True)
    """

    name = "sstq"
    exact = True
    variants: ClassVar = {
        "SSTQ flat, 2 bits": {"bits": 2},
        "SSTQ flat, 4 bits": {"bits": 4},
        "SSTQ flat, 4 bits, uniform": {"bits": 4, "codebook": "uniform"},
        "SSTQ flat, 4 bits, paper's recipe": {"bits": 4, "kashin": "paper"},
        "SSTQ optimal, 4 bits": {"bits": 4, "channel": "optimal"},
        "SSTQ metric-aware, 4 bits": {"bits": 4, "channel": "metric-aware"},
        "SSTQ metric-aware, 2 bits, unbiased": {
            "bits": 2,
            "channel": "metric-aware",
            "decoder": "unbiased",
        },
    }

    solved_class = SSTQSolved
    solved: SSTQSolved
    bits: int

    def __init__(
        self,
        dim: int,
        epsilon: float,
        *,
        bits: int | None = None,
        clip: float = 1.0,
        channel: scalar_parts.ChannelName = "flat",
        codebook: scalar_parts.CodebookName | Codebook | ArrayLike | None = None,
        decoder: scalar_parts.DecoderName | None = None,
        rate: Rate | None = None,
        kashin: Recipe = "certified",
        level: float | None = None,
        steps: int | None = None,
        messages: int = 1,
        frame: FrameName | Frame = "hadamard",
        frame_size: int | None = None,
        frame_seed: int = 0,
        bounds: Any = None,
    ) -> None:
        given = dict(locals())
        common = self.checked(dim=dim, epsilon=epsilon, clip=clip, messages=messages)
        shown: dict[str, Any] = {}
        if isinstance(frame, Frame):
            frame, frame_size, frame_seed = _frame_options(
                frame, common["dim"], frame_size, frame_seed
            )
            shown |= {
                "frame": frame,
                "frame_size": frame_size,
                "frame_seed": frame_seed,
            }
        if codebook is not None and not isinstance(codebook, str):
            codebook = (
                codebook
                if isinstance(codebook, Codebook)
                else _given_codebook(codebook)
            )
            shown["codebook"] = codebook.values.tolist()
        if bounds is not None:
            bounds = read_ranges(bounds, common["dim"])
            shown["bounds"] = {name: (low, high) for name, low, high in bounds}
        framed, chosen, recipe = solve_kashin(
            common["dim"], frame_size, frame_seed, level, steps, str(frame), kashin
        )
        density = (
            Density.kashin(recipe.bound(chosen), chosen.redundancy)
            if recipe.exact
            else None
        )
        if bits is None:
            bits = scalar_parts.usual_bits(
                common["epsilon"], channel, codebook, density
            )
        common |= self.checked(bits=bits)
        scalar = scalar_parts.solve_scalar(
            common["bits"], common["epsilon"], channel, codebook, decoder, rate, density
        )
        self.settle(
            given,
            SSTQSolved(**common, **framed, **scalar, coin="private", bounds=bounds),
            **shown,
        )

    def check_solved(self) -> None:
        """Refuse a channel, a codebook and decoding values that do not belong together."""
        values = self.decoding_values
        words = self.codebook.values
        codes = 1 << self.bits
        if (
            values.ndim != 1
            or not np.all(np.abs(values) <= _LARGEST_VALUE)
            or not values.any()
        ):
            raise ValueError(
                f"decoder values must be numbers up to {_LARGEST_VALUE:g} in magnitude, not all zero"
            )
        inputs, outputs = self.channel.shape
        tokens = inputs if self.channel.name == OPTIMAL else codes
        if not inputs == len(words) == tokens or not outputs == len(values) == codes:
            raise ValueError(
                f"channel, codebook and decoder must have {tokens} tokens and 2^bits = {codes} codes, got a channel "
                f"from {inputs} to {outputs}, {len(words)} codewords and {len(values)} decoded values"
            )
        if OPTIMAL in (self.channel.name, self.codebook.name):
            if (
                not self.channel.name == self.codebook.name == OPTIMAL
                or self.decoder != "unbiased"
            ):
                raise ValueError(
                    "the optimal channel, its codebook and its unbiased decoder belong together"
                )
            check_unbiased(self.channel, self.codebook, values)
        if self.decoder == "unbiased":
            off = self.channel.moments(values)[0] - words
        else:
            # The last codeword is 1, so the last value is the factor.
            factor = 1.0 if self.decoder == "identity" else float(values[-1])
            if not factor > 0:
                raise ValueError(
                    f"decoder 'rescaled' must have a positive factor, got {factor:g}"
                )
            off = values / factor - words
        if not np.abs(off).max() <= RESIDUAL_MAX:
            wrong = f"got values that differ by {np.abs(off).max():g}"
            raise ValueError(
                f"decoder {self.decoder!r} must have its own values, {wrong}"
            )

    @cached_property
    def channel(self) -> Channel:
        """The channel, whose weights are checked exactly when it is made."""
        solved = self.solved
        if solved.channel != "flat":
            if (
                solved.weights is None
                or solved.own is not None
                or solved.other is not None
            ):
                raise ValueError(
                    f"channel={solved.channel!r} must have weights, and neither own nor other"
                )
            return TableChannel(solved.channel, self.epsilon, solved.weights)
        if solved.own is None or solved.other is None or solved.weights is not None:
            raise ValueError("channel='flat' must have own and other, and no weights")
        return FlatChannel(self.epsilon, 1 << self.bits, solved.own, solved.other)

    @property
    def draw(self) -> Channel:
        """The secret draw of a code from a token: the channel."""
        return self.channel

    @cached_property
    def codebook(self) -> Codebook:
        """The codewords that a coordinate is rounded to, in units of B."""
        return Codebook(self.solved.codebook, self.solved.codebook_values)

    @cached_property
    def decoding_values(self) -> Floats:
        """The value w that each code stands for on the server, in units of B."""
        values = self.solved.decoder_values.view()
        values.setflags(write=False)
        return values

    @cached_property
    def layout(self) -> Layout:
        """The code and the coordinate's index."""
        return Layout((Field("code", 1 << self.bits), Field("index", self.frame.size)))

    @cached_property
    def estimator(self) -> FrameEstimator:
        """Sums of the decoding values of every coordinate."""
        return FrameEstimator(self, self.frame, self.decoding_values, self.bound)

    @property
    def decoder_bias(self) -> float:
        """A bound of ‖E[x̂] − x‖ for any one vector in the ball, with the rescaled decoder; 0 with others.

        E[x̂] − x = (d/N)·Uᵀ(E[w] − y), whose norm is at most √d times the largest |E[w] − y| of a coordinate; E[w] is
        linear in y between codewords. The representation's own bias is not in it.

        Examples:
            >>> mechanism = SSTQ(dim=100, epsilon=3.0, channel="metric-aware", decoder="rescaled")
            >>> mechanism.expected_mse(np.eye(100)[0]).bias2 < mechanism.decoder_bias**2
            True
        """
        if self.decoder != "rescaled":
            return 0.0
        off = self.channel.moments(self.decoding_values)[0] - self.codebook.values
        return math.sqrt(self.dim) * self.bound * float(np.abs(off).max())

    def bias_of_mean(self, count: int) -> tuple[float, int, str]:  # noqa: ARG002
        """The bias that messages do not tell."""
        return self.decoder_bias, 1, ""

    def uniform_coordinates(self, sums: Ints) -> Ints:
        """The first column of the sums counts the messages of each coordinate."""
        return sums[:, 0]

    def encode_batch(self, batch: Batch) -> Columns:
        """Draw a coordinate, round it to a token, and send the token through the channel."""
        words = batch.words
        index = streams.multiply_shift(words[:, 0], self.frame.size)
        uniforms = unit_interval(words[:, 1])
        drawn = channel_words(words[:, 2])
        coordinate = self._coefficients(batch, index[:, None])[:, 0].astype(np.float64)
        token = stochastic_round(self.codebook.values, coordinate, uniforms)
        return self.channel.sample(token, drawn), index

    def check_messages(self, messages: Messages) -> None:
        """Refuse messages that no client sends."""
        used = self.channel.used
        if used.all():
            return
        code = messages.column("code")
        for row in np.flatnonzero(~used[code]):
            raise ValueError(
                f"message {row}: code {code[row]} is never sent by this channel"
            )

    def largest_message(self) -> float:
        """The norm of the longest row with the largest value, which is attained up to rounding."""
        largest = float(np.max(np.abs(self.decoding_values[self.channel.used])))
        return self.dim * self.bound * largest * self.frame.longest_row()

    def largest_biased_mean(self) -> float:
        """E[x̂] = (d/N)·Uᵀ·E[w], and no E[w_j] exceeds the largest one of a token."""
        largest = float(np.max(np.abs(self.channel.moments(self.decoding_values)[0])))
        return math.sqrt(self.dim) * self.bound * largest

    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact, by enumeration of coordinates, tokens and codes."""
        first, second = self._message_moments(rows)
        mean = np.asarray(self.frame.synthesize(first), dtype=np.float64)
        power = (
            self.dim**2 / self.frame.size * (second @ self.frame.squared_row_norms())
        )
        return mean, power - np.sum(mean**2, axis=1)

    def typical_error(self, clients: int = 1) -> ExpectedError:
        """The error for one typical vector; above 2048 dimensions, from a smaller frame of equal redundancy.

        Its coordinates have the same distribution (to 1 %). The second moment of an estimate grows as d.
        """
        share = 1 << max(0, (self.dim // _TYPICAL_DIM).bit_length() - 1)
        if share == 1:
            return self.expected_mse(
                typical_vector(self.dim, self.clip), clients=clients
            )
        dim = self.dim // share
        size = self.frame.size // share
        solved = replace(
            self.solved, dim=dim, frame_size=size, frame_seed=0, messages=1
        )
        small = SSTQ.from_solved(solved)
        error = _error_of(small)
        power = (error.variance + self.clip**2) * self.dim / dim
        return replace(
            error, variance=(power - self.clip**2) / (clients * self.messages)
        )

    def _message_moments(self, rows: Rows) -> tuple[Floats, Floats]:
        """E[w] and E[w²] of a message in every coordinate of each row, both (n, N)."""
        coordinates, _ = represent(self.frame, self.kashin, self.unit_ball(rows))
        lower, weight = interpolation(
            self.codebook.values, coordinates.astype(np.float64)
        )
        upper = np.minimum(lower + 1, len(self.codebook.values) - 1)
        first, second = self.channel.moments(self.decoding_values)
        mean = first[lower] + weight * (first[upper] - first[lower])
        power = second[lower] + weight * (second[upper] - second[lower])
        return mean * self.bound, power * self.bound**2


def _frame_options(
    frame: Frame, dim: int, size: int | None, seed: int
) -> tuple[Any, int, int]:
    """The name, size and seed of a frame, which JSON holds."""
    if frame.dim != dim:
        raise ArgumentError(
            "frame", f"must have dim = {dim}, got a frame of dim = {frame.dim}"
        )
    if (size not in (None, frame.size)) or seed not in (0, frame.seed):
        raise ArgumentError(
            "frame_size",
            "and frame_seed must be left out with a frame, which has its own",
        )
    if frame != FRAMES[frame.name](dim, frame.size, frame.seed):
        raise ArgumentError(
            "frame",
            f"must be a Hadamard frame of one round, or another frame of sstq, got {frame!r}",
        )
    return frame.name, frame.size, frame.seed


def _given_codebook(values: ArrayLike) -> Codebook:
    try:
        return Codebook("custom", np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "codebook", f"must be a name, a Codebook or codewords from -1 to 1: {error}"
        ) from error


@lru_cache(maxsize=64)
def _error_of(mechanism: SSTQ) -> ExpectedError:
    """The typical error of one message, cached because it is the same in every round."""
    return mechanism.typical_error()
