"""SQKR, subsampled and quantized Kashin response: one-bit coefficients of a Kashin representation.

A client represents its vector in a tight frame with all coefficients bounded by B and rounds coefficients at random,
without bias, to ±B. Subsampled, it sends k of the bits as one of 2^k tokens through randomized response; dense, it
sends all N of them through the half-space mechanism. `sstq.mechanisms.sqkr.signs` has the mathematics of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sstq.frames.kashin import Kashin, certifies, missed, represent
from sstq.frames.tight import Frame
from sstq.mechanisms.base import LocalReport, check_number, check_option
from sstq.mechanisms.flat_response import check_flat, flat_from_dict
from sstq.mechanisms.framed import FramedMechanism
from sstq.mechanisms.laws import HalfSpaceLaw, Law, channel_law
from sstq.mechanisms.parts import (
    build_frame,
    build_recipe,
    frame_from_dict,
    frame_to_dict,
    recipe_from_dict,
    recipe_to_dict,
)
from sstq.mechanisms.sqkr.dense import DenseCoder
from sstq.mechanisms.sqkr.signs import BitCoder, SignAggregator
from sstq.mechanisms.sqkr.subsampled import K_MAX, SubsampledCoder, best_k, paper_k
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Layout
from sstq.randomness.secret import BitSource
from sstq.scalar.channels import FlatChannel, flat_channel_of_size

__all__ = ["SQKR"]

_VARIANTS = ("subsampled", "dense")
_COINS = ("private", "public")


@dataclass(frozen=True, init=False, eq=False)
class SQKR(FramedMechanism):
    """Subsampled and quantized Kashin response.

    Subsampled: x̂ = (d/k)·(B/g)·Σ_l z_l·u_j with g = p − q of randomized response on 2^k tokens, and with β = K/√ρ
    E‖x̂ − x‖² = clip²·d·β²/(k·g²) + ((k − 1)/(k·g) − 1)·‖x‖². It takes k·(⌈log₂ N⌉ + 1) bits, or k with a public coin.
    Dense: x̂ = (d/N)·(B/g)·Uᵀz with g = (2p − 1)·C(2h, h)/4^h, h = ⌊N/2⌋, in N bits, and
    E‖x̂ − x‖² = clip²·β²/(ρ·g²) − ‖x‖², which is about (π/2)·β²·((e^ε + 1)/(e^ε − 1))²·d·clip²: π/2 times that of k = 1.

    Reference: W.-N. Chen, P. Kairouz, A. Özgür, *Breaking the communication-privacy-accuracy trilemma*, NeurIPS 2020
    (the subsampled scheme). J. Duchi, M. Jordan, M. Wainwright, *Minimax optimal procedures for locally private
    estimation*, JASA 2018 (the half-space mechanism on the hypercube).

    Warning:
        The SSTQ paper has min(⌈log₂ e⌉·ε, b₀) in Table 1 and min(⌈2ε⌉, b₀) in its text, which are one rule: k = 4 at
        ε = 3 with the b₀ = 4 of its experiments, as its communication table counts. The errors of its figure are those
        of k = 3, however. ``k="paper"`` is the rule; 3 is the k of least error at ε = 3, hence the default there.

    Args:
        dim: d, the length of the vectors.
        epsilon: ε of the local differential privacy of one message, 0.01 to 20.
        clip: vectors longer than this are scaled down to it.
        k: the coordinates of a subsampled message, 1 to 32; None for the k of least error, "paper" for min(⌈2ε⌉, 4).
        variant: "subsampled" (default) or "dense".
        coin: who draws the k coordinates: the client ("private", default), or a shared generator ("public"): then a
            message is k bits, and both sides name the clients.
        kashin: "certified" (default) or "paper", the paper's recipe, which is biased (see `sstq.frames.kashin`).
        level: the Kashin level K; the default is feasible for (dim, frame_size).
        steps: the number of steps of the representation, the same for every input.
        frame: "hadamard" (default), "orthogonal" or "fourier".
        frame_size: N; the default is 2^⌈log₂ 2.5d⌉.
        frame_seed: the public seed of the frame and of the public coin.

    Examples:
        >>> SQKR(dim=25_450, epsilon=3.0, k=4).message_bits
        68
        >>> mechanism = SQKR(dim=25_450, epsilon=3.0, coin="public")
        >>> mechanism.k, mechanism.message_bits
        (3, 3)
        >>> SQKR(dim=100, epsilon=1.0, variant="dense").message_bits
        256
    """

    name: ClassVar[str] = "sqkr"
    exact: ClassVar[bool] = True

    dim: int
    epsilon: float
    clip: float
    variant: str
    k: int | None
    public_coin: bool
    channel: FlatChannel
    kashin: Kashin
    frame: Frame

    def __init__(
        self,
        dim: int,
        epsilon: float,
        clip: float = 1.0,
        *,
        k: int | str | None = None,
        variant: str = "subsampled",
        coin: str = "private",
        kashin: str = "certified",
        level: float | None = None,
        steps: int | None = None,
        frame: str = "hadamard",
        frame_size: int | None = None,
        frame_seed: int = 0,
    ) -> None:
        dim = check_number("dim", dim, 1, 2**30, integer=True)
        epsilon = check_number("epsilon", epsilon, 0.01, 20)
        check_option("variant", variant, _VARIANTS)
        the_frame = build_frame(frame, dim, frame_size, frame_seed)
        recipe = build_recipe(kashin, the_frame, level, steps)
        if variant == "subsampled" and k in (None, "paper"):
            k = paper_k(epsilon) if k else best_k(dim, epsilon, recipe.bound(the_frame))
        bits = _token_bits(variant, k, coin)
        self._set_parts(
            dim=dim,
            epsilon=epsilon,
            clip=clip,
            variant=variant,
            k=None if k is None else bits,
            public_coin=coin == "public",
            channel=flat_channel_of_size(1 << bits, epsilon),
            kashin=recipe,
            frame=the_frame,
        )

    def _set_parts(self, **parts: Any) -> None:
        """Take the parts, whether built from options or read from JSON, and check that they belong together."""
        parts["clip"] = check_number("clip", parts["clip"], 1e-100, 1e100)
        check_flat(parts["channel"], 1 << (parts["k"] or 1), parts["epsilon"])
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"SQKR(dim={self.dim}, epsilon={self.epsilon}, clip={self.clip}, k={self.k}, variant={self.variant!r}, "
            f"coin={self.coin!r}, kashin={self.kashin.name!r}, frame={self.frame.name!r}, "
            f"frame_size={self.frame.size}, frame_seed={self.frame.seed})"
        )

    @cached_property
    def coder(self) -> BitCoder:
        """What the bits of a message stand for."""
        if self.k is None:
            return DenseCoder(self.frame, self.kashin, self.channel)
        return SubsampledCoder(self.frame, self.kashin, self.channel, self.k, self.public_coin)

    @cached_property
    def unbiased(self) -> bool:
        """Whether the estimate's expectation is the clipped vector, to the certificate's residual.

        A level or a number of steps of one's own may be too low for that: a typical vector is tried.
        """
        return certifies(self.frame, self.kashin)

    @property
    def coin(self) -> str:
        """Who draws the coordinates: the client in secret ("private"), or a shared generator ("public")."""
        return "public" if self.public_coin else "private"

    @property
    def layout(self) -> Layout:
        """The fields of a message: the bits and, subsampled with a private coin, the k indices above them."""
        return Layout(self.coder.fields)

    @property
    def bound(self) -> float:
        """B = K·clip/√N, the public bound of a coefficient."""
        return self.kashin.level * self.clip / math.sqrt(self.frame.size)

    @property
    def decoding_scale(self) -> float:
        """The w with x̂ = d·w·Σ_l z_l·u_j over the m signs of a message: B/(m·g)."""
        return self.bound / (self.coder.sent * self.coder.gain)

    def _encode_rows(
        self,
        rows: NDArray[Any],
        clients: NDArray[np.uint64] | None,
        source: BitSource,
        report: LocalReport | None,
    ) -> tuple[Column, ...]:
        unit = self._unit_ball(rows, report)
        columns, residuals = self.coder.encode(unit, clients, source)
        if report is not None:
            report.missed += missed(unit, residuals)
        return columns

    @property
    def _row_cost(self) -> int:
        return self.frame.size

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate of each message alone, (n, d): for diagnosis; a mean comes from `aggregator`."""
        self._check_own(messages)
        return self.coder.signed_sums(messages) * (self.dim * self.decoding_scale)

    def aggregator(self) -> SignAggregator:
        """An empty aggregator for this mechanism's messages."""
        return SignAggregator(self)

    def law(self) -> Law:
        """The channel's, on the 2^k tokens; dense, the half-space mechanism's, whose side the channel draws."""
        if self.variant == "dense":
            return HalfSpaceLaw(self.frame.size, self.channel.own, self.channel.other)
        return channel_law(self.channel.to_dict())

    def privacy_loss(self) -> float:
        """The exact log-ratio of the channel's two integers, rounded up to a double.

        The coordinates and the dense variant's z are drawn without looking at the data; opposite bits reach the ratio.
        """
        return self.channel.privacy_loss()

    def _row_error(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Exact for every representation: see `sstq.mechanisms.sqkr.signs`."""
        unit = self._unit_ball(rows)
        coefficients, _ = represent(self.frame, self.kashin, unit)
        mean = np.asarray(self.frame.synthesize(coefficients.astype(np.float64) * self.bound), dtype=np.float64)
        power = (self.dim * self.decoding_scale) ** 2 * self.coder.sent
        return mean, power + (self.coder.cross - 1) * np.sum(mean**2, axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Everything public, the channel's integers included, as JSON values."""
        return {
            "dim": self.dim,
            "epsilon": self.epsilon,
            "clip": self.clip,
            "variant": self.variant,
            "k": self.k,
            "coin": self.coin,
            "frame": frame_to_dict(self.frame),
            "kashin": recipe_to_dict(self.kashin),
            "channel": self.channel.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SQKR:
        """The mechanism whose `to_dict` this is; its integers are checked again, not solved again."""
        dim = check_number("dim", data["dim"], 1, 2**30, integer=True)
        epsilon = check_number("epsilon", data["epsilon"], 0.01, 20)
        frame = frame_from_dict(dim, data["frame"])
        variant = check_option("variant", data["variant"], _VARIANTS)
        bits = _token_bits(variant, data["k"], data["coin"])
        mechanism = object.__new__(cls)
        mechanism._set_parts(
            dim=dim,
            epsilon=epsilon,
            clip=data["clip"],
            variant=variant,
            k=data["k"],
            public_coin=data["coin"] == "public",
            channel=flat_from_dict(data["channel"], 1 << bits, epsilon),
            kashin=recipe_from_dict(frame, data["kashin"]),
            frame=frame,
        )
        return mechanism


def _token_bits(variant: str, k: Any, coin: Any) -> int:
    """The bits of a token of the channel, k or 1; k and coin are checked, and refused where they mean nothing."""
    check_option("coin", coin, _COINS)
    if variant == "subsampled":
        if isinstance(k, str):
            raise ValueError(f"k must be an integer in [1, {K_MAX}], 'paper' or None, got {k!r}")
        return int(check_number("k", k, 1, K_MAX, integer=True))
    if k is not None:
        raise ValueError(f"k is an argument of the subsampled variant, got k={k!r} with variant='dense'")
    if coin != "private":
        raise ValueError("coin='public' is for the subsampled variant: a dense message has no index to save")
    return 1
