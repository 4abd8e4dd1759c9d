"""The persistent state of a strategy, so that a restarted server asks nobody too often."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sstq.checks import check_argument
from sstq.files.atomic import atomic_file
from sstq.files.strict_json import read_json

__all__ = ["ServerState"]

_FORMAT = "sstq-strategy-1"


@dataclass
class ServerState:
    """The progress of the rounds.

    Attributes:
        frame_seed: the seed of the frames and cohorts of all rounds.
        clip: the clip of the next round.
        rounds: the number of rounds in which nodes were asked.
        asked: how often each node was asked.
        answered: how often each node's answer arrived.
        path: the file of the state; None to keep it only in memory.
    """

    frame_seed: int
    clip: float
    rounds: int = 0
    asked: Counter[int] = field(default_factory=Counter)
    answered: Counter[int] = field(default_factory=Counter)
    path: Path | None = None

    @classmethod
    def open(cls, path: Path | None, frame_seed: int | None, new_seed: int, clip: float) -> ServerState:
        """Load the state from a file if it exists, else create one; ValueError if the given seed differs."""
        if path is None or not path.exists():
            return cls(new_seed if frame_seed is None else frame_seed, clip, path=path)
        state = cls._read(path)
        if frame_seed not in (None, state.frame_seed):
            raise ValueError(f"frame_seed must be {state.frame_seed}, as in {path}, got {frame_seed}")
        return state

    def save(self) -> None:
        """Write the file, completely or not at all, before anything that it counts leaves."""
        if self.path is None:
            return
        document = {
            "format": _FORMAT,
            # As text, since JSON parsers of other languages round integers beyond 2^53.
            "frame_seed": str(self.frame_seed),
            "clip": self.clip,
            "rounds": self.rounds,
            "asked": {str(node): count for node, count in sorted(self.asked.items())},
            "answered": {str(node): count for node, count in sorted(self.answered.items())},
        }
        with atomic_file(self.path) as file:
            file.write(json.dumps(document, indent=1).encode() + b"\n")

    @classmethod
    def _read(cls, path: Path) -> ServerState:
        try:
            found: dict[str, Any] = dict(read_json(path.read_text(encoding="utf-8")))
            if found["format"] != _FORMAT:
                raise ValueError(f"its format is {found['format']}, expected {_FORMAT}")
            return cls(
                check_argument("frame_seed", int(found["frame_seed"])),
                check_argument("clip", found["clip"]),
                check_argument("rounds", found["rounds"], low=0),
                Counter({int(node): check_argument("asked", n, of="rounds") for node, n in found["asked"].items()}),
                Counter(
                    {int(node): check_argument("answered", n, of="rounds") for node, n in found["answered"].items()}
                ),
                path,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged or not the state of a strategy: {error}") from error
