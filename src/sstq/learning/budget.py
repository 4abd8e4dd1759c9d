"""A person's total budget, and its mechanisms: one local message, or several behind a shuffler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from sstq.checks import check_argument, check_number, check_option
from sstq.mechanisms import FrameUnit, GroupUnit
from sstq.planning.shuffled_draw import shuffled_mechanism

__all__ = ["Budget", "Trust"]

Trust = Literal["local", "shuffler"]


@dataclass(frozen=True)
class Budget:
    """The total privacy budget of a person.

    Attributes:
        epsilon: the total ε, of the only message or of all messages behind the shuffler.
        delta: the total δ behind the shuffler; 0 without one.
        messages: the messages per person, each shuffled with those of its own slot; 1 without a shuffler.
        trust: "local" or "shuffler".
    """

    epsilon: float
    delta: float = 0.0
    messages: int = 1
    trust: Trust = "local"

    def __post_init__(self) -> None:
        check_argument("epsilon", self.epsilon)
        check_argument("messages", self.messages)
        if check_option("trust", self.trust, ("local", "shuffler")) == "shuffler":
            check_number("delta", self.delta, 1e-15, 0.1)
        elif self.messages > 1:
            raise ValueError(f"messages must be 1 unless trust='shuffler', got {self.messages}: their ε would add up")

    @property
    def shuffled(self) -> bool:
        """Whether there is a shuffler."""
        return self.trust == "shuffler"

    def __str__(self) -> str:
        if not self.shuffled:
            return f"total ε = {self.epsilon:g} per person"
        return f"total ε = {self.epsilon:g}, δ = {self.delta:g} per person behind a shuffler"

    def for_vectors(self, dim: int, people: int, seed: int) -> FrameUnit:
        """Return the mechanism for vectors of a cohort of people."""
        if not self.shuffled:
            return FrameUnit(dim, self.epsilon, clients=people, frame_seed=seed)
        return cast(FrameUnit, self._shuffled(dim, people, seed))

    def for_groups(self, dim: int, groups: int, people: int, seed: int, **local: Any) -> GroupUnit:
        """Return the mechanism for vectors with private groups; `local` are options used without a shuffler."""
        if not self.shuffled:
            return GroupUnit(dim, self.epsilon, groups=groups, clients=people, frame_seed=seed, **local)
        return cast(GroupUnit, self._shuffled(dim, people, seed, groups=groups))

    def _shuffled(self, dim: int, people: int, seed: int, **options: Any) -> FrameUnit | GroupUnit:
        return shuffled_mechanism(
            dim, self.epsilon, self.delta, people, messages=self.messages, frame_seed=seed, **options
        )
