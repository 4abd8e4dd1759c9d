"""SSTQ: one private coordinate of a Kashin representation, in ⌈log₂ N⌉ + b bits.

A client represents its vector in a tight frame with all coefficients bounded by B, takes one coordinate at random,
rounds it without bias to one of M = 2^b codewords and sends the coordinate's index with a code drawn from an exactly
ε-LDP channel (Algorithm 1 of the paper). The server adds d·w·u_j for each message (Algorithm 2), w being the code's
decoding value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation import FrameAggregator, StratifiedAggregator
from sstq.aggregation.strata import MESSAGES_A_STRATUM, StratifiedVariance, uses_strata
from sstq.chunks import row_chunks
from sstq.frames.kashin import Kashin, certifies, missed, pick, represent
from sstq.frames.tight import Frame
from sstq.mechanisms.base import NUMBERS_OF_A_DRAW, ExpectedError, LocalReport, check_number, check_option
from sstq.mechanisms.framed import FramedMechanism
from sstq.mechanisms.laws import Law, channel_law
from sstq.mechanisms.parts import (
    CODEBOOKS,
    Decoder,
    build_frame,
    build_recipe,
    build_scalar,
    check_scalar,
    frame_from_dict,
    frame_to_dict,
    recipe_from_dict,
    recipe_to_dict,
)
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Field, Layout
from sstq.randomness import streams
from sstq.randomness.secret import BitSource, channel_words, unit_interval
from sstq.scalar.channels import Channel, channel_from_dict
from sstq.scalar.codebooks import Codebook, interpolation, stochastic_round
from sstq.scalar.densities import Density

__all__ = ["SSTQ"]

_INDICES = ("private", "assigned")
# Errors are predicted on frames of no more than twice as many dimensions.
_TYPICAL_DIM = 1024


@dataclass(frozen=True, init=False, eq=False)
class SSTQ(FramedMechanism):
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
        index: "private" coin (default), or "assigned" by a public coin: then a message is b bits, both sides name the
            clients, and from 8N clients on the mean is taken by strata (see `sstq.aggregation.strata`).
        frame: "hadamard" (default), "orthogonal" or "fourier".
        frame_size: N; the default is 2^⌈log₂ 2.5d⌉.
        frame_seed: the public seed of the frame and of assigned indices.
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

    dim: int
    epsilon: float
    bits: int
    clip: float
    channel: Channel
    codebook: Codebook
    decoder: Decoder
    kashin: Kashin
    index: str
    frame: Frame

    def __init__(
        self,
        dim: int,
        epsilon: float,
        bits: int = 4,
        clip: float = 1.0,
        *,
        channel: str = "flat",
        codebook: str | None = None,
        decoder: str | None = None,
        rate: str | None = None,
        kashin: str = "certified",
        level: float | None = None,
        steps: int | None = None,
        index: str = "private",
        frame: str = "hadamard",
        frame_size: int | None = None,
        frame_seed: int = 0,
        density: Density | None = None,
    ) -> None:
        dim = check_number("dim", dim, 1, 2**30, integer=True)
        epsilon = check_number("epsilon", epsilon, 0.01, 20)
        bits = check_number("bits", bits, 1, 12, integer=True)
        the_frame = build_frame(frame, dim, frame_size, frame_seed)
        recipe = build_recipe(kashin, the_frame, level, steps)
        the_channel, the_codebook, the_decoder = build_scalar(
            bits,
            epsilon,
            channel=channel,
            codebook=codebook,
            decoder=decoder,
            rate=rate,
            density=density,
            typical=Density.kashin(recipe.bound(the_frame), the_frame.redundancy) if recipe.exact else None,
        )
        self._set_parts(
            dim=dim,
            epsilon=epsilon,
            bits=bits,
            clip=clip,
            channel=the_channel,
            codebook=the_codebook,
            decoder=the_decoder,
            kashin=recipe,
            index=index,
            frame=the_frame,
        )

    def _set_parts(self, **parts: Any) -> None:
        """Take the parts, whether built from options or read from JSON, and check that they belong together."""
        parts["clip"] = check_number("clip", parts["clip"], 1e-100, 1e100)
        check_option("index", parts["index"], _INDICES)
        channel = parts["channel"]
        if channel.epsilon != parts["epsilon"]:
            raise ValueError(f"the channel is made for epsilon {channel.epsilon}, not {parts['epsilon']}")
        check_scalar(parts["bits"], channel, parts["codebook"], parts["decoder"])
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"SSTQ(dim={self.dim}, epsilon={self.epsilon}, bits={self.bits}, clip={self.clip}, "
            f"channel={self.channel.name!r}, codebook={self.codebook.name!r}, decoder={self.decoder.name!r}, "
            f"kashin={self.kashin.name!r}, index={self.index!r}, frame={self.frame.name!r}, "
            f"frame_size={self.frame.size}, frame_seed={self.frame.seed})"
        )

    @property
    def unbiased(self) -> bool:
        """Whether the estimate's expectation is the clipped vector, to the certificate's residual.

        A level or a number of steps of one's own may be too low for that: a typical vector is tried.
        """
        return self.decoder.name == "unbiased" and self._certifies

    @property
    def coin(self) -> str:
        """Who draws the coordinate: the client in secret ("private"), or a shared generator ("public")."""
        return "private" if self.index == "private" else "public"

    @cached_property
    def _certifies(self) -> bool:
        return certifies(self.frame, self.kashin)

    @cached_property
    def layout(self) -> Layout:
        """The fields of a message: the code in the low bits and, with a private coin, the index above it."""
        fields = [Field("code", self.bits, 1 << self.bits)]
        if self.index == "private":
            fields.append(Field("index", (self.frame.size - 1).bit_length(), self.frame.size))
        return Layout(tuple(fields))

    @property
    def bound(self) -> float:
        """B = K·clip/√N, the public bound of a coordinate."""
        return self.kashin.level * self.clip / math.sqrt(self.frame.size)

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
        """An empty aggregator for this mechanism's messages; those of assigned indices are averaged by strata."""
        return FrameAggregator(self) if self.index == "private" else StratifiedAggregator(self)

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

    def law(self) -> Law:
        """The channel's: the index is drawn without looking at the data."""
        return channel_law(self.channel.to_dict())

    def privacy_loss(self) -> float:
        """The exact largest log-ratio of the channel's integers, rounded up to a double.

        The index is drawn without looking at the data, so the channel is all that a message tells.
        """
        return self.channel.privacy_loss()

    @property
    def _row_cost(self) -> int:
        return self.frame.size

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
            >>> private, public = (SSTQ(dim=4, epsilon=6.0, bits=4, index=i) for i in ("private", "assigned"))
            >>> private.expected_mse(x, clients=100).total == public.expected_mse(x, clients=100).total
            True
            >>> private.expected_mse(x, clients=1000).total > 5 * public.expected_mse(x, clients=1000).total
            True
        """
        error = super().expected_mse(x, clients)
        rows = self._check_vectors(x)
        count = len(rows) if clients is None else int(clients)
        if self.index == "private" or not uses_strata(count, self.frame.size):
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
        small = object.__new__(type(self))
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        small._set_parts(**parts | {"dim": dim, "frame": replace(self.frame, dim=dim, size=size, seed=0)})
        if self.index == "assigned" and uses_strata(clients, self.frame.size):
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
        """Everything public, integers and decoding values included, as JSON values."""
        return {
            "dim": self.dim,
            "epsilon": self.epsilon,
            "bits": self.bits,
            "clip": self.clip,
            "index": self.index,
            "frame": frame_to_dict(self.frame),
            "kashin": recipe_to_dict(self.kashin),
            "codebook": {"name": self.codebook.name, "values": self.codebook.values.tolist()},
            "channel": self.channel.to_dict(),
            "decoder": {"name": self.decoder.name, "values": self.decoder.values.tolist()},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SSTQ:
        """The mechanism whose `to_dict` this is; its integers are checked again, not solved again."""
        dim = check_number("dim", data["dim"], 1, 2**30, integer=True)
        frame = frame_from_dict(dim, data["frame"])
        mechanism = object.__new__(cls)
        mechanism._set_parts(
            dim=dim,
            epsilon=check_number("epsilon", data["epsilon"], 0.01, 20),
            bits=check_number("bits", data["bits"], 1, 12, integer=True),
            clip=data["clip"],
            index=data["index"],
            frame=frame,
            kashin=recipe_from_dict(frame, data["kashin"]),
            codebook=Codebook(
                check_option("codebook", data["codebook"]["name"], CODEBOOKS),
                np.array(data["codebook"]["values"], dtype=np.float64),
            ),
            channel=channel_from_dict(data["channel"]),
            decoder=Decoder(data["decoder"]["name"], np.array(data["decoder"]["values"], dtype=np.float64)),
        )
        return mechanism

    def _assigned(self, identifiers: NDArray[np.uint64]) -> NDArray[np.int64]:
        return streams.indices_of(self.frame.seed, "assign", identifiers, self.frame.size)


@lru_cache(maxsize=64)
def _error_of(mechanism: SSTQ, clients: int) -> ExpectedError:
    """The typical error; kept, because it is the same in every round."""
    return mechanism.typical_error(clients)
