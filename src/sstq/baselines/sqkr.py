"""SQKR, subsampled and quantized Kashin response: one-bit coefficients of a Kashin representation.

A client represents its vector in a tight frame with all coefficients bounded by B and rounds coefficients at random,
without bias, to ±B. Subsampled, it sends k of the bits as one of 2^k tokens through randomized response; dense, it
sends all N of them through the half-space mechanism. `sstq.baselines.sqkr_coders` has the mathematics of both.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from sstq.aggregation import Aggregator
from sstq.baselines.sqkr_coders import K_MAX, BitCoder, DenseCoder, SubsampledCoder, best_k
from sstq.checks import check_number, check_option
from sstq.frames.kashin import missed, represent
from sstq.mechanisms.base import Coin, Columns, EncoderInput, Floats, Ints, Rows, Unbiased
from sstq.mechanisms.framed import FrameName, KashinMechanism, KashinParameters, Recipe, solve_kashin
from sstq.mechanisms.parameters import Word
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field, Layout
from sstq.scalar.channels import FlatChannel, flat_channel_of_size

Variant = Literal["subsampled", "dense"]


class SignAggregator(Aggregator):
    """Two integers per frame coordinate: how often it was sent as −1 and as +1. One synthesis gives the mean.

    The second moment of coordinate i of x̂ is (d·w)²·Σ_l u_ji², which the counts give, plus the cross terms, κ·x_i² in
    expectation, where the mean's own square stands for the mean of x_i². Where clients differ, the variance is off by
    (κ − 1) times the spread of their x_i. At the k of least error κ ≤ 1.19 (0 at k = 1 and dense), and summed over the
    coordinates the shortfall is at most a (κ − 1)·k·g²/(d·β²)-th of the variance.
    """

    _mechanism: "SQKR"

    def _empty_state(self) -> Ints:
        return np.zeros((self._mechanism.coder.frame.size, 2), dtype=np.int64)

    def _add(self, messages: Messages) -> None:
        self._mechanism.coder.tally(messages, self._state)

    def _add_counts(self, messages: Messages, times: Ints) -> None:
        self._mechanism.coder.tally(messages, self._state, times[:, None])

    def _mean_and_second_moment(self) -> tuple[Floats, Floats]:
        coder, scale = self._mechanism.coder, self._mechanism.decoding_scale
        frame = coder.frame
        total = (self._state[:, 1] - self._state[:, 0]) * scale
        value = np.asarray(frame.synthesize(total[None] * (frame.size / self._count))[0], dtype=np.float64)
        sent = self._state.sum(axis=1).astype(np.float64)
        diagonal = frame.column_power(sent) * ((frame.dim * scale) ** 2 / self._count)
        return value, diagonal + coder.cross * value**2


@dataclass(frozen=True, eq=False, kw_only=True)
class SQKRParameters(KashinParameters):
    """The parameters of SQKR: the two weights of randomized response, on 2^k tokens or for the side."""

    variant: Variant
    k: int | None
    coin: Coin
    own: Word
    other: Word
    messages: int = 1


class SQKR(KashinMechanism):
    """Subsampled and quantized Kashin response.

    Subsampled: x̂ = (d/k)·(B/g)·Σ_l z_l·u_j with g = p − q of randomized response on 2^k tokens, and with β = K/√ρ
    E‖x̂ − x‖² = clip²·d·β²/(k·g²) + ((k − 1)/(k·g) − 1)·‖x‖². It takes k·(⌈log₂ N⌉ + 1) bits, or k with a public coin.
    Dense: x̂ = (d/N)·(B/g)·Uᵀz with g = (2p − 1)·C(2h, h)/4^h, h = ⌊N/2⌋, in N bits, and
    E‖x̂ − x‖² = clip²·β²/(ρ·g²) − ‖x‖², which is about (π/2)·β²·((e^ε + 1)/(e^ε − 1))²·d·clip²: π/2 times that of k = 1.

    Reference: W.-N. Chen, P. Kairouz, A. Özgür, *Breaking the communication-privacy-accuracy trilemma*, NeurIPS 2020
    (the subsampled scheme). J. Duchi, M. Jordan, M. Wainwright, *Minimax optimal procedures for locally private
    estimation*, JASA 2018 (the half-space mechanism on the hypercube).

    Warning:
        The SSTQ paper's rule is min(⌈log₂ e⌉·ε, b₀) in Table 1 and min(⌈2ε⌉, b₀) in its text: k = 4 at ε = 3 with its
        b₀ = 4. The errors of its figure are those of k = 3, which has the least error there.

    Args:
        k: the coordinates of a subsampled message, 1 to 32; None for the k of least error.
        variant: "subsampled" (default) or "dense".
        coin: who draws the k coordinates: the client ("private", default), or a shared generator ("public"): then a
            message is k bits, and both sides name the clients.
        messages: m, the messages per client, each with its own coordinates, for a shuffler, as in `sstq.Mechanism`.
        kashin, level, steps, frame, frame_size: as in `sstq.mechanisms.framed.KashinMechanism`.

    Examples:
        >>> SQKR(dim=25_450, epsilon=3.0, k=4).message_bits, SQKR(dim=25_450, epsilon=3.0, coin="public").message_bits
        (68, 3)
    """

    name = "sqkr"
    exact = True
    aggregator_class = SignAggregator
    parameters_class = SQKRParameters
    _draws_by = "coder"
    variants: ClassVar = {"SQKR": {}, "SQKR, public coin": {"coin": "public"}, "SQKR dense": {"variant": "dense"}}

    parameters: SQKRParameters
    variant: str
    k: int | None

    def __init__(
        self,
        dim: int,
        epsilon: float,
        *,
        clip: float = 1.0,
        k: int | None = None,
        variant: Variant = "subsampled",
        coin: Coin = "private",
        messages: int = 1,
        kashin: Recipe = "certified",
        level: float | None = None,
        steps: int | None = None,
        frame: FrameName = "hadamard",
        frame_size: int | None = None,
        frame_seed: int = 0,
    ) -> None:
        common = self._checked(dim=dim, epsilon=epsilon, clip=clip, messages=messages)
        check_option("variant", variant, ("subsampled", "dense"))
        framed, chosen, recipe = solve_kashin(common["dim"], frame_size, frame_seed, level, steps, frame, kashin)
        if variant == "subsampled" and k is None:
            k = best_k(common["dim"], common["epsilon"], recipe.bound(chosen))
        bits = _token_bits(variant, k, coin)
        channel = flat_channel_of_size(1 << bits, common["epsilon"])
        solved = SQKRParameters(
            **common,
            **framed,
            variant=variant,
            k=None if k is None else bits,
            coin=coin,
            own=channel.own,
            other=channel.other,
        )
        self._hold(solved)

    @cached_property
    def channel(self) -> FlatChannel:
        """Randomized response on the tokens of k bits, or on the two sides of a dense message."""
        bits = _token_bits(self.variant, self.k, self.coin)
        return FlatChannel(self.epsilon, 1 << bits, self.parameters.own, self.parameters.other)

    @cached_property
    def layout(self) -> Layout:
        """The bits, and with a private coin the coordinates."""
        return Layout(self.coder.fields)

    @property
    def uncountable(self) -> str:
        """Dense messages have a bit per coordinate of the frame."""
        return "dense messages have one bit per coordinate, and hardly two are equal" if self.k is None else ""

    @property
    def _public_fields(self) -> tuple[Field, ...]:
        size = self.frame.size
        return (Field("index", (size - 1).bit_length(), size, self.coder.sent),) if self.coin == "public" else ()

    def _public_columns(self, messages: Messages) -> Columns:
        if messages.clients is None or not isinstance(self.coder, SubsampledCoder):
            return ()
        index = self.coder.public_indices(messages.clients)
        return (index[:, 0] if self.k == 1 else index,)

    @property
    def words_each(self) -> int:
        """As many as the coder takes."""
        return self.coder.words_each

    @property
    def unbiased(self) -> Unbiased:
        """Always if the representation is certified, else never."""
        return self._certified

    @cached_property
    def coder(self) -> BitCoder:
        """The coder, which defines what the bits of a message mean."""
        if self.k is None:
            return DenseCoder.of(self.frame, self.kashin, self.channel)
        return SubsampledCoder.of(self.frame, self.kashin, self.channel, self.k, self.coin)

    @property
    def decoding_scale(self) -> float:
        """The w with x̂ = d·w·Σ_l z_l·u_j over the m signs of a message: B/(m·g)."""
        return self.bound / (self.coder.sent * self.coder.gain)

    def _encode(self, batch: EncoderInput) -> Columns:
        unit = self._unit_ball(batch.rows, batch.report)
        columns, residuals = self.coder.encode(unit, batch.words, batch.clients)
        if batch.report is not None:
            batch.report.missed += missed(unit, residuals)
        return columns

    def _decode(self, messages: Messages) -> Floats:
        return self.coder.signed_sums(messages) * (self.dim * self.decoding_scale)

    def largest_message(self) -> float:
        """Attained: by k times one coordinate (private coin), and dense by a column of the Hadamard matrix."""
        if self.k is None:
            return math.sqrt(self.dim) * self.bound / self.coder.gain
        return self.dim * self.decoding_scale * self.k * self.frame.longest_row()

    def _largest_biased_mean(self) -> float:
        """No coefficient exceeds the bound."""
        return math.sqrt(self.dim) * self.bound

    def _row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact for every representation: see `sstq.baselines.sqkr_coders`."""
        coefficients, _ = represent(self.frame, self.kashin, self._unit_ball(rows))
        mean = np.asarray(self.frame.synthesize(coefficients.astype(np.float64) * self.bound), dtype=np.float64)
        power = (self.dim * self.decoding_scale) ** 2 * self.coder.sent
        return mean, power + (self.coder.cross - 1) * np.sum(mean**2, axis=1)


def _token_bits(variant: str, k: Any, coin: Any) -> int:
    """The bits of a token of the channel, k or 1; k is checked, and both are refused where they mean nothing."""
    if variant == "subsampled":
        return int(check_number("k", k, 1, K_MAX, integer=True))
    if k is not None:
        raise ValueError(f"k must be left out with variant='dense', got {k!r}")
    if coin != "private":
        raise ValueError(
            "coin must be 'private' with variant='dense', got 'public': a dense message has no index to save"
        )
    return 1
