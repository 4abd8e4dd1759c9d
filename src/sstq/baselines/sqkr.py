"""SQKR, subsampled and quantized Kashin response: one-bit coefficients of a Kashin representation.

A client represents its vector in a tight frame with all coefficients bounded by B and rounds coefficients at random to
bits v = ±1 with E[v] = y/B. Subsampled, it sends k of them as one of 2^k tokens through randomized response; dense, all
N through the half-space mechanism. Either way a message stands for signs z_l = ±1 of m frame coordinates j_l, and
x̂ = (d/m)·(B/g)·Σ_l z_l·u_j. The gain g, with E[z_l | v] = g·v_l, makes x̂ unbiased. The cross factor κ is such that
(d·B/(m·g))²·Σ E[z_l·z_l'·u_j·u_j'ᵀ] = κ·x·xᵀ, over all pairs l ≠ l'; the terms l = l' do not depend on the data, and
the mean of ‖u_j‖² is 1. Hence E‖x̂‖² = d²·B²/(m·g²) + κ·‖x‖² exactly, for the x that the representation stands for.

Subsampled coordinates are drawn with replacement, each with a rounding of its own, so that the terms of x̂ are alike and
independent but for the channel: E[z_l·z_l' | v] = g·v_l·v_l' with g = p − q, and κ = (k − 1)/(k·g); k may exceed N.

Dense, z is drawn uniformly from {±1}^N and then turned to −z, or not, so that ⟨z, v⟩ > 0 with probability
p = e^ε/(1 + e^ε), an integer of 2^62; where ⟨z, v⟩ = 0 it stays. So the probability of z is 2p, 2(1 − p) or once 2^-N,
and for two inputs it differs by p/(1 − p) at most. E[z | v] = (2p − 1)·m_N·v with m_N = E|⟨z, v⟩|/N over uniform z,
which is C(2h, h)/4^h at h = ⌊N/2⌋. And z·zᵀ is even in z, so E[z·zᵀ] = I whatever v is: κ = 0.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sstq.extending import (
    Batch,
    Column,
    Columns,
    DenseEstimator,
    Estimate,
    Field,
    FlatChannel,
    Floats,
    Frame,
    FrameName,
    Ints,
    KashinMechanism,
    KashinSolved,
    Law,
    Layout,
    Messages,
    Recipe,
    Rows,
    Sums,
    Word,
    channel_words,
    check_number,
    check_option,
    flat_channel_of_size,
    represent,
    row_chunks,
    solve_kashin,
    streams,
    unit_interval,
)

Variant = Literal["subsampled", "dense"]

# More bits than any ε up to 20 can use.
_K_MAX = 32


@dataclass(frozen=True, eq=False)
class SignEstimator(DenseEstimator):
    """Two integers per frame coordinate: how often it was sent as −1 and as +1. One synthesis gives the mean.

    The second moment of coordinate i of x̂ is (d·w)²·Σ_l u_ji², which the counts give, plus κ·x_i² in expectation, where
    the mean's own square stands for the mean of x_i²: the variance is off by (κ − 1) times the spread of the clients'
    x_i, summed over the coordinates at most a (κ − 1)·k·g²/(d·β²)-th. At the k of least error κ ≤ 1.19.

    Attributes:
        frame: its rows are the u_j.
        scale: w.
        cross: κ.
        k: the signs of a message; None if it has all of them.
    """

    frame: Frame
    scale: float
    cross: float
    k: int | None

    @property
    def shape(self) -> tuple[int, int]:
        """One row per coordinate."""
        return self.frame.size, 2

    def add(self, state: Ints, messages: Messages, times: Ints | None) -> None:
        """Count the signs."""
        if self.k is not None:
            np.add.at(
                state,
                self.indices_and_bits(messages),
                1 if times is None else times[:, None],
            )
            return
        ones = self._dense_bits(messages).sum(axis=0, dtype=np.int64)
        state += np.stack([len(messages) - ones, ones], axis=1)

    def indices_and_bits(self, messages: Messages) -> tuple[Ints, Ints]:
        """The coordinate and the bit of each draw of subsampled messages, both (n, k)."""
        index = (
            messages.column("index")
            .reshape(len(messages), self.k or 1)
            .astype(np.int64)
        )
        return index, messages.column("bits").astype(np.int64)[:, None] >> np.arange(
            index.shape[1]
        ) & 1

    def _dense_bits(self, messages: Messages) -> Column:
        return messages.column("bits").reshape(len(messages), self.frame.size)

    def decode(self, messages: Messages) -> Floats:
        """The estimates of single messages."""
        sums = np.zeros((len(messages), self.frame.dim))
        if self.k is None:
            dense = self._dense_bits(messages)
            for part in row_chunks(len(dense), self.frame.size):
                sums[part] = self.frame.synthesize(
                    (2.0 * dense[part] - 1) * self.frame.redundancy
                )
        else:
            for index, bit in zip(
                *(each.T for each in self.indices_and_bits(messages)), strict=True
            ):
                sums += self.frame.rows(index) * (2.0 * bit[:, None] - 1)
        return sums * (self.frame.dim * self.scale)

    def estimate(self, sums: Sums) -> Estimate:
        """The mean, by one synthesis."""
        total = (sums.state[:, 1] - sums.state[:, 0]) * self.scale
        value = np.asarray(
            self.frame.synthesize(total[None] * (self.frame.size / sums.count))[0],
            dtype=np.float64,
        )
        sent = sums.state.sum(axis=1).astype(np.float64)
        diagonal = self.frame.column_power(sent) * (
            (self.frame.dim * self.scale) ** 2 / sums.count
        )
        return self.averaged(sums, value, diagonal + self.cross * value**2)


@dataclass(frozen=True, eq=False, kw_only=True)
class SQKRSolved(KashinSolved):
    """The values of SQKR: the two weights of randomized response, on 2^k tokens or for the side."""

    variant: Variant
    k: int | None
    coin: Literal["private"]
    own: Word
    other: Word
    messages: int = 1


class SQKR(KashinMechanism):
    """Subsampled and quantized Kashin response.

    Subsampled: x̂ = (d/k)·(B/g)·Σ_l z_l·u_j with g = p − q of randomized response on 2^k tokens, and with β = K/√ρ
    E‖x̂ − x‖² = clip²·d·β²/(k·g²) + ((k − 1)/(k·g) − 1)·‖x‖². It takes k·(⌈log₂ N⌉ + 1) bits.
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
        messages: m, the messages per client, each with its own coordinates, for a shuffler, as in `sstq.Mechanism`.
        kashin, level, steps, frame, frame_size: as in `sstq.mechanisms.framed.KashinMechanism`.

    Examples:
        >>> SQKR(dim=25_450, epsilon=3.0, k=4).message_bits
        68
    """

    name = "sqkr"
    exact = True
    solved_class = SQKRSolved
    variants: ClassVar = {"SQKR": {}, "SQKR dense": {"variant": "dense"}}

    solved: SQKRSolved
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
        messages: int = 1,
        kashin: Recipe = "certified",
        level: float | None = None,
        steps: int | None = None,
        frame: FrameName = "hadamard",
        frame_size: int | None = None,
        frame_seed: int = 0,
    ) -> None:
        given = dict(locals())
        common = self.checked(dim=dim, epsilon=epsilon, clip=clip, messages=messages)
        check_option("variant", variant, ("subsampled", "dense"))
        framed, chosen, recipe = solve_kashin(
            common["dim"], frame_size, frame_seed, level, steps, frame, kashin
        )
        if variant == "subsampled" and k is None:
            k = _best_k(common["dim"], common["epsilon"], recipe.bound(chosen))
        bits = _token_bits(variant, k)
        channel = flat_channel_of_size(1 << bits, common["epsilon"])
        drawn: dict[str, Any] = {
            "own": channel.own,
            "other": channel.other,
            "k": None if k is None else bits,
        }
        self.settle(
            given,
            SQKRSolved(**common, **framed, **drawn, variant=variant, coin="private"),
        )

    @cached_property
    def channel(self) -> FlatChannel:
        """Randomized response on the tokens of k bits, or on the two sides of a dense message."""
        bits = _token_bits(self.variant, self.k)
        return FlatChannel(self.epsilon, 1 << bits, self.solved.own, self.solved.other)

    @property
    def draw(self) -> FlatChannel | Law:
        """The channel, or the half-space mechanism, whose side the channel draws."""
        channel = self.channel
        if self.k is not None:
            return channel
        return Law("half-space", self.frame.size, [(channel.own, channel.other)])

    @cached_property
    def layout(self) -> Layout:
        """The bits, and the coordinates unless all are sent."""
        if self.k is None:
            return Layout((Field("bits", 2, self.frame.size),))
        return Layout(
            (Field("bits", 1 << self.k), Field("index", self.frame.size, self.k))
        )

    @cached_property
    def estimator(self) -> SignEstimator:
        """How often each coordinate was sent with each sign."""
        return SignEstimator(self, self.frame, self.decoding_scale, self.cross, self.k)

    @property
    def uncountable(self) -> str:
        """Dense messages have a bit per coordinate of the frame."""
        return (
            "dense messages have one bit per coordinate, and hardly two are equal"
            if self.k is None
            else ""
        )

    @property
    def words_each(self) -> int:
        """For indices, to round, and for the channel; dense, 32 bits round, and z has N."""
        size = self.frame.size
        return -(-size // 2) + -(-size // 64) + 1 if self.k is None else 2 * self.k + 1

    @property
    def sent(self) -> int:
        """m, the number of signs in a message."""
        return self.frame.size if self.k is None else self.k

    @property
    def gain(self) -> float:
        """The gain g, with E[z_l | v] = g·v_l."""
        return self.channel.gain * (
            _central_binomial(self.frame.size // 2) if self.k is None else 1.0
        )

    @property
    def cross(self) -> float:
        """The cross factor κ of two different signs."""
        return 0.0 if self.k is None else (self.k - 1) / (self.k * self.gain)

    @property
    def decoding_scale(self) -> float:
        """The w with x̂ = d·w·Σ_l z_l·u_j over the m signs of a message: B/(m·g)."""
        return self.bound / (self.sent * self.gain)

    def encode_batch(self, batch: Batch) -> Columns:
        """Round coefficients to signs, and send some through the channel or turn all of them to one side."""
        if self.k is None:
            return self._encode_dense(batch)
        words = batch.words
        k = self.k
        index = streams.multiply_shift(words[:, :k], self.frame.size)
        y = self._coefficients(batch, index)
        bits = unit_interval(words[:, k:-1]) < (1 + y.astype(np.float64)) / 2
        token = np.sum(bits.astype(np.int64) << np.arange(k), axis=1)
        sent = self.channel.sample(token, channel_words(words[:, -1]))
        return sent, index[:, 0] if k == 1 else index

    def _encode_dense(self, batch: Batch) -> Columns:
        size = self.frame.size
        rounding = -(-self.frame.size // 2)
        words = batch.words.astype("<u8", copy=False)
        halves = np.ascontiguousarray(words[:, :rounding]).view("<u4")[:, :size]
        v = halves * 2.0**-31 - 1 < self._coefficients(batch)
        raw = np.ascontiguousarray(words[:, rounding:-1]).view(np.uint8)
        z = np.unpackbits(raw, axis=1, count=size, bitorder="little")
        outside = (
            self.channel.sample(
                np.zeros(len(words), dtype=np.int64), channel_words(words[:, -1])
            )
            == 1
        )
        turn_to_side(z, v, outside)
        return (z[:, 0] if size == 1 else z,)

    def largest_message(self) -> float:
        """Attained: by k times one coordinate, and dense by a column of the Hadamard matrix."""
        if self.k is None:
            return math.sqrt(self.dim) * self.bound / self.gain
        return self.dim * self.decoding_scale * self.k * self.frame.longest_row()

    def largest_biased_mean(self) -> float:
        """No coefficient exceeds the bound."""
        return math.sqrt(self.dim) * self.bound

    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact for every representation."""
        coefficients, _ = represent(self.frame, self.kashin, self.unit_ball(rows))
        mean = np.asarray(
            self.frame.synthesize(coefficients.astype(np.float64) * self.bound),
            dtype=np.float64,
        )
        power = (self.dim * self.decoding_scale) ** 2 * self.sent
        return mean, power + (self.cross - 1) * np.sum(mean**2, axis=1)


