"""The scalar parts of SSTQ (channel, codebook and decoding values), solved from their names."""

import math
from typing import Any, Literal, get_args

from sstq.checks import ArgumentError, check_option
from sstq.scalar import channels, codebooks
from sstq.scalar.channels import Channel, FlatChannel
from sstq.scalar.codebooks import Codebook
from sstq.scalar.densities import Density
from sstq.scalar.metric_aware import (
    Rate,
    discrete_laplace_channel,
    loss_optimal_codebook,
    metric_aware_channel,
    rescaling,
)
from sstq.scalar.optimal import OPTIMAL, optimal_channel

ChannelName = Literal["flat", "metric-aware", "discrete-laplace", "optimal"]
CodebookName = Literal[
    "optimized", "uniform", "panter-dite", "loss-optimal", "optimal", "custom"
]
DecoderName = Literal["unbiased", "identity", "rescaled"]
_MOST_BITS = 12
_OTHER_BITS = 4
# Parts that are made for a density of the coordinates.
_OF_A_DENSITY = ("panter-dite", "loss-optimal", "rescaled", OPTIMAL)


def solve_scalar(
    bits: int,
    epsilon: float,
    channel: str,
    codebook: str | Codebook | None,
    decoder: str | None,
    rate: str | None,
    density: Density | None,
) -> dict[str, Any]:
    """Solve the channel, the codebook and the decoding values of one coordinate in units of B, as parameters.

    Some parts are made for the `density` of the coordinates, which is None for the paper's recipe.
    """
    check_option("channel", channel, get_args(ChannelName))
    decay = _checked_rate(rate, channel)
    if density is None:
        _refuse_parts_of_a_density(channel, codebook, decoder)
        density = Density.uniform()
    if channel == OPTIMAL:
        for label, given, wanted in (
            ("codebook", codebook, OPTIMAL),
            ("decoder", decoder, "unbiased"),
        ):
            if given not in (None, wanted):
                raise ValueError(
                    f"{label} must be {wanted!r} with channel='optimal', got {given!r}"
                )
        solved = optimal_channel(bits, epsilon, density)
        return _parameters(solved.channel, solved.codebook, "unbiased", solved.values)
    usual = ("optimized", "unbiased") if channel == "flat" else ("uniform", "identity")
    decoder = check_option(
        "decoder", usual[1] if decoder is None else decoder, get_args(DecoderName)
    )
    if channel == "flat" and decoder == "rescaled":
        raise ValueError(
            "decoder must not be 'rescaled' with channel='flat', got 'rescaled'; use 'unbiased'"
        )
    words = _codebook(
        usual[0] if codebook is None else codebook,
        bits,
        epsilon,
        channel,
        decay,
        density,
    )
    built: Channel
    if channel == "flat":
        built = channels.flat_channel(bits, epsilon)
    elif channel == "metric-aware":
        built = metric_aware_channel(words, epsilon, decay)
    else:
        built = discrete_laplace_channel(words, epsilon)
    values = words.values
    if decoder == "unbiased":
        values = channels.unbiased_decoder(built, words)
    elif decoder == "rescaled":
        values = values * rescaling(built, words, density)
    return _parameters(built, words, decoder, values)


def _checked_rate(rate: str | None, channel: str) -> Any:
    """The rate of the metric-aware channel, which others do not have."""
    if channel != "metric-aware" and rate not in (None, "calibrated"):
        raise ValueError(
            f"rate must be left out unless channel='metric-aware', got {rate!r} with channel={channel!r}"
        )
    return check_option("rate", "calibrated" if rate is None else rate, get_args(Rate))


def _refuse_parts_of_a_density(*parts: Any) -> None:
    """Refuse parts that need a density of the coordinates, which the paper's recipe does not have."""
    for part in parts:
        if isinstance(part, str) and part in _OF_A_DENSITY:
            raise ArgumentError(
                "kashin", f"must be 'certified' with {part!r}, got 'paper'"
            )


def usual_bits(
    epsilon: float,
    channel: str,
    codebook: str | Codebook | None,
    density: Density | None,
) -> int:
    """The bits of least error with the flat channel, of one's own codebook, or those of other channels."""
    if isinstance(codebook, Codebook):
        return codebook.bits
    if channel != "flat" or codebook == OPTIMAL:
        return _OTHER_BITS
    density = Density.uniform() if density is None else density
    best = 0
    least = math.inf
    # More bits are better up to some number, and worse from there on.
    for bits in range(1, _MOST_BITS + 1):
        words = _codebook(
            "optimized" if codebook is None else codebook,
            bits,
            epsilon,
            channel,
            "calibrated",
            density,
        )
        # from here on codewords coincide, and more of them change nothing
        if len(set(words.values)) < words.size:
            break
        built = channels.flat_channel(bits, epsilon)
        tokens = codebooks.token_moments(
            *codebooks.rounding_moments(words.values, density), density
        )[0]
        moment = float(
            tokens @ built.moments(channels.unbiased_decoder(built, words))[1]
        )
        if moment >= least:
            break
        best = bits
        least = moment
    return best


def _codebook(
    codebook: str | Codebook,
    bits: int,
    epsilon: float,
    channel: str,
    rate: Rate,
    density: Density,
) -> Codebook:
    """The codebook with this name, or the given one."""
    if isinstance(codebook, Codebook):
        if codebook.size != 1 << bits:
            is_power = codebook.size == 1 << codebook.bits
            remedy = (
                f"pass bits={codebook.bits}"
                if is_power
                else "a codeword may stand there twice"
            )
            raise ValueError(
                f"codebook must have 2^bits = {1 << bits} codewords, got {codebook.size}; {remedy}"
            )
        return Codebook("custom", codebook.values)
    check_option("codebook", codebook, get_args(CodebookName)[:-1])
    if codebook == OPTIMAL or (
        codebook == "loss-optimal" and channel != "metric-aware"
    ):
        needed = "optimal" if codebook == OPTIMAL else "metric-aware"
        raise ValueError(
            f"codebook must not be {codebook!r} unless channel={needed!r}, got channel={channel!r}"
        )
    if codebook == "optimized":
        return codebooks.optimized_codebook(bits, epsilon)
    if codebook == "uniform":
        return codebooks.uniform_codebook(bits)
    if codebook == "panter-dite":
        return codebooks.panter_dite_codebook(bits, density)
    return loss_optimal_codebook(bits, density, epsilon, rate)


def _parameters(
    channel: Channel, codebook: Codebook, decoder: str, values: Any
) -> dict[str, Any]:
    weights: dict[str, Any]
    if isinstance(channel, FlatChannel):
        weights = {"own": channel.own, "other": channel.other}
    else:
        weights = {"weights": channel.matrix}
    names = {"channel": channel.name, "codebook": codebook.name, "decoder": decoder}
    return (
        names | {"codebook_values": codebook.values, "decoder_values": values} | weights
    )
