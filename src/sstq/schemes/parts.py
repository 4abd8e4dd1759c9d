"""The parts of a mechanism, built from the words and numbers that a user gives; each is checked by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from sstq.channels import Channel, identity_decoder, unbiased_decoder
from sstq.channels.decoders import RESIDUAL_MAX
from sstq.codebooks import (
    Codebook,
    loss_optimal_codebook,
    optimized_codebook,
    panter_dite_codebook,
    uniform_codebook,
)
from sstq.densities import Density
from sstq.frames import Frame, default_frame_size, make_frame
from sstq.kashin import Kashin, make_kashin
from sstq.laplace import Rate
from sstq.schemes.base import check_number, check_option

__all__ = [
    "CODEBOOKS",
    "Decoder",
    "build_codebook",
    "build_decoder",
    "build_frame",
    "build_recipe",
    "check_rate",
    "frame_from_dict",
    "frame_to_dict",
    "recipe_from_dict",
    "recipe_to_dict",
]

CODEBOOKS = ("optimized", "uniform", "panter-dite", "loss-optimal")
_DECODERS = ("unbiased", "identity")
_LARGEST_VALUE = 1e100


@dataclass(frozen=True, eq=False)
class Decoder:
    """The value that each code stands for on the server, in units of B."""

    name: str
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        check_option("decoder", self.name, _DECODERS)
        if self.values.ndim != 1 or not np.all(np.abs(self.values) <= _LARGEST_VALUE) or not self.values.any():
            raise ValueError(f"decoder values must be numbers up to {_LARGEST_VALUE:g} in magnitude, not all zero")
        values = np.array(self.values)
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    def check(self, channel: Channel, codebook: Codebook) -> None:
        """Refuse values that are not what their name says for this channel and codebook."""
        if self.name == "identity":
            off = float(np.abs(self.values - codebook.values).max())
        else:
            off = float(np.abs(channel.moments(self.values)[0] - codebook.values).max())
        if not off <= RESIDUAL_MAX:
            raise ValueError(f"the decoder is called {self.name!r}, but its values are off by {off:g}")


def build_decoder(name: str, channel: Channel, codebook: Codebook) -> Decoder:
    """The decoding values of that name for a channel and a codebook."""
    check_option("decoder", name, _DECODERS)
    values = identity_decoder(codebook) if name == "identity" else unbiased_decoder(channel, codebook)
    return Decoder(name, values)


def build_frame(name: Any, dim: int, size: int | None, seed: int) -> Frame:
    """The frame of that name, of the default size unless one is given."""
    size = default_frame_size(dim) if size is None else size
    size = check_number("frame_size", size, dim, 2**32, integer=True)
    return make_frame(name, dim, size, check_number("frame_seed", seed, 0, 2**64 - 1, integer=True))


def frame_to_dict(frame: Frame) -> dict[str, Any]:
    """What a frame is made of, as JSON values."""
    return {"name": frame.name, "size": frame.size, "seed": frame.seed}


def frame_from_dict(dim: int, data: dict[str, Any]) -> Frame:
    """The frame whose `frame_to_dict` this is."""
    return build_frame(data["name"], dim, data["size"], data["seed"])


def recipe_to_dict(recipe: Kashin) -> dict[str, Any]:
    """What a recipe is made of, as JSON values."""
    return {"name": recipe.name, "level": recipe.level, "steps": recipe.steps}


def recipe_from_dict(frame: Frame, data: dict[str, Any]) -> Kashin:
    """The recipe whose `recipe_to_dict` this is."""
    if data["level"] is None or data["steps"] is None:
        raise ValueError("the representation's level and steps must be numbers")
    return build_recipe(data["name"], frame, data["level"], data["steps"])


def build_recipe(name: str, frame: Frame, level: float | None, steps: int | None) -> Kashin:
    """The recipe of that name with the level and steps given, or the frame's defaults."""
    check_option("kashin", name, ("certified", "paper"))
    if level is not None:
        level = check_number("level", level, 1e-3, 1e6)
    if steps is not None:
        steps = check_number("steps", steps, 1, 10_000, integer=True)
    return make_kashin(name, frame, level, steps)


def check_rate(rate: str | None, flat: bool) -> Rate:
    """The rate of the metric-aware channel; it means nothing to the flat one."""
    if flat and rate not in (None, "calibrated"):
        raise ValueError(f"rate is an argument of the metric-aware channel, got {rate!r} with channel='flat'")
    check_option("rate", rate or "calibrated", get_args(Rate))
    return "paper" if rate == "paper" else "calibrated"


def build_codebook(
    name: str,
    bits: int,
    epsilon: float,
    channel: str,
    rate: Rate,
    recipe: Kashin,
    frame: Frame,
    density: Density | None,
) -> Codebook:
    """The codebook of that name; the last two are for a density, by default that of a typical representation."""
    check_option("codebook", name, CODEBOOKS)
    if name in ("optimized", "uniform"):
        if density is not None:
            raise ValueError(f"density is an argument of the panter-dite and loss-optimal codebooks, not of {name!r}")
        return optimized_codebook(bits, epsilon) if name == "optimized" else uniform_codebook(bits)
    if density is None:
        if not recipe.exact:
            raise ValueError(f"codebook={name!r} with kashin='paper' needs an explicit density of the coordinates")
        density = Density.censored_gaussian(recipe.bound(frame))
    if name == "panter-dite":
        return panter_dite_codebook(bits, density)
    if channel != "metric-aware":
        raise ValueError(f"codebook='loss-optimal' is optimal for channel='metric-aware'; got channel={channel!r}")
    return loss_optimal_codebook(bits, density, epsilon, rate)
