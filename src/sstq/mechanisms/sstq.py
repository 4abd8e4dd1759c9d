"""SSTQ: one private coordinate of a Kashin representation, in ⌈log₂ N⌉ + b bits.

A client represents its vector in a tight frame with all coefficients bounded by B, takes one coordinate at random,
rounds it without bias to one of M = 2^b codewords and sends the coordinate's index with a code drawn from an exactly
ε-LDP channel (Algorithm 1 of the paper). The server adds d·w·u_j for each message (Algorithm 2), w being the code's
decoding value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation import FrameAggregator, StratifiedAggregator
from sstq.aggregation.strata import MESSAGES_A_STRATUM, StratifiedVariance, uses_strata
from sstq.checks import check_argument, check_option
from sstq.chunks import row_chunks
from sstq.frames.kashin import certified, missed, pick, represent
from sstq.mechanisms.base import NUMBERS_OF_A_DRAW, Coin, ExpectedError, LocalReport, Unbiased
from sstq.mechanisms.framed import FrameName, KashinMechanism, Recipe, build_frame, build_recipe
from sstq.mechanisms.laws import Law, channel_law
from sstq.mechanisms.parts import (
    ChannelName,
    CodebookName,
    Decoder,
    DecoderName,
    build_scalar,
    scalar_to_dict,
    stated_scalar,
)
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Field, Layout
from sstq.randomness import streams
from sstq.randomness.secret import BitSource, channel_words, unit_interval
from sstq.scalar.channels import Channel
from sstq.scalar.codebooks import Codebook, interpolation, stochastic_round
from sstq.scalar.densities import Density
from sstq.scalar.metric_aware import Rate

__all__ = ["SSTQ"]

# Errors are predicted on frames of no more than twice as many dimensions.
_TYPICAL_DIM = 1024


class SSTQ(KashinMechanism):
    """Subsampled Stochastic TurboQuant.

    Args:
        dim: d, the length of the vectors.
        epsilon: ε of the local differential privacy of one message, 0.01 to 20.
        bits: b, the bits of the code, 1 to 12. More is not always better: with the flat channel at ε = 3 two are best.
        clip: vectors longer than this are scaled down to it.
        channel: "flat" (randomized response; unbiased), "metric-aware" (truncated Laplace around the codeword) or
            "optimal" (the unbiased channel of least variance for the density; solved once, in seconds).
        codebook: "optimized" for the flat channel's error (its default), "uniform" (the metric-aware default),
            "panter-dite" or, for the metric-aware channel, "loss-optimal" for a density of the coordinates. The optimal
            channel brings its own.
        decoder: "unbiased" (the default for flat, the only one for optimal) or "identity", the codeword itself, which
            shrinks the estimate and is biased (the paper's, and the default, for metric-aware).
        rate: of the metric-aware channel: "calibrated" to spend the whole ε (default), or the "paper" value, which
            spends about half of it.
        kashin: "certified" (default) or "paper", the paper's recipe, which is biased (see `sstq.frames.kashin`).
        level: the Kashin level K; the default is feasible for (dim, frame_size).
        steps: the number of steps of the representation, the same for every input.
        coin: who draws the coordinate: the client ("private", default), or a shared generator ("public"): then a
            message is b bits, both sides name the clients, and from 8N clients on the mean is taken by strata (see
            `sstq.aggregation.strata`).
        frame: "hadamard" (default), "orthogonal" or "fourier".
        frame_size: N; the default is 2^⌈log₂ 2.5d⌉.
        frame_seed: the public seed of the frame and of the public coin.
        density: the public density of the coordinates for the optimal channel and the last two codebooks; the default
            is that of a typical certified representation.

    Examples:
        >>> mechanism = SSTQ(dim=25_450, epsilon=3.0, bits=4, clip=0.1)
        >>> mechanism.message_bits
        20
        >>> mechanism.privacy_loss() <= 3.0
        True
    """

    name: ClassVar[str] = "sstq"
    exact: ClassVar[bool] = True
    uniform_index: ClassVar[bool] = True
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "SSTQ flat, 2 bits": {"bits": 2},
        "SSTQ flat, 4 bits": {"bits": 4},
        "SSTQ flat, 4 bits, uniform": {"bits": 4, "codebook": "uniform"},
        "SSTQ flat, 4 bits, paper's recipe": {"bits": 4, "kashin": "paper"},
        "SSTQ optimal, 4 bits": {"bits": 4, "channel": "optimal"},
        "SSTQ metric-aware, 4 bits": {"bits": 4, "channel": "metric-aware"},
        "SSTQ metric-aware, 2 bits, unbiased": {"bits": 2, "channel": "metric-aware", "decoder": "unbiased"},
        "SSTQ flat, 2 bits, public coin": {"bits": 2, "coin": "public"},
    }
    sweeps: ClassVar[Mapping[str, Sequence[Mapping[str, Any]]]] = {
        "SSTQ flat": [{"bits": bits} for bits in (1, 2, 3, 4, 6)],
        "SSTQ flat, public coin": [{"bits": bits, "coin": "public"} for bits in (1, 2, 3, 4, 6)],
        "SSTQ optimal": [{"bits": bits, "channel": "optimal"} for bits in (1, 2, 3, 4)],
        "SSTQ optimal, public coin": [{"bits": b, "channel": "optimal", "coin": "public"} for b in (1, 2, 3, 4)],
    }

    bits: int
    channel: Channel
    codebook: Codebook
    decoder: Decoder

    def __init__(
        self,
        dim: int,
        epsilon: float,
        *,
        bits: int = 4,
        clip: float = 1.0,
        channel: ChannelName = "flat",
        codebook: CodebookName | None = None,
        decoder: DecoderName | None = None,
        rate: Rate | None = None,
        kashin: Recipe = "certified",
        level: float | None = None,
        steps: int | None = None,
        coin: Coin = "private",
        frame: FrameName = "hadamard",
        frame_size: int | None = None,
        frame_seed: int = 0,
        density: Density | None = None,
    ) -> None:
        dim, epsilon = check_argument("dim", dim), check_argument("epsilon", epsilon)
        bits = check_argument("bits", bits)
        check_option("coin", coin, get_args(Coin))
        the_frame = build_frame(frame, dim, frame_size, frame_seed)
        recipe = build_recipe(kashin, the_frame, level, steps)
        if self._stated is None:
            typical = Density.kashin(recipe.bound(the_frame), the_frame.redundancy) if recipe.exact else None
            scalar = build_scalar(
                bits,
                epsilon,
                channel=channel,
                codebook=codebook,
                decoder=decoder,
                rate=rate,
                density=density,
                typical=typical,
            )
        else:
            scalar = stated_scalar(bits, epsilon, self._stated)
        the_channel, the_codebook, the_decoder = scalar
        unbiased = the_decoder.name == "unbiased" and certified(the_frame, recipe)
        self._set(
            dim=dim,
            epsilon=epsilon,
            bits=bits,
            clip=check_argument("clip", clip),
            channel=the_channel,
            codebook=the_codebook,
            decoder=the_decoder,
            kashin=recipe,
            coin=coin,
            frame=the_frame,
            unbiased=Unbiased.ALWAYS if unbiased else Unbiased.NEVER,
        )

    @cached_property
    def layout(self) -> Layout:
        """The fields of a message: the code in the low bits and, with a private coin, the index above it."""
        fields = [Field("code", self.bits, 1 << self.bits)]
        if self.coin == "private":
            fields.append(Field("index", (self.frame.size - 1).bit_length(), self.frame.size))
        return Layout(tuple(fields))

    def _encode_rows(
        self,
        rows: NDArray[Any],
        clients: NDArray[np.uint64] | None,
        source: BitSource,
        report: LocalReport | None,
    ) -> tuple[Column, ...]:
        unit = self._unit_ball(rows, report)
        # Always three words a message, drawn before anything is known of the data.
        words = source.words(3 * len(unit)).reshape(-1, 3)
        index = streams.multiply_shift(words[:, 0], self.frame.size) if clients is None else self._assigned(clients)
        coordinate, residual = pick(self.frame, self.kashin, unit, index[:, None], certify=report is not None)
        uniforms = unit_interval(words[:, 1])
        token = stochastic_round(self.codebook.values, coordinate[:, 0].astype(np.float64), uniforms)
        code = self.channel.sample(token, channel_words(words[:, 2]))
        if report is not None:
            report.missed += missed(unit, residual)
        return (code, index) if clients is None else (code,)

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate d·w·u_j of each message alone, (n, d): for diagnosis; a mean comes from `aggregator`."""
        self._check_own(messages)
        index, code = self.indices_and_codes(messages)
        estimates = self.frame.rows(index.astype(np.int64))
        estimates *= (self.dim * self.decoding_scale * self.decoding_values[code])[:, None]
        return estimates

    def _check_columns(self, columns: tuple[Column, ...]) -> None:
        impossible = np.flatnonzero(~self.channel.used[columns[0]])
        if len(impossible):
            raise ValueError(f"message {impossible[0]}: code {columns[0][impossible[0]]} is never sent by this channel")

    def aggregator(self) -> FrameAggregator:
        """An empty aggregator for this mechanism's messages; those behind a public coin are averaged by strata."""
        return FrameAggregator(self) if self.coin == "private" else StratifiedAggregator(self)

    @property
    def decoding_values(self) -> NDArray[np.float64]:
        """The decoding value w of every code, in units of B."""
        return self.decoder.values

    @property
    def decoding_scale(self) -> float:
        """B, the unit of the decoding values."""
        return self.bound

    def indices_and_codes(self, messages: Messages) -> tuple[NDArray[Any], NDArray[Any]]:
        """The frame coordinate and the code of every message."""
        if messages.clients is None:
            return messages.column("index"), messages.column("code")
        return self._assigned(messages.clients), messages.column("code")

    def largest_message(self) -> float:
        """Attained, up to rounding."""
        return self.dim * self.bound * self.largest_value * self.frame.longest_row()

    def largest_honest_mean(self) -> float:
        """E[x̂] = (d/N)·Uᵀ·E[w], and no E[w_j] exceeds `largest_expected_value`."""
        return self.clip if self.unbiased else math.sqrt(self.dim) * self.bound * self.largest_expected_value

    @property
    def largest_value(self) -> float:
        """max|w| over the codes that occur, in units of B."""
        return float(np.max(np.abs(self.decoding_values[self.channel.used])))

    @property
    def largest_expected_value(self) -> float:
        """max|E[w]| over the tokens, in units of B."""
        return float(np.max(np.abs(self.channel.moments(self.decoding_values)[0])))

    def law(self) -> Law:
        """The channel's: the index is drawn without looking at the data."""
        return channel_law(self.channel)

    def privacy_loss(self) -> float:
        """The exact largest log-ratio of the channel's integers, rounded up to a double.

        The index is drawn without looking at the data, so the channel is all that a message tells.
        """
        return self.channel.privacy_loss()

    @property
    def _row_memory(self) -> int:
        return NUMBERS_OF_A_DRAW + self.dim

    def _row_error(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Exact, by enumeration of coordinates, tokens and codes."""
        first, second = self._message_moments(rows)
        mean = np.asarray(self.frame.synthesize(first), dtype=np.float64)
        power = self.dim**2 / self.frame.size * (second @ self.frame.squared_row_norms())
        return mean, power - np.sum(mean**2, axis=1)

    def expected_mse(self, x: ArrayLike, clients: int | None = None) -> ExpectedError:
        """The expected squared error of a mean, bias and variance apart: by strata where the aggregator uses them.

        Args:
            x: (d,), held by each of `clients` clients (1 if not given); or (n, d), one row for each of n clients.
            clients: the number of clients, with a single x.

        Examples:
            >>> x = np.full(4, 0.5)
            >>> private, public = (SSTQ(dim=4, epsilon=6.0, bits=4, coin=coin) for coin in ("private", "public"))
            >>> private.expected_mse(x, clients=100).total == public.expected_mse(x, clients=100).total
            True
            >>> private.expected_mse(x, clients=1000).total > 5 * public.expected_mse(x, clients=1000).total
            True
        """
        error = super().expected_mse(x, clients)
        rows = self._check_vectors(x)
        count = len(rows) if clients is None else int(clients)
        if self.coin == "private" or not uses_strata(count, self.frame.size):
            return error
        strata = StratifiedVariance(self.frame, count)
        for part in row_chunks(len(rows), self._row_cost):
            strata.add(*self._message_moments(rows[part]))
        return replace(error, variance=strata.total())

    def typical_error(self, clients: int = 1) -> ExpectedError:
        """The error of a mean of clients that all hold one typical vector of norm clip.

        Above 2048 dimensions it is that of a smaller frame with the same redundancy and level, where the coordinates
        have the same distribution (to 1 %): the second moment of an estimate grows as d, its mean does not.

        Examples:
            >>> large = SSTQ(dim=10_000_000, epsilon=3.0, bits=2).typical_error(clients=1000)
            >>> round(large.variance / 10_000_000 * 1000, 1)
            2.0
        """
        share = 1 << max(0, (self.dim // _TYPICAL_DIM).bit_length() - 1)
        if share == 1:
            return super().typical_error(clients)
        dim, size = self.dim // share, self.frame.size // share
        small = self._with_parts(dim=dim, frame=replace(self.frame, dim=dim, size=size, seed=0))
        if self.coin == "public" and uses_strata(clients, self.frame.size):
            # As many messages a stratum as there are here.
            return _error_of(small, max(clients // share, MESSAGES_A_STRATUM * size))
        error = _error_of(small, 1)
        power = (error.variance + self.clip**2) * self.dim / dim
        return replace(error, variance=(power - self.clip**2) / clients)

    def _message_moments(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """E[w] and E[w²] of a message in every coordinate of each row, both (n, N)."""
        unit = self._unit_ball(rows)
        coordinates, _ = represent(self.frame, self.kashin, unit)
        return self._coordinate_moments(coordinates.astype(np.float64))

    def _coordinate_moments(self, y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """E[w] and E[w²] of the decoded coordinate given its true value y (in units of B), in physical units."""
        lower, weight = interpolation(self.codebook.values, y)
        upper = np.minimum(lower + 1, len(self.codebook.values) - 1)
        first, second = self.channel.moments(self.decoder.values)
        mean = first[lower] + weight * (first[upper] - first[lower])
        power = second[lower] + weight * (second[upper] - second[lower])
        return mean * self.bound, power * self.bound**2

    def to_dict(self) -> dict[str, Any]:
        """The options, the channel's integers, the codewords and the decoding values, as JSON values."""
        own = {"bits": self.bits, "coin": self.coin}
        return self._kashin_options() | own | scalar_to_dict(self.channel, self.codebook, self.decoder)

    def _assigned(self, identifiers: NDArray[np.uint64]) -> NDArray[np.int64]:
        return streams.indices_of(self.frame.seed, "assign", identifiers, self.frame.size)


@lru_cache(maxsize=64)
def _error_of(mechanism: SSTQ, clients: int) -> ExpectedError:
    """The typical error; kept, because it is the same in every round."""
    return mechanism.typical_error(clients)
