"""Who was asked and who answered, on the server's disk; and which nodes are next, if each may answer only so often."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from sstq.accounting.bounds import Participation, answers_of
from sstq.checks import check_argument, check_number
from sstq.files.atomic import atomic_file
from sstq.files.strict_json import read_json
from sstq.randomness.streams import words_of

_FORMAT = "sstq-strategy-1"


@dataclass
class ServerState:
    """The progress of the rounds, so that a restarted server asks nobody too often.

    Attributes:
        frame_seed: the seed of the frames and cohorts of all rounds.
        rounds: the number of rounds in which nodes were asked.
        asked: how often each node was asked.
        answered: how often each node's answer arrived.
        path: the file of the state; None to keep it only in memory.
    """

    frame_seed: int
    rounds: int = 0
    asked: Counter[int] = field(default_factory=Counter)
    answered: Counter[int] = field(default_factory=Counter)
    path: Path | None = None

    @classmethod
    def open(
        cls, path: Path | None, frame_seed: int | None, new_seed: int
    ) -> ServerState:
        """Load the state from a file if it exists, else create one; ValueError if the given seed differs."""
        if path is None or not path.exists():
            return cls(new_seed if frame_seed is None else frame_seed, path=path)
        try:
            document = dict(read_json(path.read_text(encoding="utf-8")))
            if document["format"] != _FORMAT:
                raise ValueError(
                    f"its format is {document['format']}, expected {_FORMAT}"
                )
            seed = check_argument("frame_seed", int(document["frame_seed"]))
            rounds = check_argument("rounds", document["rounds"], low=0)
            state = cls(
                seed,
                rounds,
                _counts(document, "asked"),
                _counts(document, "answered"),
                path,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is damaged or not the state of a strategy: {error}"
            ) from error
        if frame_seed not in (None, state.frame_seed):
            raise ValueError(
                f"frame_seed must be {state.frame_seed}, as in {path}, got {frame_seed}"
            )
        return state

    def save(self) -> None:
        """Write the file, completely or not at all, before anything that it counts leaves."""
        if self.path is None:
            return
        document = {
            "format": _FORMAT,
            # As text, since JSON parsers of other languages round integers beyond 2^53.
            "frame_seed": str(self.frame_seed),
            "rounds": self.rounds,
            "asked": dict(sorted(self.asked.items())),
            "answered": dict(sorted(self.answered.items())),
        }
        with atomic_file(self.path) as file:
            file.write(json.dumps(document, indent=1).encode() + b"\n")


def _counts(document: dict[str, Any], name: str) -> Counter[int]:
    return Counter(
        {
            int(node): check_argument(name, count, of="rounds")
            for node, count in document[name].items()
        }
    )


class Turns:
    """Schedule nodes in cohorts of one size, so that each is asked at most `participation` times.

    Nodes come and go, so there is no schedule beforehand: those asked least often are next, in a public random order.
    The inner strategy samples among them, and would wait for ever for more nodes than a cohort has.
    """

    def __init__(
        self, participation: Participation, cohort: int | None, strategy: Strategy
    ) -> None:
        self._answers = answers_of(participation)
        if cohort is None:
            raise ValueError(
                "cohort must be given with participation: the number of nodes per round"
            )
        self._size = check_number("cohort", cohort, 1, 10**9, integer=True)
        self._least = max(1, int(getattr(strategy, "min_train_nodes", 1)))
        for name in ("min_train_nodes", "min_available_nodes"):
            if getattr(strategy, name, 0) > self._size:
                raise ValueError(
                    f"{name} of the inner strategy must be at most cohort = {self._size}, got {getattr(strategy, name)}"
                )

    def cohort(self, nodes: Iterable[int], state: ServerState) -> list[int]:
        """Return the next nodes in turn."""
        asked = state.asked
        able = np.array(
            sorted(node for node in nodes if asked[node] < self._answers),
            dtype=np.uint64,
        )
        times = np.array([asked[int(node)] for node in able], dtype=np.int64)
        first = np.lexsort((words_of(state.frame_seed, "cohorts", able), times))[
            : self._size
        ]
        return sorted(int(node) for node in able[first])

    def are_over(self, nodes: Iterable[int], state: ServerState) -> bool:
        """Whether too few of the nodes are left for a round, after the first."""
        return bool(state.asked) and len(self.cohort(nodes, state)) < self._least


class CohortGrid:
    """A grid that shows a strategy only the next cohort; everything else is the grid's own."""

    def __init__(self, grid: Grid, turns: Turns, state: ServerState) -> None:
        self._grid = grid
        self._turns = turns
        self._state = state

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes of the next cohort among those connected now."""
        return self._turns.cohort(self._grid.get_node_ids(), self._state)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)
