"""The scalar parts of SSTQ (channel, codebook and decoding values), built from their names, and whether they fit."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_option
from sstq.scalar import channels, codebooks
from sstq.scalar.channels import RESIDUAL_MAX, Channel
from sstq.scalar.codebooks import Codebook
from sstq.scalar.densities import Density
from sstq.scalar.metric_aware import (
    Rate,
    discrete_laplace_channel,
    loss_optimal_codebook,
    metric_aware_channel,
    rescaling,
)
from sstq.scalar.optimal import OPTIMAL, check_unbiased, optimal_channel

ChannelName = Literal["flat", "metric-aware", "discrete-laplace", "optimal"]
CodebookName = Literal["optimized", "uniform", "panter-dite", "loss-optimal", "optimal", "custom"]
DecoderName = Literal["unbiased", "identity", "rescaled"]
_LARGEST_VALUE = 1e100


def check_scalar(bits: int, decoder: str, values: NDArray[np.float64], channel: Channel, codebook: Codebook) -> None:
    """Refuse a channel, a codebook and decoding values that do not belong together; they may come from JSON."""
    if values.ndim != 1 or not np.all(np.abs(values) <= _LARGEST_VALUE) or not values.any():
        raise ValueError(f"decoder values must be numbers up to {_LARGEST_VALUE:g} in magnitude, not all zero")
    codes = 1 << bits
    (inputs, outputs), words = channel.shape, len(codebook.values)
    tokens = inputs if channel.name == OPTIMAL else codes
    if not inputs == words == tokens or not outputs == len(values) == codes:
        raise ValueError(
            f"channel, codebook and decoder must have {tokens} tokens and 2^bits = {codes} codes, got a channel from "
            f"{inputs} to {outputs}, {words} codewords and {len(values)} decoded values"
        )
    if OPTIMAL in (channel.name, codebook.name):
        if not channel.name == codebook.name == OPTIMAL or decoder != "unbiased":
            raise ValueError("the optimal channel, its codebook and its unbiased decoder belong together")
        check_unbiased(channel, codebook, values)
    if decoder == "unbiased":
        off = float(np.abs(channel.moments(values)[0] - codebook.values).max())
    else:
        # The last codeword is 1, so the last value is the factor.
        factor = 1.0 if decoder == "identity" else float(values[-1])
        if not factor > 0:
            raise ValueError(f"decoder 'rescaled' must have a positive factor, got {factor:g}")
        off = float(np.abs(values / factor - codebook.values).max())
    if not off <= RESIDUAL_MAX:
        raise ValueError(f"decoder {decoder!r} must have its own values, got values that differ by {off:g}")


def build_scalar(
    bits: int,
    epsilon: float,
    channel: str,
    codebook: str | Codebook | None,
    decoder: str | None,
    rate: str | None,
    density: Density | None,
    typical: Density | None,
) -> tuple[Channel, Codebook, str, NDArray[np.float64]]:
    """Build the channel, the codebook and the decoder's name and values, for one coordinate in units of B.

    Parts that are made for a density use `density`, or the representation's `typical` one by default.
    """
    check_option("channel", channel, get_args(ChannelName))
    if channel != "metric-aware" and rate not in (None, "calibrated"):
        raise ValueError(f"rate must be left out unless channel='metric-aware', got {rate!r} with channel={channel!r}")
    decay: Any = check_option("rate", "calibrated" if rate is None else rate, get_args(Rate))
    if channel == OPTIMAL:
        for label, given, wanted in (("codebook", codebook, OPTIMAL), ("decoder", decoder, "unbiased")):
            if given not in (None, wanted):
                raise ValueError(f"{label} must be {wanted!r} with channel='optimal', got {given!r}")
        solved = optimal_channel(bits, epsilon, _density_for("channel='optimal'", density or typical))
        return solved.channel, solved.codebook, "unbiased", solved.values
    flat = channel == "flat"
    usual = "unbiased" if flat else "identity"
    decoder = check_option("decoder", usual if decoder is None else decoder, get_args(DecoderName))
    if flat and decoder == "rescaled":
        raise ValueError("decoder must not be 'rescaled' with channel='flat', got 'rescaled'; use 'unbiased'")
    if not isinstance(codebook, Codebook):
        usual = "optimized" if flat else "uniform"
        codebook = check_option("codebook", usual if codebook is None else codebook, get_args(CodebookName)[:-1])
        if codebook == OPTIMAL or (codebook == "loss-optimal" and channel != "metric-aware"):
            needed = "optimal" if codebook == OPTIMAL else "metric-aware"
            raise ValueError(f"codebook must not be {codebook!r} unless channel={needed!r}, got channel={channel!r}")
    elif codebook.size != 1 << bits:
        raise ValueError(
            f"codebook must have 2^bits = {1 << bits} codewords, got {codebook.size}; pass bits={codebook.bits}"
        )
    if density is not None and codebook not in ("panter-dite", "loss-optimal") and decoder != "rescaled":
        raise ValueError(
            "density must be left out unless channel='optimal', decoder='rescaled' or codebook is 'panter-dite' or "
            f"'loss-optimal', got codebook={codebook!r}"
        )
    words = _codebook(codebook, bits, epsilon, decay, density or typical)
    built: Channel
    if flat:
        built = channels.flat_channel(bits, epsilon)
    elif channel == "metric-aware":
        built = metric_aware_channel(words, epsilon, decay)
    else:
        built = discrete_laplace_channel(words, epsilon)
    values = words.values
    if decoder == "unbiased":
        values = channels.unbiased_decoder(built, words)
    elif decoder == "rescaled":
        values = values * rescaling(built, words, _density_for("decoder='rescaled'", density or typical))
    return built, words, decoder, values


def _codebook(codebook: str | Codebook, bits: int, epsilon: float, rate: Rate, density: Density | None) -> Codebook:
    """The codebook with this name, or the given one."""
    if isinstance(codebook, Codebook):
        return Codebook("custom", codebook.values)
    if codebook == "optimized":
        return codebooks.optimized_codebook(bits, epsilon)
    if codebook == "uniform":
        return codebooks.uniform_codebook(bits)
    density = _density_for(f"codebook={codebook!r}", density)
    if codebook == "panter-dite":
        return codebooks.panter_dite_codebook(bits, density)
    return loss_optimal_codebook(bits, density, epsilon, rate)


def _density_for(what: str, density: Density | None) -> Density:
    if density is None:
        raise ValueError(f"density must be given for {what} with kashin='paper'")
    return density
