"""Cohorts of nodes: which nodes are asked in a round, if each may answer only a limited number of times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from sstq.checks import check_number
from sstq.federated.cohorts import Participation, answers_of, next_in_turn

__all__ = ["CohortGrid", "Turns"]


class CohortGrid:
    """A grid that shows a strategy only the next cohort; everything else is the grid's own."""

    def __init__(self, grid: Grid, turns: Turns, asked: Mapping[int, int], seed: int) -> None:
        self._grid, self._turns, self._asked, self._seed = grid, turns, asked, seed

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes of the next cohort among those connected now."""
        return self._turns.cohort(self._grid.get_node_ids(), self._asked, self._seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


class Turns:
    """Schedule nodes in cohorts of one size, so that each is asked at most `participation` times.

    Args:
        participation: how often a node is asked, "once" or a number.
        cohort: the maximum number of nodes per round.
        strategy: the inner strategy, which samples among the nodes of the cohort.

    Raises:
        ValueError: the strategy would wait forever for more nodes than a cohort has.
    """

    def __init__(self, participation: Participation, cohort: int | None, strategy: Strategy) -> None:
        self._answers = answers_of(participation)
        if cohort is None:
            raise ValueError("cohort must be given with participation: the number of nodes per round")
        self._size = check_number("cohort", cohort, 1, 10**9, integer=True)
        self._least = max(1, int(getattr(strategy, "min_train_nodes", 1)))
        for name in ("min_train_nodes", "min_available_nodes"):
            if getattr(strategy, name, 0) > self._size:
                raise ValueError(
                    f"{name} of the inner strategy must be at most cohort = {self._size}, got {getattr(strategy, name)}"
                )

    def cohort(self, nodes: Iterable[int], asked: Mapping[int, int], seed: int) -> list[int]:
        """Return the next nodes in turn."""
        return next_in_turn(nodes, asked, self._answers, self._size, seed)

    def are_over(self, nodes: Iterable[int], asked: Mapping[int, int], seed: int) -> bool:
        """Whether too few of the nodes are left for a round, after the first."""
        return bool(asked) and len(self.cohort(nodes, asked, seed)) < self._least