def _token_bits(variant: str, k: Any) -> int:
    """The bits of a token of the channel, k or 1; k is checked, and refused where it means nothing."""
    if variant == "subsampled":
        return int(check_number("k", k, 1, _K_MAX, integer=True))
    if k is not None:
        raise ValueError(f"k must be left out with variant='dense', got {k!r}")
    return 1


def turn_to_side(
    z: NDArray[np.uint8], v: NDArray[np.bool_], outside: NDArray[np.bool_]
) -> None:
    """Turn rows of z to their opposites, in place, so that ⟨z, v⟩ < 0 where outside and > 0 elsewhere; zero stays."""
    excess = 2 * np.count_nonzero(z != v, axis=1) - z.shape[1]
    z ^= ((excess != 0) & ((excess > 0) != outside)).astype(np.uint8)[:, None]


def _central_binomial(half: int) -> float:
    """C(2h, h)/4^h, exactly rounded or by its series: log-gammas would lose eight digits at h = 10⁶."""
    if half < 512:
        return math.comb(2 * half, half) / (1 << 2 * half)
    t = 1 / half
    series = 1 + t * (
        -1 / 8
        + t * (1 / 128 + t * (5 / 1024 + t * (-21 / 32768 + t * (-399 / 262144))))
    )
    return series / math.sqrt(math.pi * half)


def _best_k(dim: int, epsilon: float, beta: float) -> int:
    """The k of least error on the sphere, E‖x̂‖² = d·β²/(k·g²) + (1 − 1/k)/g with g = (e^ε − 1)/(e^ε − 1 + 2^k)."""

    def power(k: int) -> float:
        inverse_gain = 1 + (1 << k) / math.expm1(epsilon)
        return dim * (beta * inverse_gain) ** 2 / k + (1 - 1 / k) * inverse_gain

    return min(range(1, _K_MAX + 1), key=power)
