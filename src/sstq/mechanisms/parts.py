"""The scalar parts of SSTQ (channel, codebook and decoder), built from their names, and whether they fit."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_option
from sstq.scalar import channels, codebooks
from sstq.scalar.channels import RESIDUAL_MAX, Channel
from sstq.scalar.codebooks import Codebook
from sstq.scalar.densities import Density
from sstq.scalar.metric_aware import Rate, loss_optimal_codebook, metric_aware_channel
from sstq.scalar.optimal import OPTIMAL, check_unbiased, optimal_channel

ChannelName = Literal["flat", "metric-aware", "optimal"]
CodebookName = Literal["optimized", "uniform", "panter-dite", "loss-optimal", "optimal"]
DecoderName = Literal["unbiased", "identity"]
_LARGEST_VALUE = 1e100


@dataclass(frozen=True, eq=False)
class Decoder:
    """The value that each code stands for on the server, in units of B."""

    name: str
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        check_option("decoder", self.name, get_args(DecoderName))
        if self.values.ndim != 1 or not np.all(np.abs(self.values) <= _LARGEST_VALUE) or not self.values.any():
            raise ValueError(f"decoder values must be numbers up to {_LARGEST_VALUE:g} in magnitude, not all zero")
        values = np.array(self.values)
        values.setflags(write=False)
        object.__setattr__(self, "values", values)


def check_scalar(bits: int, channel: Channel, codebook: Codebook, decoder: Decoder) -> None:
    """Refuse a channel, a codebook and a decoder that do not belong together; they may come from JSON."""
    codes = 1 << bits
    tokens = channel.inputs if channel.name == OPTIMAL else codes
    if not channel.inputs == codebook.size == tokens or not channel.outputs == len(decoder.values) == codes:
        raise ValueError(
            f"channel, codebook and decoder must have {tokens} tokens and 2^bits = {codes} codes, got a channel from "
            f"{channel.inputs} to {channel.outputs}, {codebook.size} codewords and {len(decoder.values)} decoded values"
        )
    if OPTIMAL in (channel.name, codebook.name):
        if not channel.name == codebook.name == OPTIMAL or decoder.name != "unbiased":
            raise ValueError("the optimal channel, its codebook and its unbiased decoder belong together")
        check_unbiased(channel, codebook, decoder.values)
    decoded = decoder.values if decoder.name == "identity" else channel.moments(decoder.values)[0]
    off = float(np.abs(decoded - codebook.values).max())
    if not off <= RESIDUAL_MAX:
        raise ValueError(f"decoder {decoder.name!r} must have its own values, got values that differ by {off:g}")


def build_scalar(
    bits: int,
    epsilon: float,
    channel: str = "flat",
    codebook: str | None = None,
    decoder: str | None = None,
    rate: str | None = None,
    *,
    density: Density | None = None,
    typical: Density | None = None,
) -> tuple[Channel, Codebook, Decoder]:
    """Build the channel, codebook and decoder with these names, for one coordinate in units of B.

    Parts that are made for a density use `density`, or the representation's `typical` one by default.
    """
    check_option("channel", channel, get_args(ChannelName))
    if channel != "metric-aware" and rate not in (None, "calibrated"):
        raise ValueError(f"rate must be left out unless channel='metric-aware', got {rate!r} with channel={channel!r}")
    check_option("rate", rate or "calibrated", get_args(Rate))
    decay: Rate = "paper" if rate == "paper" else "calibrated"
    if channel == OPTIMAL:
        for label, given, own in (("codebook", codebook, OPTIMAL), ("decoder", decoder, "unbiased")):
            if given not in (None, own):
                raise ValueError(f"{label} must be {own!r} with channel='optimal', got {given!r}")
        solved = optimal_channel(bits, epsilon, _density_for("channel='optimal'", density or typical))
        return solved.channel, solved.codebook, Decoder("unbiased", solved.values)
    flat = channel == "flat"
    name = check_option(
        "codebook", ("optimized" if flat else "uniform") if codebook is None else codebook, get_args(CodebookName)
    )
    if name == OPTIMAL:
        raise ValueError(f"codebook must not be 'optimal' unless channel='optimal', got channel={channel!r}")
    if name in ("optimized", "uniform"):
        if density is not None:
            raise ValueError(
                "density must be left out unless channel='optimal' or codebook is 'panter-dite' or 'loss-optimal', "
                f"got codebook={name!r}"
            )
        words = codebooks.optimized_codebook(bits, epsilon) if name == "optimized" else codebooks.uniform_codebook(bits)
    elif name == "panter-dite":
        words = codebooks.panter_dite_codebook(bits, _density_for(f"codebook={name!r}", density or typical))
    elif flat:
        raise ValueError(f"codebook must not be 'loss-optimal' unless channel='metric-aware', got channel={channel!r}")
    else:
        words = loss_optimal_codebook(bits, _density_for(f"codebook={name!r}", density or typical), epsilon, decay)
    built = channels.flat_channel(bits, epsilon) if flat else metric_aware_channel(words, epsilon, decay)
    named = check_option(
        "decoder", ("unbiased" if flat else "identity") if decoder is None else decoder, get_args(DecoderName)
    )
    values = words.values if named == "identity" else channels.unbiased_decoder(built, words)
    return built, words, Decoder(named, values)


def _density_for(what: str, density: Density | None) -> Density:
    if density is None:
        raise ValueError(f"density must be given for {what} with kashin='paper'")
    return density
