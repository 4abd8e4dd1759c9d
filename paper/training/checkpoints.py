"""Checkpoints: resuming an interrupted training."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sstq.files.atomic import atomic_file
from sstq.files.npy import DAMAGED_ARCHIVE, read_archive
from sstq.files.strict_json import read_json

__all__ = ["State", "load_state", "save_state"]

_FORMAT = "sstq-training-3"


@dataclass(frozen=True, eq=False)
class State:
    """The state after a number of rounds: model, server's velocity, clip of the next round, and what is trained."""

    round_number: int
    parameters: NDArray[np.float32]
    velocity: NDArray[np.float64]
    clip: float
    identity: dict[str, str]


def save_state(state: State, path: str | os.PathLike[str]) -> None:
    """Write the state to a file, completely or not at all."""
    with atomic_file(path) as file:
        np.savez(
            file,
            format=np.array(_FORMAT),
            identity=np.array(json.dumps(state.identity)),
            round_number=np.array(state.round_number),
            parameters=state.parameters,
            velocity=state.velocity,
            clip=np.array(state.clip),
        )


def load_state(path: str | os.PathLike[str], dim: int, identity: dict[str, str]) -> State:
    """Load the state that `save_state` wrote for the same training; ValueError for anything else."""
    name = os.fspath(path)
    try:
        stored = read_archive(path)
        if str(stored["format"]) != _FORMAT:
            raise ValueError(f"its format is {stored['format']}, expected {_FORMAT}")
        found, number = dict(read_json(str(stored["identity"]))), int(stored["round_number"])
        parameters, velocity, clip = stored["parameters"], stored["velocity"], float(stored["clip"])
        is_state = parameters.shape == velocity.shape == (dim,) and number >= 0 and 0 < clip < math.inf
    except DAMAGED_ARCHIVE as error:
        raise ValueError(f"{name} is damaged or not a checkpoint: {error}") from error
    differing = [part for part in identity if found.get(part) != identity[part]]
    if differing:
        raise ValueError(f"{name} belongs to another training, which differs in {', '.join(differing)}")
    if not is_state:
        raise ValueError(f"{name} is not a checkpoint of this model")
    return State(number, parameters.astype(np.float32), velocity.astype(np.float64), clip, identity)
